"""Rows drawn from a release with tables of three columns."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

import dpsketch as dps
from conftest import SEED
from dpsketch.learn.population.third_order import denoised, resampled
from dpsketch.maps.tables.triple_tables import Triples
from dpsketch.numerics.arrays import Floats

ROWS = 40_000
COLUMNS = {name: {"kind": "number", "lower": 0, "upper": 1} for name in "xyz"}
SCHEMA = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": COLUMNS})


@lru_cache
def drawn(triples: bool) -> Floats:
    """20,000 rows from a release of a table in which z is in its upper half if just one of x and y is. The tables of
    three columns have so little of the budget that columns have six groups: an even number, and one ends at a half.
    """
    rng = np.random.default_rng(SEED)
    x, y = rng.random(ROWS) ** 2, rng.random(ROWS)
    z = ((x > 0.5) ^ (y > 0.5)) * 0.5 + rng.random(ROWS) * 0.5
    parts = [(dps.Count(), 0.1), (dps.Marginals(bins=32), 0.4), (dps.AdaptivePairs(bins=32), 0.4)]
    parts += [(Triples(bins=16, pool=True), 0.02)] if triples else []
    raw = dps.accumulate(pa.table({"x": x, "y": y, "z": z}), SCHEMA, dps.Recipe([dps.Part(*part) for part in parts]))
    view = dps.View(dps.release(raw, dps.Budget(5.0), dps.Ledger("sqlite://"), "exclusive"))
    return view.sample(20_000).to_pandas().to_numpy()


def agreement(rows: Floats) -> float:
    x, y, z = (rows > 0.5).T
    return float(np.mean((x ^ y) == z))


def test_rows_have_the_dependence_that_tables_of_three_columns_show() -> None:
    assert agreement(drawn(False)) < 0.7
    assert agreement(drawn(True)) > 0.93


def test_columns_keep_their_own_distributions() -> None:
    for column, truth in ((0, np.sqrt), (1, lambda each: each)):
        for edge in (0.1, 0.3, 0.5, 0.8):
            assert abs(np.mean(drawn(True)[:, column] <= edge) - truth(edge)) < 0.015


def test_what_noise_explains_is_left_out() -> None:
    rng, shares = np.random.default_rng(SEED), np.full(1000, 0.001)
    noise = rng.normal(0, 1e-3, 1000)
    assert np.abs(denoised(noise, shares, 1e-3)).mean() < 0.1 * np.abs(noise).mean()
    changes = rng.choice([-5e-4, 5e-4], 1000)
    found = denoised(changes + rng.normal(0, 1e-5, 1000), shares, 1e-5)
    np.testing.assert_allclose(found, changes, atol=5e-5)


def test_places_are_drawn_as_often_as_their_weights_say() -> None:
    weights = np.array([0.0, 1.0, 2.5, 6.5])
    count = np.bincount(resampled(weights, 1000, np.random.default_rng(SEED)), minlength=4)
    assert np.abs(count - 100 * weights).max() <= 1


def test_a_recipe_has_tables_of_three_columns_where_public_numbers_say_that_they_pay() -> None:
    def has(rows: int, budget: dps.Budget) -> bool:
        schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": COLUMNS})
        parts = dps.Recipe.general(schema, rows=rows, budget=budget).parts
        return any(isinstance(part.map, Triples) for part in parts)

    assert has(20_000, dps.Budget(1.0, 1e-6))
    assert not has(2_000, dps.Budget(1.0, 1e-6))
    assert not has(20_000, dps.Budget(1.0))
    assert has(200_000, dps.Budget(1.0))
