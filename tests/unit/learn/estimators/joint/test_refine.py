import numpy as np
import pytest

from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.estimators.joint.refine import COARSE, refine, refined_joint

BINS = 40


def column(shares: np.ndarray) -> Marginal:
    """Bins between two atoms, then missing."""
    centres = np.concatenate([[0.0], (np.arange(BINS) + 0.5) / BINS, [1.0, 0.5]])
    widths = np.concatenate([[0.0], np.full(BINS, 1 / BINS), [0.0, 0.0]])
    return Marginal(shares, np.zeros(BINS + 3), centres, widths)


def uniform() -> tuple[Marginal, np.ndarray, np.ndarray]:
    shares = np.concatenate([[0.0], np.full(BINS, 1 / BINS), [0.0, 0.0]])
    groups = np.concatenate([[0], np.arange(BINS) // 8, [4, 4]])
    return column(shares), groups, np.bincount(groups, shares)


def test_parts_halve_groups_and_add_up_to_them():
    marginal, groups, shares = uniform()
    found = refine(marginal, groups, shares)
    parent = groups[np.unique(found.groups, return_index=True)[1]]
    assert len(found.shares) == 10
    assert np.bincount(parent, found.shares) == pytest.approx(shares)
    back = np.stack([found.spread[parent == group].sum(0) for group in range(5)])
    assert back == pytest.approx(np.eye(5), abs=1e-9)


def test_what_groups_hold_goes_on_inside_them():
    marginal, groups, shares = uniform()
    found = refine(marginal, groups, shares)
    rising = found.spread @ (shares * np.arange(-2.0, 3.0)) / found.shares
    assert (np.diff(rising) > 0).all()
    assert rising[1:-1] == pytest.approx((np.arange(10) - 4.5)[1:-1] / 2, abs=0.15)
    assert found.spread @ shares == pytest.approx(found.shares, rel=1e-4)  # nothing to tell the parts apart


def test_an_atom_of_its_own_has_no_neighbours():
    _, groups, _ = uniform()
    heavy = np.concatenate([[0.5], np.full(BINS, 0.5 / BINS), [0.0, 0.0]])
    groups = groups + 1
    groups[0] = 0
    shares = np.bincount(groups, heavy)
    found = refine(column(heavy), groups, shares)
    held = found.spread @ np.concatenate([[1.0], np.zeros(5)])
    assert held[0] == pytest.approx(1.0)
    assert held[1:] == pytest.approx(0.0, abs=1e-9)


def test_categories_and_fine_groups_stay():
    shares = np.array([0.5, 0.3, 0.2, 0.0])
    found = refine(Marginal(shares, np.zeros(4)), np.array([0, 1, 2, 2]), np.array([0.5, 0.3, 0.2]))
    assert (found.groups == [0, 1, 2, 2]).all()
    assert found.spread == pytest.approx(np.eye(3))
    marginal, _, _ = uniform()
    groups = np.minimum(np.arange(BINS + 3) // 2, COARSE)
    assert (refine(marginal, groups, np.bincount(groups, marginal.shares)).groups == groups).all()


def test_groups_without_mass_and_light_halves_are_not_split():
    marginal, groups, _ = uniform()
    lopsided = marginal.shares.copy()
    lopsided[1:8], lopsided[8] = 0.0, 8 / BINS
    lopsided[9:17] = 0.0
    found = refine(column(lopsided), groups, np.maximum(np.bincount(groups, lopsided), 1e-5))
    assert len(found.shares) == 8
    assert np.isfinite(found.spread).all()


def test_given_parts_are_kept():
    marginal, groups, shares = uniform()
    parts = refine(marginal, groups, shares).groups
    other = np.random.default_rng(1).dirichlet(np.ones(BINS + 3))
    found = refine(column(other), groups, np.bincount(groups, other), parts)
    assert (found.groups == parts).all()
    assert found.shares == pytest.approx(np.bincount(parts, other))


def test_noise_in_light_groups_bends_nothing_beyond_its_marginals():
    """Groups that hold almost nothing have dependence far above their shares, all of it noise."""
    _, groups, _ = uniform()
    light = np.concatenate([[0.0], np.repeat([0.6, 1e-5, 0.2, 1e-5, 0.19998], 8) / 8, [0.0, 0.0]])
    shares = np.bincount(groups, light)
    parts = [refine(column(light), groups, shares)] * 2
    noise = np.random.default_rng(3).normal(0, 5e-3, (5, 5))
    noise -= noise.mean(0)
    noise -= noise.mean(1, keepdims=True)
    found = np.block([[np.zeros((5, 5)), noise], [noise.T, np.zeros((5, 5))]])
    joint = refined_joint(found, parts)[:10, 10:]
    inside = np.eye(5)[groups[np.unique(parts[0].groups, return_index=True)[1]]]
    assert inside.T @ joint @ inside == pytest.approx(np.outer(shares, shares) + noise)  # groups hold what they held
    assert np.abs(joint).max() < 1.0


def test_dependence_that_is_possible_is_not_held_back():
    marginal, groups, shares = uniform()
    parts = [refine(marginal, groups, shares)] * 2
    slope = np.outer(shares * np.arange(-2.0, 3.0), shares * np.arange(-2.0, 3.0)) / 10
    found = np.block([[np.zeros((5, 5)), slope], [slope.T, np.zeros((5, 5))]])
    joint = refined_joint(found, parts)[:10, 10:]
    assert joint - 0.01 == pytest.approx(parts[0].spread @ slope @ parts[0].spread.T, abs=1e-9)
