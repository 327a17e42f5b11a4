from itertools import product

import numpy as np
import pytest

from dpsketch.learn.estimators.joint.product_mixture import Mixture

CELLS = (4, 3, 5)


@pytest.fixture
def mixture() -> Mixture:
    rng = np.random.default_rng(1)
    groups = (np.array([0, 0, 1, 2]), np.array([0, 1, 1]), np.array([0, 1, 1, 2, 2]))
    within = []
    for group in groups:
        inside = rng.random(len(group))
        within.append(inside / np.bincount(group, inside)[group])
    shares = tuple(rng.dirichlet(np.ones(group.max() + 1), 4) for group in groups)
    return Mixture(rng.dirichlet(np.ones(4)), shares, groups, tuple(within))


def joint(mixture: Mixture) -> np.ndarray:
    table = np.zeros(CELLS)
    for cell in product(*map(range, CELLS)):
        for k, weight in enumerate(mixture.weights):
            inside = [mixture.shares[j][k, mixture.groups[j][c]] * mixture.within[j][c] for j, c in enumerate(cell)]
            table[cell] += weight * np.prod(inside)
    return table


def test_expectations_equal_enumeration(mixture):
    rng = np.random.default_rng(2)
    table = joint(mixture)
    assert table.sum() == pytest.approx(1)
    for _ in range(10):
        values = [rng.normal(size=(2, size)) for size in CELLS]
        inside = [mixture.expectations(column, each) for column, each in enumerate(values)]
        found = (mixture.weights * inside[0] * inside[1] * inside[2]).sum(1)
        assert found == pytest.approx(np.einsum("ijk,ni,nj,nk->n", table, *values))
        assert (mixture.weights * inside[0] * inside[2]).sum(1) == pytest.approx(
            np.einsum("ijk,ni,nk->n", table, values[0], values[2])
        )


def test_marginals_and_pairs_equal_enumeration(mixture):
    table = joint(mixture)
    assert mixture.marginal(2) == pytest.approx(table.sum((0, 1)))
    assert mixture.pair(0, 1) == pytest.approx(table.sum(2))
    assert mixture.pair(2, 0) == pytest.approx(table.sum(1).T)


def test_samples_have_the_distribution(mixture):
    cells = mixture.sample(40_000)
    found = np.zeros(CELLS)
    np.add.at(found, tuple(cells.T), 1 / len(cells))
    assert found == pytest.approx(joint(mixture), abs=0.006)  # about five standard deviations
    for column in range(3):
        assert np.bincount(cells[:, column], minlength=CELLS[column]) / len(cells) == pytest.approx(
            mixture.marginal(column), abs=5e-4
        )
    assert (cells == mixture.sample(40_000)).all()
    assert mixture.sample(0).shape == (0, 3)
