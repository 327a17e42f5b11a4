"""Releases of a recipe with important pairs: the noise of each pair, what answers gain, and attacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.audits import APPROXIMATE, PURE, schema
from scipy.stats import chi2

import dpsketch as dps
from conftest import SEED
from dpsketch.auditing import audit
from dpsketch.maps.tables.pair_map import PairMap
from dpsketch.privacy.events import Release
from dpsketch.recipe.bound_recipe import BoundRecipe

ALPHA = 1e-3
TIMES = 4
ROWS, RELEASES, QUESTIONS = 20_000, 4, 30
LEAST_HELD = 0.9  # of the 95 % intervals; answers of one release err together
DRAWS = 12_000


def released(raw: dps.RawSketch, budget: dps.Budget, mechanism: str = "auto") -> dps.ReleasedSketch:
    return dps.release(raw, budget, dps.Ledger("sqlite://"), "table", mechanism)


def plausible(noise: np.ndarray, variance: float) -> bool:
    """Whether normal noise has this variance: a two-sided test of its sum of squares."""
    share = chi2.cdf((noise**2).sum() / variance, noise.size)
    return bool(ALPHA / 2 < share < 1 - ALPHA / 2)


def test_every_pair_has_the_noise_that_its_weight_says() -> None:
    """A test that also rejects noise that is a tenth larger or smaller."""
    columns = {name: {"kind": "integer", "lower": 0, "upper": 60} for name in "abc"}
    facts = dps.Schema.from_dict({"privacy": {"rows": 1000}, "columns": columns})
    pairs = dps.Pairs(bins=59, important=[("a", "c")], times=TIMES)
    raw = dps.accumulate(pa.table({name: np.arange(60.0) for name in "abc"}), facts, dps.Recipe([dps.Part(pairs, 1.0)]))
    [part] = released(raw, dps.Budget(0.5, 1e-6), "gaussian").parts
    assert isinstance(part.map, PairMap)
    assert part.noises[0].sensitivity == 2 + TIMES**2
    for pair, names in enumerate(part.map.pairs):
        weight = TIMES if names == ("a", "c") else 1
        noise = part.map.pair_table(part.sums, pair) - part.map.pair_table(raw.parts[0].sums, pair)
        stated = part.noise_variance / weight**2
        assert plausible(noise, stated)
        assert not plausible(noise, 1.1**2 * stated)
        assert not plausible(noise, stated / 1.1**2)


def people(rng: np.random.Generator) -> pa.Table:
    """Six columns that follow two causes."""
    causes = rng.normal(size=(2, ROWS))
    mixed = rng.uniform(-1, 1, (6, 2)) @ causes + 0.5 * rng.normal(size=(6, ROWS))
    return pa.table({f"c{index}": 1 / (1 + np.exp(-values)) for index, values in enumerate(mixed)})


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE], ids=["pure", "delta"])
def test_answers_about_an_important_pair_are_more_accurate_and_their_intervals_hold(budget: dps.Budget) -> None:
    rng = np.random.default_rng(SEED)
    table = people(rng)
    columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in table.column_names}
    facts = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    one, two = (table[name].to_numpy() for name in ("c1", "c4"))
    asked = [(one[rng.integers(ROWS)], two[rng.integers(ROWS)]) for _ in range(QUESTIONS)]
    errors: dict[bool, list[float]] = {True: [], False: []}
    held = []
    for hinted in errors:
        groups = [["c4", "c1"]] if hinted else []
        raw = dps.accumulate(table, facts, dps.Recipe.general(facts, budget=budget, important=groups))
        for _ in range(RELEASES):
            view = dps.View(released(raw, budget))
            for x, y in asked:
                truth = float(((one > x) & (two > y)).sum())
                answer = view.count(f"c1 > {x} and c4 > {y}")
                low, high = answer.interval(0.95)
                errors[hinted].append(abs(float(answer.value) - truth))
                if hinted:
                    held.append(bool(low <= truth <= high))
    assert np.mean(errors[True]) < 0.75 * np.mean(errors[False])
    assert np.mean(held) > LEAST_HELD


def weighted(most: int | None) -> dps.Recipe:
    pairs = dps.Pairs(bins=2, pool=True, most=most, important=[("x", "y")], times=TIMES)
    return dps.Recipe([dps.Part(dps.Marginals(bins=2), 0.01), dps.Part(pairs, 0.99)])


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_noise_that_forgets_the_weights_is_caught(
    most: int | None, relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = schema(relation=relation)
    assert not audit(weighted(most), facts, PURE, DRAWS).violated
    assert not audit(weighted(most), facts, APPROXIMATE, DRAWS, "gaussian").violated
    honest = BoundRecipe.calibrated

    def forgetful(bound: BoundRecipe, *asked: Any) -> Release:
        pairs = replace(bound.maps[1].description, important=None, times=1)
        return honest(replace(bound, maps=(bound.maps[0], pairs.bind(bound.schema))), *asked)

    monkeypatch.setattr(BoundRecipe, "calibrated", forgetful)
    assert audit(weighted(most), facts, PURE, DRAWS).violated
