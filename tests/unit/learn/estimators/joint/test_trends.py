import numpy as np
import pytest

from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.estimators.joint.trends import AT_ENDS, DOUBT, chain_of

BINS, SIZE = 64, 8


def uniform() -> tuple[Marginal, np.ndarray, np.ndarray]:
    """Bins between two bounds, then missing; groups of eight bins, the bounds and missing apart."""
    centres = np.concatenate([[0.0], (np.arange(BINS) + 0.5) / BINS, [1.0, 0.5]])
    widths = np.concatenate([[0.0], np.full(BINS, 1 / BINS), [0.0, 0.0]])
    shares = np.concatenate([[0.0], np.full(BINS, 1 / BINS), [0.0, 0.0]])
    last = BINS // SIZE
    groups = np.concatenate([[0], 1 + np.arange(BINS) // SIZE, [last + 1, last + 2]])
    return Marginal(shares, np.zeros(BINS + 3), centres, widths), groups, np.bincount(groups, shares)


def test_single_values_are_not_in_the_chain():
    chain = chain_of(*uniform())
    assert chain is not None
    assert chain.groups.tolist() == list(range(1, 9))


def test_labels_have_no_chain():
    assert chain_of(Marginal(np.full(4, 0.25), np.zeros(4)), np.arange(4), np.full(4, 0.25)) is None


def test_covariance_inside_groups_is_found_where_dependence_is_linear():
    """y = x of 64 values, known by 8 groups: inside groups x varies by (8² − 1)/12 of squared bins."""
    marginal, groups, shares = uniform()
    chain = chain_of(marginal, groups, shares)
    table = np.diag(shares)  # both columns alike
    means = np.bincount(groups, marginal.means() * marginal.shares) / np.maximum(shares, 1e-300)
    found = chain.trend(marginal.means()[None], [means[None]], [table])
    missing = (SIZE**2 - 1) / 12 / BINS**2
    inner = missing * 6 / 8
    assert found.gained[0, 0] == pytest.approx(inner + AT_ENDS * missing * 2 / 8, rel=1e-6)
    assert found.doubt[0] == pytest.approx(DOUBT * missing, rel=1e-6)


def test_no_trend_without_dependence_or_where_it_turns():
    marginal, groups, shares = uniform()
    chain = chain_of(marginal, groups, shares)
    values, other = marginal.means()[None], np.array([[0.0, 1.0]])
    alone = np.outer(shares, [0.3, 0.7])
    assert chain.trend(values, [other], [alone]).gained == pytest.approx(np.zeros((1, 1)), abs=1e-12)
    turning = shares[:, None] * np.array([[0.8, 0.2], [0.2, 0.8]])[np.arange(len(shares)) % 2]
    weights = values @ chain.away
    inner, _ = chain._gained(weights, other, turning)
    assert inner == pytest.approx(0.0, abs=1e-12)


def test_noise_in_an_almost_empty_group_stays_inside_the_other_functions_range():
    marginal, groups, shares = uniform()
    light = shares.copy()
    light[4] = 1e-7
    chain = chain_of(marginal, groups, light)
    table = np.outer(shares, [0.3, 0.7])
    found = chain.trend(marginal.means()[None], [np.array([[0.0, 1.0]])], [table])
    assert np.abs(found.gained).max() <= 0.5 * 3 * SIZE / BINS / 8
