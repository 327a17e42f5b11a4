"""Errors that no noise explains."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.learn.estimators.joint import unseen
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


HALF = np.array([[0.35, 0.15], [0.15, 0.35]])  # of two columns with two groups each: Cramér's V is 0.4


def _of_cells(
    means: list[float], shares: list[float], groups: list[int], alone: list[int] | None
) -> unseen.GroupValues:
    """A function of a column's cells; `alone` are its single values, None of labels."""
    held, member = np.array(shares), np.eye(max(groups) + 1)[groups]
    single = None if alone is None else np.isin(np.arange(len(shares)), alone)
    return unseen.group_values(np.array([means]), held, member * held[:, None] / (held @ member), single)


def test_groups_hide_nothing_of_functions_that_are_constant_in_them() -> None:
    whole = _of_cells([1, 1, 0, 0], [0.25] * 4, [0, 0, 1, 1], [0])
    assert unseen.inside_groups(HALF, whole, whole) == pytest.approx(0)


def test_what_a_pooled_label_hides_falls_with_its_share() -> None:
    other = _of_cells([1, 0], [0.5, 0.5], [0, 1], [])
    errors = []
    for share in (0.1, 0.01):
        label = _of_cells([1, 0, 0], [share, 0.5 - share, 0.5], [0, 0, 1], None)
        errors.append(float(np.sqrt(unseen.inside_groups(HALF, label, other)[0])))
        # Both labels of the group have their own share of the other condition, whose deviation there is √(0.7·0.3).
        assert errors[-1] == pytest.approx(0.4 * np.sqrt(2) * share * (1 - 2 * share) * np.sqrt(0.21))
    assert errors[0] > 8 * errors[1]


def test_single_values_differ_as_labels_do_and_others_along_their_order() -> None:
    other = _of_cells([1, 0], [0.5, 0.5], [0, 1], [])
    smooth = unseen.inside_groups(HALF, _of_cells([1, 0, 0], [0.1, 0.4, 0.5], [0, 0, 1], []), other)
    single = unseen.inside_groups(HALF, _of_cells([1, 0, 0], [0.1, 0.4, 0.5], [0, 0, 1], [0]), other)
    assert smooth == pytest.approx(unseen.INSIDE**2 * 0.1 * 0.4 * 0.21)
    assert single - smooth == pytest.approx((0.4 * 0.1 * 0.8) ** 2 * 0.21)
