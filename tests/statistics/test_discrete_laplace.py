"""The sampler has the stated distribution, and these tests would notice another one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
import scipy.stats

from conftest import TestStream
from dpsketch.privacy.keystream import Keystream
from dpsketch.privacy.noise import discrete_laplace

ALPHA = 1e-6  # of each test: about one false alarm in ten thousand runs of the suite
DRAWS = 1_000_000
SCALES = [Fraction(1, 2), Fraction(3), Fraction(100, 7), Fraction(1000), Fraction(10**6), Fraction(10**8)]

dp.enable_features("contrib")


def cell_edges(scale: float) -> np.ndarray:
    """Integer edges of about 60 cells of similar probability."""
    tail = scale * np.log(np.geomspace(1, 2000, 30))
    return np.unique(np.concatenate([-np.rint(tail), np.rint(tail) + 1]))


def cell_probabilities(scale: float, edges: np.ndarray) -> np.ndarray:
    """P(edge_i <= Z < edge_{i+1}) with open ends; P(Z < k) = e^{(k-1)/t}/(1+e^{-1/t}) for k <= 0, by symmetry above."""
    one = 1 / (1 + np.exp(-1 / scale))
    below = np.where(edges <= 0, one * np.exp((edges - 1) / scale), 1 - one * np.exp(-edges / scale))
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def p_value(draws: np.ndarray, scale: float) -> float:
    edges = cell_edges(scale)
    counts = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    return float(scipy.stats.chisquare(counts, cell_probabilities(scale, edges) * len(draws)).pvalue)


@pytest.mark.parametrize("scale", SCALES)
def test_accepts_the_scale_and_rejects_two_percent(scale: Fraction) -> None:
    draws = discrete_laplace(DRAWS, scale, TestStream())
    assert p_value(draws, float(scale)) > ALPHA
    assert p_value(draws, float(scale) * 1.02) < ALPHA
    assert p_value(draws, float(scale) / 1.02) < ALPHA
    assert p_value(draws + max(1, int(scale) // 30), float(scale)) < ALPHA


def test_the_real_keystream_gives_the_same_distribution() -> None:
    assert p_value(discrete_laplace(DRAWS, Fraction(30), Keystream()), 30.0) > ALPHA


@pytest.mark.parametrize("scale", [3, 1000])
def test_agrees_with_opendp(scale: int) -> None:
    """Two-sample chi-squared test against OpenDP's exact sampler; a wrong scale is rejected."""
    size = 40_000
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = np.array(dp.m.make_laplace(*space, scale=float(scale))([0] * size))
    edges = cell_edges(float(scale))

    def compare(ours: np.ndarray) -> float:
        table = [np.bincount(np.searchsorted(edges, x, side="right"), minlength=len(edges) + 1) for x in (ours, theirs)]
        return float(scipy.stats.chi2_contingency(np.array(table)[:, np.sum(table, axis=0) > 0]).pvalue)

    assert compare(discrete_laplace(size, Fraction(scale), TestStream())) > ALPHA
    assert compare(discrete_laplace(size, Fraction(scale) * 11 / 10, TestStream())) < ALPHA


def test_entries_are_independent() -> None:
    draws = discrete_laplace(200_000, Fraction(50), TestStream()).reshape(-1, 2)
    signs = np.sign(draws)
    table = [[np.sum((signs[:, 0] == a) & (signs[:, 1] == b)) for a in (-1, 0, 1)] for b in (-1, 0, 1)]
    assert scipy.stats.chi2_contingency(table).pvalue > ALPHA
    magnitude = np.abs(draws) > 35
    assert scipy.stats.chi2_contingency(
        [[np.sum((magnitude[:, 0] == a) & (magnitude[:, 1] == b)) for a in (0, 1)] for b in (0, 1)]
    ).pvalue > ALPHA  # fmt: skip
