"""Shares of noise, and their sums, have the stated distributions, and these tests would notice others."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from conftest import Script, TestStream
from dpsketch.errors import BudgetError
from dpsketch.noise import discrete_gaussian as gaussian_module
from dpsketch.noise.discrete_gaussian import discrete_gaussian, exponentials
from dpsketch.noise.discrete_gaussian_kernel import fill_accepted
from dpsketch.noise.keystream import Keystream
from dpsketch.noise.lazy_choices import accepted, chosen, first_words
from dpsketch.noise.polya import _law, polya_difference
from dpsketch.noise.polya_kernel import fill_counts, fill_terms
from equal_cells import ALPHA, Cells

BY_CHANCE = 1e-9  # of tests whose randomness has no seed
DRAWS = 150_000


def cells_of(first: int, probabilities: NDArray[np.float64]) -> Cells:
    """Cells of a distribution on first, first + 1, …"""
    at_most = np.cumsum(probabilities)
    return Cells.of(
        lambda shares: first + np.searchsorted(at_most, shares), lambda ends: at_most[ends.astype(np.int64) - first]
    )


def polya_cells(scale: float, shape: float) -> Cells:
    """By the inverse Fourier transform of the characteristic function, Laplace's to the power `shape`."""
    size = 1 << max(10, int(np.ceil(np.log2(100 * scale + 100))))
    angles = 2 * np.pi * np.arange(size) / size
    a = np.exp(-1 / scale)
    law = np.fft.fftshift(
        np.fft.ifft((-np.expm1(-1 / scale)) ** (2 * shape) / np.abs(1 - a * np.exp(1j * angles)) ** (2 * shape)).real
    )
    return cells_of(-size // 2, np.clip(law, 0, None))


def gaussian_cells(variance: float) -> Cells:
    if variance > 1e9:
        deviation = np.sqrt(variance)
        return Cells.of(lambda share: deviation * ndtri(share), lambda k: ndtr((k + 0.5) / deviation))
    reach = int(12 * np.sqrt(variance)) + 10
    law = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    return cells_of(-reach, law / law.sum())


@pytest.mark.parametrize(("scale", "shares"), [(0.5, 2), (30, 3), (30, 1), (20_000, 4)])
def test_a_share_has_its_scale_and_shape(scale: float, shares: int) -> None:
    """A scale that is off by six percent, and another shape, are rejected."""
    stated, cells = Fraction(scale), polya_cells(scale, 1 / shares)
    assert cells.p_value(polya_difference(DRAWS, stated, shares, TestStream())) > ALPHA
    assert cells.p_value(polya_difference(DRAWS, stated, shares + 1, TestStream())) < ALPHA
    for wrong in (Fraction(94, 100), Fraction(106, 100)):
        assert cells.p_value(polya_difference(DRAWS, stated * wrong, shares, TestStream())) < ALPHA


@pytest.mark.parametrize(("scale", "shares"), [(1, 3), (1e8, 2), (Fraction(29, 3), 5)])
def test_shares_add_up_to_discrete_laplace_noise(scale: float | Fraction, shares: int) -> None:
    """One share more, or one less, does not."""
    law = scipy.stats.dlaplace(1 / float(scale))
    cells, stream = Cells.of(law.ppf, law.cdf), TestStream()
    drawn = [polya_difference(DRAWS, Fraction(scale), shares, stream) for _ in range(shares + 1)]
    assert cells.p_value(np.sum(drawn[:-1], axis=0)) > ALPHA
    assert cells.p_value(np.sum(drawn, axis=0)) < ALPHA
    assert cells.p_value(np.sum(drawn[:-2], axis=0)) < ALPHA


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(16), Fraction(1000, 3), Fraction(10**17)])
def test_the_discrete_gaussian_has_its_variance(variance: Fraction) -> None:
    cells = gaussian_cells(float(variance))
    assert cells.p_value(discrete_gaussian(DRAWS, variance, TestStream())) > ALPHA
    for wrong in (Fraction(90, 100), Fraction(110, 100)):
        assert cells.p_value(discrete_gaussian(DRAWS, variance * wrong, TestStream())) < ALPHA
    rounded = np.rint(TestStream()._rng.normal(0, 1.1 * float(variance) ** 0.5, DRAWS)).astype(np.int64)
    assert cells.p_value(rounded) < ALPHA


def test_gaussian_shares_add_up() -> None:
    """Three discrete Gaussians of variance 16 against one of variance 48: a test cannot see the difference."""
    cells, stream = gaussian_cells(48), TestStream()
    drawn = [discrete_gaussian(DRAWS, Fraction(16), stream) for _ in range(4)]
    assert cells.p_value(np.sum(drawn[:-1], axis=0)) > ALPHA
    assert cells.p_value(np.sum(drawn, axis=0)) < ALPHA


def test_the_real_keystream_gives_the_same_distributions() -> None:
    assert polya_cells(30, 1 / 3).p_value(polya_difference(DRAWS, Fraction(30), 3, Keystream())) > BY_CHANCE
    assert gaussian_cells(30).p_value(discrete_gaussian(DRAWS, Fraction(30), Keystream())) > BY_CHANCE


