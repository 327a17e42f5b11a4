"""The sampler has the stated distribution, and these tests would notice another one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
import scipy.stats

from conftest import TestStream
from dpsketch.noise.keystream import Keystream
from dpsketch.noise.laplace import discrete_laplace
from equal_cells import ALPHA, DRAWS, SCALES, Cells

BY_CHANCE = 1e-9  # of tests whose randomness has no seed, so that none fails in our lifetime

dp.enable_features("contrib")


def laplace_cells(scale: float) -> Cells:
    """SciPy's discrete Laplace distribution has nothing in common with our sampler."""
    law = scipy.stats.dlaplace(1 / scale)
    return Cells.of(law.ppf, law.cdf)


@pytest.mark.parametrize("scale", SCALES)
def test_accepts_the_scale_and_rejects_two_percent(scale: float) -> None:
    """The same test of as many draws accepts the stated scale and rejects a sampler that is off by two percent."""
    stated, cells = Fraction(scale), laplace_cells(scale)
    draws = discrete_laplace(DRAWS, stated, TestStream())
    assert cells.p_value(draws) > ALPHA
    assert cells.p_value(discrete_laplace(DRAWS, stated * 98 / 100, TestStream())) < ALPHA
    assert cells.p_value(discrete_laplace(DRAWS, stated * 102 / 100, TestStream())) < ALPHA
    assert cells.p_value(draws + max(1, int(scale) // 30)) < ALPHA


def test_the_real_keystream_gives_the_same_distribution() -> None:
    assert laplace_cells(30.0).p_value(discrete_laplace(DRAWS, Fraction(30), Keystream())) > BY_CHANCE


@pytest.mark.parametrize("scale", [3, 1000])
def test_agrees_with_opendp(scale: int) -> None:
    """Two-sample chi-squared test against OpenDP's exact sampler; a wrong scale is rejected."""
    size = 100_000
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = np.array(dp.m.make_laplace(*space, scale=float(scale))([0] * size))
    cells = laplace_cells(scale)

    def compare(ours: np.ndarray) -> float:
        return float(scipy.stats.chi2_contingency([cells.count(ours), cells.count(theirs)]).pvalue)

    assert compare(discrete_laplace(size, Fraction(scale), TestStream())) > BY_CHANCE
    assert compare(discrete_laplace(size, Fraction(scale) * 11 / 10, TestStream())) < BY_CHANCE


def test_entries_are_independent() -> None:
    draws = discrete_laplace(200_000, Fraction(50), TestStream()).reshape(-1, 2)
    signs = np.sign(draws)
    table = [[np.sum((signs[:, 0] == a) & (signs[:, 1] == b)) for a in (-1, 0, 1)] for b in (-1, 0, 1)]
    assert scipy.stats.chi2_contingency(table).pvalue > ALPHA
    magnitude = np.abs(draws) > 35
    assert scipy.stats.chi2_contingency(
        [[np.sum((magnitude[:, 0] == a) & (magnitude[:, 1] == b)) for a in (0, 1)] for b in (0, 1)]
    ).pvalue > ALPHA  # fmt: skip
