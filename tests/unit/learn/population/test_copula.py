from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.learn.population.copula import Copula, polychoric
from dpsketch.maps.tables.cells import Cells
from dpsketch.schema.columns import Number

EDGES = np.array([-0.7, 0.1, 0.9])


def normal_table(correlation: float) -> np.ndarray:
    full = np.r_[-9, EDGES, 9]
    normal = multivariate_normal(cov=[[1, correlation], [correlation, 1]])
    below = np.array([[normal.cdf([a, b]) for b in full] for a in full])
    return np.diff(np.diff(below, axis=0), axis=1)


@pytest.mark.parametrize("correlation", [-0.97, -0.4, 0.0, 0.3, 0.8, 0.99])
def test_the_correlation_behind_a_table_is_found(correlation: float) -> None:
    assert polychoric(normal_table(correlation)) == pytest.approx(correlation, abs=0.025)


def two_columns(correlation: float, cells: int = 40) -> tuple[list[Cells], Mixture]:
    """Two columns in four groups of cells each, as a mixture with one component a group of the first column."""
    table = normal_table(correlation)
    cut = [Cells(Number(name), cells - 2) for name in "xy"]
    groups = np.append(np.repeat(np.arange(4), cells // 4), 3)
    within = np.append(np.full(cells, 4 / cells), 0.0)
    weights = table.sum(1)
    return cut, Mixture(weights, (np.eye(4), table / weights[:, None]), (groups, groups), (within, within))


def test_coupling_keeps_columns_and_groups_and_adds_dependence_inside() -> None:
    cut, mixture = two_columns(0.95)
    copula = Copula(cut, mixture)
    places = mixture.sample(20_000, 1).T
    codes = [own.column.codes_of(own.first_levels[place]) for own, place in zip(cut, places, strict=True)]
    coupled = copula.couple(codes, places, np.random.default_rng(0))
    for own, before, after in zip(cut, codes, coupled, strict=True):
        assert (np.sort(before) == np.sort(after)).all()
        assert (mixture.groups[0][own.cells(before)] == mixture.groups[0][own.cells(after)]).all()
    inside = mixture.groups[0][places]
    same = (inside[0] == 1) & (inside[1] == 1)
    assert abs(np.corrcoef(codes[0][same], codes[1][same])[0, 1]) < 0.05
    assert np.corrcoef(coupled[0][same], coupled[1][same])[0, 1] > 0.3


def test_groups_that_are_no_intervals_are_left_alone() -> None:
    cut, mixture = two_columns(0.5)
    mixed = np.append(np.tile(np.arange(4), 10), 3)
    apart = Mixture(mixture.weights, mixture.shares, (mixed, mixture.groups[1]), mixture.within)
    assert Copula(cut, apart).columns == (1,)
