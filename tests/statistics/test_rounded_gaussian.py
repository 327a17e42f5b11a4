"""The sampler has the stated distribution, bit by bit, and these tests would notice another one."""

from __future__ import annotations

from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from conftest import TestStream
from dpsketch.noise import gaussian
from dpsketch.noise.gaussian import CELLS, OCTAVES, quantile_table, resolve, rounded_gaussian
from dpsketch.noise.gaussian_kernel import fill_rounded
from dpsketch.noise.keystream import Keystream
from dpsketch.noise.lazy_bits import Exactly, Interval, double
from equal_cells import ALPHA, DRAWS, SCALES, Cells


class Words:
    """A stream that repeats given 64-bit words, then fails."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> NDArray[np.uint32]:
        taken = [self._words.pop(0) for _ in range(count // 2)]
        return np.array([half for word in taken for half in (word >> 32, word & 0xFFFFFFFF)], np.uint32)


@pytest.mark.parametrize("deviation", SCALES)
def test_accepts_the_deviation_and_rejects_two_percent(deviation: float) -> None:
    """The same test of as many draws accepts the stated σ and rejects a sampler that is off by two percent."""
    cells = Cells.of(lambda share: deviation * ndtri(share), lambda k: ndtr((k + 0.5) / deviation))
    draws = rounded_gaussian(DRAWS, deviation, TestStream())
    assert cells.p_value(draws) > ALPHA
    assert cells.p_value(rounded_gaussian(DRAWS, 0.98 * deviation, TestStream())) < ALPHA
    assert cells.p_value(rounded_gaussian(DRAWS, 1.02 * deviation, TestStream())) < ALPHA
    assert cells.p_value(draws + max(1, int(deviation) // 30)) < ALPHA


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
        word, known = int(words[place]), Exactly(deviation)
        tail = Interval(word & (2**63 - 1), (word & (2**63 - 1)) + 1, 64)
        assert resolve(word, known, Words()) == noise[place]
        assert gaussian._by_tails(tail, known.interval()) == abs(noise[place])
    assert count < 40


@pytest.mark.parametrize("bits", [64, 128, 192])
@pytest.mark.parametrize("deviation", [0.7, 1e9, 2.0**40, 2.0**57])
def test_the_polynomials_in_integers_agree_with_tail_probabilities(
    bits: int, deviation: float, rng: np.random.Generator
) -> None:
    decided = 0
    for octave in range(26):
        drawn = int.from_bytes(rng.bytes(bits // 8), "little") >> (octave + 1)
        tail, known = Interval(drawn, drawn + 1, bits), Exactly(deviation).interval()
        entry = gaussian._by_table(tail, known)
        if entry is not None:
            decided += 1
            assert entry == gaussian._by_tails(tail, known)
    assert decided >= (20 if bits > 64 else 3)


def test_the_polynomials_in_integers_are_within_their_error(rng: np.random.Generator) -> None:
    """z itself, at a deviation so large that rounding shows it to 100 places; the proof allows 2^-96."""
    with mpmath.workprec(300):
        for octave in (0, 1, 7, 23):
            drawn = (1 << (191 - octave - 1)) | (int.from_bytes(rng.bytes(24), "little") >> (octave + 2))
            places = gaussian._FINE_PLACES
            x = drawn & ((1 << (184 - octave)) - 1)
            z = 0
            for coefficient in gaussian._fine_coefficients(octave, (drawn >> (184 - octave)) - CELLS):
                z = ((z * (((x << places) >> (184 - octave)) - (1 << (places - 1)))) >> places) + coefficient
            exact = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.ldexp(drawn, -192))
            assert abs(mpmath.ldexp(z, -places) - exact) < mpmath.ldexp(1, -96)


@dataclass
class Vague:
    """A deviation just above 1, of which only as many bits are known as were asked for."""

    bits: int = 4

    def interval(self) -> Interval:
        return Interval(1 << self.bits, (1 << self.bits) + 1, self.bits)

    def refine(self, bits: int, stream: object) -> None:
        self.bits = max(bits, self.bits)


def test_a_vague_deviation_is_refined_until_it_decides() -> None:
    """A quantile of 0.49: times 1 it rounds to 0, times 1 + 2^-4 to 1."""
    with mpmath.workprec(200):
        tail = mpmath.erfc(mpmath.mpf(0.49) / mpmath.sqrt(2)) / 2
        word = int(mpmath.floor(tail * 2**64))
    assert resolve(word, Exactly(1.0625), Words(0)) == 1
    vague = Vague()
    assert resolve(word, vague, Words(0)) == 0
    assert vague.bits == 128
    assert double(Vague(), Keystream()) == 1.0


def test_a_wrong_table_is_caught(rng: np.random.Generator) -> None:
    """The comparison above sees an error of one part in a million."""
    table = quantile_table()
    words = rng.integers(0, 2**64, 2000, dtype=np.uint64)
    noise, undecided = np.zeros(2000, np.int64), np.empty(2000, np.int64)
    fill_rounded(words, table.coefficients * (1 + 1e-6), table.errors, 1e6, noise, undecided)
    assert any(resolve(int(words[i]), Exactly(1e6), TestStream()) != noise[i] for i in range(20))


def test_a_boundary_draws_more_bits() -> None:
    """A prefix that holds Q(1/2σ) itself decides nothing; the bits after it do, both ways."""
    with mpmath.workprec(300):
        boundary = mpmath.erfc(mpmath.mpf(1) / 2 / mpmath.sqrt(2)) / 2  # between 0 and 1 for σ = 1
        word = int(mpmath.floor(boundary * 2**64))
        rest = int(mpmath.floor((boundary * 2**64 - word) * 2**64))
    assert resolve(word, Exactly(1.0), Words(rest + 10)) == 0
    assert resolve(word, Exactly(1.0), Words(rest - 10)) == 1
    assert resolve(word | 2**63, Exactly(1.0), Words(rest - 10)) == -1
    with pytest.raises(IndexError):
        resolve(word, Exactly(1.0), Words(rest))


def test_the_tail_is_not_cut_off() -> None:
    """Zero words reach far beyond what 64 bits can tell."""
    assert resolve(0, Exactly(1.0), Words(1)) > 12
    assert resolve(0, Exactly(1.0), Words(0, 0, 1)) > 17


@pytest.mark.parametrize("deviation", [0.0, -1.0, 2.0**51, float("nan"), float("inf")])
def test_deviations_out_of_range_are_refused(deviation: float) -> None:
    with pytest.raises(gaussian.BudgetError):
        rounded_gaussian(1, deviation, Keystream())