def test_entries_and_shares_are_independent() -> None:
    for drawn in (
        polya_difference(200_000, Fraction(50), 3, TestStream()).reshape(-1, 2),
        discrete_gaussian(200_000, Fraction(50), TestStream()).reshape(-1, 2),
    ):
        signs = np.sign(drawn)
        table = [[np.sum((signs[:, 0] == a) & (signs[:, 1] == b)) for a in (-1, 0, 1)] for b in (-1, 0, 1)]
        assert scipy.stats.chi2_contingency(table).pvalue > ALPHA


@pytest.mark.parametrize(("scale", "shares"), [(0.7, 3), (40, 3), (2.0**50, 1)])
def test_the_kernels_agree_with_high_precision(scale: float, shares: int, rng: np.random.Generator) -> None:
    """Where a word decides, the exact computation gives the same; at a bound, no word decides."""
    law = _law(Fraction(scale), shares)
    edges = [int(bound) + off for bound in (*law.counts, *law.octaves) for off in (-1, 0, 1)]
    edges = [edges[place] for place in rng.choice(len(edges), min(len(edges), 60), replace=False)]
    words = [word for word in edges if 0 <= word < 2**64] + rng.integers(0, 2**64, 40, np.uint64).tolist()
    counts, undecided = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    left = fill_counts(np.array(words, np.uint64), law.counts, law.count_guide, counts, undecided)
    assert left == sum(word in set(law.counts.tolist()) for word in words)
    for place in set(range(len(words))) - set(undecided[:left].tolist()):
        assert law.count_of(words[place], Script()) == counts[place]
    decided = 0
    for word in words:
        others = rng.integers(0, 2**64, 2, np.uint64).tolist()
        others[1] >>= int(rng.integers(0, 70)) if rng.random() < 0.3 else 0
        terms = np.zeros(1, np.int64)
        taken, filled = fill_terms(
            np.array([word, *others], np.uint64), 0, law.octaves, law.octave_guide, law.powers, terms, 0
        )
        if taken or filled:
            decided += 1
            assert law.term_of([word, *others], Script()) == (int(terms[0]) if filled else None)
    assert decided > len(words) / 3


@pytest.mark.parametrize("variance", [Fraction(16), Fraction(10**7, 3), Fraction(2**99 + 1)])
def test_acceptance_agrees_with_high_precision(variance: Fraction, rng: np.random.Generator) -> None:
    scale = int(float(variance) ** 0.5) + 1
    drawn = np.rint(rng.laplace(0, scale, 300) * np.geomspace(1, 8, 300)).astype(np.int64)
    words = rng.integers(0, 2**64, 300, np.uint64)
    words[::3] >>= rng.integers(0, 60, 100).astype(np.uint64)
    shares = [gaussian_module._share(mp(), int(value), variance, scale) for value in drawn]
    words[::5] = [min(int(share * 2**64), 2**64 - 1) for share in shares[::5]]  # as close as a word can be
    undecided = 0
    for value, word, share in zip(drawn, words, shares, strict=True):
        noise = np.zeros(1, np.int64)
        taken, filled = fill_accepted(
            np.array([value]),
            np.array([word]),
            0,
            float(variance / scale),
            float(1 / (2 * variance)),
            exponentials(),
            noise,
            0,
        )
        undecided += not taken and not filled
        if taken or filled:
            assert bool(filled) == (int(word) + 0.5 < share * 2**64)
    assert undecided >= 55


@cache
def mp() -> object:
    import mpmath

    context = mpmath.MPContext()
    context.prec = 300
    return context


def test_a_word_at_a_bound_draws_more_bits() -> None:
    """One third: every further word decides it, and only one of them changes the choice."""
    weight, total = (lambda exact, d: exact.mpf(1) / 3), (lambda exact: exact.mpf(1))
    third = 2**64 // 3
    assert [int(bound) for bound in first_words(weight, total)[:2]] == [third, 2 * 2**64 // 3]
    assert chosen(third, weight, total, Script(0, 0)) == 0
    assert chosen(third, weight, total, Script(2**31, 0)) == 1
    edge = Script(0x55555555, 0x55555555, 2**32 - 1, 0)
    assert chosen(third, weight, total, edge) == 1
    assert edge.left == 0
    below = Script(0x55555555, 0x55555555, 0, 0)
    assert accepted(third, lambda exact: exact.mpf(1) / 3, below)
    assert below.left == 0
    assert not accepted(third, lambda exact: exact.mpf(1) / 3, Script(0x55555556, 0))


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**51)])
def test_scales_out_of_range_are_refused(scale: Fraction) -> None:
    with pytest.raises(BudgetError, match="noise"):
        polya_difference(1, scale, 3, TestStream())
    with pytest.raises(BudgetError, match="standard deviation"):
        discrete_gaussian(1, scale * abs(scale), TestStream())


def test_no_numbers_take_no_time() -> None:
    assert len(polya_difference(0, Fraction(3), 3, TestStream())) == 0
    assert len(discrete_gaussian(0, Fraction(3), TestStream())) == 0
