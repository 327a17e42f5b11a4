"""The width of clusters in a small release, for a second one."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.maps.fourier.laws import check_law

ROWS = 20_000
NAMES = ("c0", "c1", "c2", "c3")
CENTRES = np.array([[0.3, 0.3, 0.4, 0.6], [0.7, 0.3, 0.6, 0.3], [0.5, 0.7, 0.3, 0.4]])
SCHEMA = dps.Schema.from_dict(
    {"privacy": {"rows": ROWS}, "columns": {name: {"kind": "number", "lower": 0, "upper": 1} for name in NAMES}}
)


def planted(deviation: float) -> pa.Table:
    random = np.random.default_rng(5)
    points = CENTRES[random.integers(0, 3, ROWS)] + random.normal(0, deviation, (ROWS, 4))
    return pa.table({name: points[:, j].clip(0, 1) for j, name in enumerate(NAMES)})


def released(table: pa.Table, recipe: dps.Recipe, budget: dps.Budget, ledger: dps.Ledger) -> dps.View:
    return dps.View(dps.release(dps.accumulate(table, SCHEMA, recipe), budget, ledger, "table"))


@pytest.mark.parametrize("deviation", [0.02, 0.05])
def test_the_width_of_planted_clusters_finds_them_in_a_second_release(seeded: None, deviation: float) -> None:
    table, ledger, small = planted(deviation), dps.Ledger("sqlite://"), dps.Budget(0.2)
    ledger.grant("table", dps.Budget(1.0))
    first = released(table, dps.Recipe.clusters(SCHEMA, budget=small, n_clusters=3), small, ledger)
    width = dps.suggest_width(first, 3)
    assert width == pytest.approx(2 * deviation, rel=0.25)
    assert check_law("Fourier", "gaussian", width) is not None
    fourier = dps.Fourier(size=120, kernel="gaussian", width=width)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.03), dps.Part(fourier, 0.97)])
    model = dps.KMeans(3, method="clompr").fit(released(table, recipe, dps.Budget(0.8), ledger))
    apart = np.linalg.norm(model.cluster_centers_[:, None] - CENTRES, axis=2)
    assert sorted(apart.argmin(1)) == [0, 1, 2]
    assert apart.min(1).max() < 0.02
    [account] = ledger.accounts()
    assert account.total.epsilon == 1, "both releases count"


def test_columns_are_those_of_the_clusters(seeded: None) -> None:
    table, budget = planted(0.05), dps.Budget(1.0)
    recipe = dps.Recipe.clusters(SCHEMA, budget=budget, n_clusters=3, columns=NAMES[:2])
    first = released(table, recipe, budget, dps.Ledger("sqlite://"))
    assert dps.suggest_width(first, 3, NAMES[:2]) == pytest.approx(math.sqrt(2) * 0.05, rel=0.25)
    with pytest.raises(dps.RecipeError, match="suggest_width: columns must be a list of column names, got 'c0'"):
        dps.suggest_width(first, 3, "c0")


def test_only_a_private_release_may_be_asked() -> None:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Fourier(size=20), 0.9)])
    raw = dps.accumulate(planted(0.05), SCHEMA, recipe)
    with pytest.raises(dps.QueryError, match="not private: a width taken from it would leak the table\nHint: take it"):
        dps.suggest_width(dps.View(dps.release(raw, dps.Budget(math.inf))), 3)
