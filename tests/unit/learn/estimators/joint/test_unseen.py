"""Errors that no noise explains."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.learn.estimators.joint.unseen import of_several, unmeasured

ROWS = 40_000


def test_parts_of_a_product_are_those_of_the_decomposition_of_variance() -> None:
    """Against the definition: 2 × 2 × 2 outcomes of three independent functions."""
    shares = np.array([[0.3, 0.7], [0.6, 0.4], [0.2, 0.8]])
    values = np.array([[1.0, 0.0], [2.0, -1.0], [0.5, 3.0]])
    means = (shares * values).sum(1)
    variances = (shares * values**2).sum(1) - means**2
    pairs = more = 0.0
    for outcome in product(range(2), repeat=3):
        chance = np.prod([shares[j, outcome[j]] for j in range(3)])
        off = np.array([values[j, outcome[j]] - means[j] for j in range(3)])
        two = sum(off[j] * off[k] * means[3 - j - k] for j, k in ((0, 1), (0, 2), (1, 2)))
        pairs, more = pairs + chance * two**2, more + chance * np.prod(off) ** 2
    each = [means[j : j + 1] for j in range(3)], [variances[j : j + 1] for j in range(3)]
    assert unmeasured(*each, [(0, 1), (0, 2), (1, 2)])[0] == pytest.approx(pairs)
    assert of_several(*each)[0] == pytest.approx(more)


def test_one_column_has_no_part_of_several() -> None:
    assert of_several([np.array([0.3])], [np.array([0.2])])[0] == 0


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Whole numbers that are declared as real ones, and truly real ones."""
    random = np.random.default_rng(SEED)
    return pa.table({"whole": random.integers(0, 40, ROWS) + 0.5, "real": random.random(ROWS) * 40})


@pytest.fixture(scope="module")
def view(table: pa.Table) -> dps.View:
    columns = {name: {"kind": "number", "lower": 0, "upper": 40} for name in table.column_names}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Marginals(bins=32), 0.9)])
    return dps.View(dps.release(dps.accumulate(table, schema, recipe), dps.Budget(10.0), dps.Ledger("sqlite://"), "a"))


def test_thresholds_on_values_that_cells_hide_have_their_error(view: dps.View, table: pa.Table) -> None:
    thresholds = np.arange(1, 39) + 0.5
    found = view.cdf("whole", thresholds)
    off = np.abs(found.value - [(table["whole"].to_numpy() <= each).mean() for each in thresholds])
    assert np.median(off) > 0.005  # half of a value's share: nothing in the release tells the sides of its cell
    assert np.mean(off < 2 * found.stderr) > 0.8
    spread = view.cdf("real", thresholds)
    assert np.median(spread.stderr) < np.median(found.stderr) / 3


def test_means_know_where_in_cells_records_are(view: dps.View) -> None:
    assert view.mean("whole").stderr == pytest.approx(view.mean("real").stderr, rel=0.2)
