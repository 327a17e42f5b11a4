from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, norm

from dpsketch.privacy import gaussian
from dpsketch.privacy.gaussian import CELLS, OCTAVES, quantile_table, resolve, rounded_gaussian
from dpsketch.privacy.gaussian_kernel import fill_rounded
from dpsketch.privacy.keystream import Keystream


class Words:
    """A stream that repeats given 64-bit words, then fails."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> NDArray[np.uint32]:
        taken = [self._words.pop(0) for _ in range(count // 2)]
        return np.array([half for word in taken for half in (word >> 32, word & 0xFFFFFFFF)], np.uint32)


@pytest.mark.parametrize("deviation", [0.3, 1.0, 2.5, 40.0])
def test_every_integer_has_its_probability(deviation: float) -> None:
    draws = rounded_gaussian(400_000, deviation, Keystream())
    reach = int(3 * deviation) + 1
    edges = np.arange(-reach, reach + 2) - 0.5
    shares = np.diff(norm.cdf(edges / deviation))
    expected = np.concatenate([[norm.cdf(edges[0] / deviation)], shares, [norm.sf(edges[-1] / deviation)]])
    found = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=len(expected))
    kept = expected * len(draws) > 5
    assert (
        chisquare(
            np.append(found[kept], found[~kept].sum()) + 1e-9,
            np.append(expected[kept], expected[~kept].sum()) * len(draws) + 1e-9,
        ).pvalue
        > 1e-4
    )


def test_the_tables_error_is_within_the_proof(rng: np.random.Generator) -> None:
    """Against quantiles in high precision, in every octave; the proof claims less than 2^-48 without the prefix."""
    table = quantile_table()
    worst = 0.0
    with mpmath.workprec(150):
        for octave in range(OCTAVES):
            for cell in (0, 1, CELLS // 2, CELLS - 1):
                for x in (-0.5, -0.49, 0.0, float(rng.uniform(-0.5, 0.5)), 0.4999):
                    tail = (
                        (mpmath.mpf(CELLS + cell) + mpmath.mpf(x) + mpmath.mpf(1) / 2)
                        / CELLS
                        * mpmath.mpf(2) ** (-2 - octave)
                    )
                    z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail)
                    found = 0.0
                    for coefficient in table.coefficients[octave * CELLS + cell][::-1]:
                        found = found * x + float(coefficient)
                    worst = max(worst, abs(float(found - z)))
    assert worst < 2.0**-48


@pytest.mark.parametrize("deviation", [0.01, 1.0, 777.7, 3e8])
def test_the_fast_path_agrees_with_high_precision(deviation: float, rng: np.random.Generator) -> None:
    table = quantile_table()
    words = rng.integers(0, 2**64, 300, dtype=np.uint64)
    words[:100] >>= rng.integers(0, 30, 100).astype(np.uint64)  # into the tail
    words[100:104] = [0, 2**63, 2**63 - 1, 2**64 - 1]
    noise, undecided = np.zeros(300, np.int64), np.empty(300, np.int64)
    count = fill_rounded(words, table.coefficients, table.errors, deviation, noise, undecided)
    left = set(undecided[:count].tolist())
    for place in set(range(300)) - left:
        assert resolve(int(words[place]), deviation, Words()) == noise[place]
    assert count < 40


def test_a_wrong_table_is_caught(rng: np.random.Generator) -> None:
    """The comparison above sees an error of one part in a million."""
    table = quantile_table()
    words = rng.integers(0, 2**64, 2000, dtype=np.uint64)
    noise, undecided = np.zeros(2000, np.int64), np.empty(2000, np.int64)
    fill_rounded(words, table.coefficients * (1 + 1e-6), table.errors, 1e6, noise, undecided)
    assert any(resolve(int(words[i]), 1e6, Keystream()) != noise[i] for i in range(20))


def test_a_boundary_draws_more_bits() -> None:
    """A prefix that holds Q(1/2σ) itself decides nothing; the bits after it do, both ways."""
    with mpmath.workprec(300):
        boundary = mpmath.erfc(mpmath.mpf(1) / 2 / mpmath.sqrt(2)) / 2  # between 0 and 1 for σ = 1
        word = int(mpmath.floor(boundary * 2**64))
        rest = int(mpmath.floor((boundary * 2**64 - word) * 2**64))
    assert resolve(word, 1.0, Words(rest + 10)) == 0
    assert resolve(word, 1.0, Words(rest - 10)) == 1
    assert resolve(word | 2**63, 1.0, Words(rest - 10)) == -1
    with pytest.raises(IndexError):
        resolve(word, 1.0, Words(rest))


def test_the_tail_is_not_cut_off() -> None:
    """Zero words reach far beyond what 64 bits can tell."""
    assert resolve(0, 1.0, Words(1)) > 12
    assert resolve(0, 1.0, Words(0, 0, 1)) > 17


@pytest.mark.parametrize("deviation", [0.0, -1.0, 2.0**41, float("nan"), float("inf")])
def test_deviations_out_of_range_are_refused(deviation: float) -> None:
    with pytest.raises(gaussian.BudgetError):
        rounded_gaussian(1, deviation, Keystream())
