from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from conftest import Script
from dpsketch.errors import BudgetError
from dpsketch.noise import laplace as noise
from dpsketch.noise.laplace import discrete_laplace


def exact_digit(rate: Fraction, last: bool, point: Fraction) -> int:
    """Inversion by brute force in high precision."""
    with mpmath.workprec(400):
        target, q = (
            mpmath.mpf(point.numerator) / point.denominator,
            mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator),
        )
        whole = 1 if last else 1 - q**256
        digit = 0
        while (1 - q ** (digit + 1)) / whole <= target:
            digit += 1
        return digit


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(1000), Fraction(10**8, 7)])
def test_every_word_gives_the_digit_that_inversion_gives(scale: Fraction, rng: np.random.Generator) -> None:
    """Words inside, and on both sides of, every threshold; undecided words are resolved with more bits."""
    for digit in noise._digits(scale):
        edges = digit.bounds[:: max(1, 256 // 12)].astype(np.int64)
        words = np.unique(
            np.clip(np.concatenate([edges - 1, edges, edges + 1, rng.integers(0, 2**32, 30)]), 0, 2**32 - 1)
        )
        for word in words.tolist():
            more = (rng.integers(0, 2**32), rng.integers(0, 2**32))
            drawn = digit.resolve(word, Script(*more, *([5] * 40)))
            decided = {exact_digit(digit.rate, digit.last, Fraction(word + side, 2**32)) for side in (0, 1)
                       if word + side < 2**32}  # fmt: skip
            if len(decided) == 1 and word < 2**32 - 1:
                assert drawn in decided
            else:
                point = Fraction((word << 64) | (int(more[0]) << 32) | int(more[1]), 2**96)
                assert drawn == exact_digit(digit.rate, digit.last, point)


def test_a_tie_draws_more_bits_and_both_outcomes_occur() -> None:
    scale = Fraction(2)
    (digit,) = noise._digits(scale)
    tie = int(digit.bounds[3])
    low, high = Script(tie, 0, 0, 0), Script(tie, 0, 2**32 - 1, 2**32 - 1)
    assert discrete_laplace(1, scale, low).tolist() == [3]
    assert discrete_laplace(1, scale, high).tolist() == [4]
    assert low.left == high.left == 0


def test_a_tie_in_the_subtracted_number() -> None:
    scale = Fraction(2)
    tie = int(noise._digits(scale)[0].bounds[3])
    assert discrete_laplace(1, scale, Script(0, tie, 0, 0)).tolist() == [-3]


def test_the_tail_is_not_cut() -> None:
    """All ones for a long time: a value far beyond 255."""
    ones = [2**32 - 1]
    value = discrete_laplace(1, Fraction(2), Script(*ones, 0, *(ones * 40), 0, 0, 7, 7)).tolist()[0]
    assert value > 800


def test_the_kernel_agrees_with_the_resolver(stream: object, rng: np.random.Generator) -> None:
    scale = Fraction(12345, 7)
    digits = noise._digits(scale)
    words = rng.integers(0, 2**32, 2 * len(digits) * 200, dtype=np.uint32)
    drawn = discrete_laplace(200, scale, Script(*words.tolist(), *([9] * 100)))
    for entry in range(0, 200, 7):
        expected = 0
        for block in range(2 * len(digits)):
            position = block % len(digits)
            value = digits[position].resolve(int(words[block * 200 + entry]), Script(*([9] * 100)))
            expected += (1 if block < len(digits) else -1) * value * 256**position
        assert drawn[entry] == expected


def test_the_tables_grow_with_the_scale() -> None:
    assert [len(noise._digits(Fraction(10) ** power)) for power in (0, 3, 6, 8, 12)] == [1, 2, 3, 4, 6]


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**51)])
def test_impossible_scales(scale: Fraction) -> None:
    with pytest.raises(BudgetError, match="noise scale must be above 0"):
        discrete_laplace(1, scale, Script())
