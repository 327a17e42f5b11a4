from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

import mpmath
import numpy as np
import pytest

from conftest import Script, TestStream
from dpsketch.errors import BudgetError
from dpsketch.noise import bodies, gaussian
from dpsketch.noise.bodies import ball_noise, cube_noise, disc_noise

SAMPLERS = [disc_noise, cube_noise, ball_noise]
MASK = 2**32 - 1


def first(*words: int) -> list[int]:
    """The halves of 64-bit words that are drawn for many numbers at once."""
    return np.array(words, np.uint64).view(np.uint32).tolist()


def more(word: int) -> list[int]:
    """The halves of 64 more bits of one number."""
    return [word >> 32, word & MASK]


def rounded(number: Any) -> int:
    return int(mpmath.sign(number) * mpmath.floor(abs(number) + mpmath.mpf(1) / 2))


def reference(sampler: Callable[..., Any], size: int, scale: Fraction, words: np.ndarray) -> list[int]:
    """What the sampler returns, from the middle of the interval of every word, by mpmath."""
    count = 2 * size + 1 if sampler is disc_noise else size + 1
    numbers = [mpmath.ldexp(2 * int(word) + 1, -65) for word in words]
    radius = mpmath.mpf(scale.numerator) / scale.denominator * -sum(mpmath.log(number) for number in numbers[:count])
    # The top bit is the sign: a number above 1/2 is negative.
    signed = [2 * number if number < 0.5 else -(2 * number - 1) for number in numbers[count:]]
    if sampler is cube_noise:
        return [rounded(radius * number) for number in signed[:size]]
    pairs = [pair for pair in zip(signed[::2], signed[1::2], strict=True) if pair[0] ** 2 + pair[1] ** 2 < 1]
    return [rounded(radius * number) for pair in pairs[:size] for number in pair]


@pytest.mark.parametrize("sampler", [disc_noise, cube_noise])
@pytest.mark.parametrize("scale", [Fraction(1, 20), Fraction(1), Fraction(10**6, 7), Fraction(2**40)])
def test_every_entry_is_the_product_in_high_precision(sampler: Callable[..., Any], scale: Fraction) -> None:
    """At the largest scale a word decides nearly all, but a double hardly any."""
    with mpmath.workprec(200):
        for seed, size in enumerate([1, 1, 2, 3, 5, 8, 40]):
            drawn = TestStream(seed).words(2 * (2 * size + 1) + 4 * (size * 4 // 3 + 4) + 40)
            found = sampler(size, scale, Script(*drawn.tolist(), *[7] * 200))
            expected = reference(sampler, size, scale, drawn.view(np.uint64))
            assert found.tolist()[: len(expected)] == expected


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(10**6), Fraction(2**42, 3)])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_fast_path_changes_nothing(
    sampler: Callable[..., Any], scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of draws, once by doubles where they decide, once without: the kernels see a number far too large."""
    sizes = [1] * (40 if sampler is ball_noise else 1000) + [2, 3, 5, 8] * 20 + [70]
    quick = [sampler(size, scale, TestStream(seed)) for seed, size in enumerate(sizes)]
    for module in (bodies, gaussian):
        monkeypatch.setattr(module, "double", lambda number, stream: 2.0**200)
    slow = [sampler(size, scale, TestStream(seed)) for seed, size in enumerate(sizes)]
    assert all(np.array_equal(one, other) for one, other in zip(quick, slow, strict=True))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_words_give_the_same_noise(sampler: Callable[..., Any]) -> None:
    first_draw, again, other = (sampler(6, Fraction(1000), TestStream(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first_draw, again)
    assert not np.array_equal(first_draw, other)
    assert first_draw.dtype == np.int64
    assert first_draw.size == {disc_noise: 12, cube_noise: 6, ball_noise: 21}[sampler]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_many_chunks_repeat_nothing(sampler: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_CHUNK", 4)
    monkeypatch.setattr(gaussian, "_CHUNK", 4)
    drawn = sampler(40, Fraction(10**9), TestStream())
    assert np.unique(np.abs(drawn)).size == drawn.size


def boundary(words: list[int], rests: list[int]) -> tuple[int, int]:
    """The first 63 bits, and the 64 after them, of the u with r·u = 7/2, r = −ln of two uniforms of 128 bits."""
    with mpmath.workprec(500):
        uniforms = [mpmath.ldexp((word << 64) | rest, -128) for word, rest in zip(words, rests, strict=True)]
        u = mpmath.mpf(7) / 2 / -mpmath.log(uniforms[0] * uniforms[1])
        assert u < 1
        return divmod(int(mpmath.floor(mpmath.ldexp(u, 127))), 2**64)


WORDS, RESTS = [2**59 + 12345, 2**61 + 999], [2**63 + 17, 2**60 + 5]


@pytest.mark.parametrize(("aside", "entry"), [(-1000, 3), (1000, 4)])
@pytest.mark.parametrize("negative", [False, True])
def test_an_entry_next_to_a_half_draws_more_bits_of_everything(aside: int, entry: int, negative: bool) -> None:
    word, rest = boundary(WORDS, RESTS)
    word |= negative << 63
    stream = Script(*first(*WORDS, word), *more(rest + aside), *first(*RESTS))
    assert cube_noise(1, Fraction(1), stream).tolist() == [-entry if negative else entry]
    assert stream.left == 0


def test_an_entry_on_a_half_draws_still_more() -> None:
    word, rest = boundary(WORDS, RESTS)
    both = [*first(*WORDS, word), *more(rest), *first(*RESTS)]
    with pytest.raises(AssertionError, match="exhausted"):
        cube_noise(1, Fraction(1), Script(*both))
    stream = Script(*both, *more(2**63), *first(0, 0))
    assert cube_noise(1, Fraction(1), stream).tolist()[0] in (3, 4)
    assert stream.left == 0


def test_a_refined_radius_serves_the_entries_after() -> None:
    """Two entries on the same boundary: the second draws bits of its own alone."""
    word, rest = boundary(WORDS, RESTS)
    ones = 2**64 - 1
    stream = Script(
        *first(*WORDS, ones), *first(word, word), *more(rest - 10**6), *first(*RESTS, ones), *more(rest + 10**6)
    )
    assert cube_noise(2, Fraction(1), stream).tolist() == [3, 4]
    assert stream.left == 0


@pytest.mark.parametrize(("aside", "inside"), [(-10, True), (10, False)])
def test_a_candidate_next_to_the_circle_draws_more_bits(aside: int, inside: bool) -> None:
    x = 3 * 2**60 + 1001
    y = isqrt(4**63 - x**2)
    rest = isqrt(4**127 - (x << 64) ** 2) - (y << 64)
    radius = [2**60, 2**60, 2**60]
    later = [2**61, 2**60] * 4  # candidates well inside
    stream = Script(*first(*radius, x, y | 2**63, *later), *more(0), *more(rest + aside))
    with mpmath.workprec(200):
        r = 1000 * -3 * mpmath.log(mpmath.ldexp(1, -4))
        expected = [rounded(r * number / 2**63) for number in ((x, -y) if inside else (2**61, 2**60))]
    assert disc_noise(1, Fraction(1000), stream).tolist() == expected
    assert stream.left == 0


def test_a_candidate_on_the_circle_draws_still_more() -> None:
    x, y = 3 * 2**63 // 5, 4 * 2**63 // 5  # their cell holds (3/5, 4/5)
    rests = [3 * 2**127 // 5 - (x << 64), 4 * 2**127 // 5 - (y << 64)]
    stream = [*first(*[2**60] * 3, x, y, *[2**60] * 8), *more(rests[0]), *more(rests[1])]
    with pytest.raises(AssertionError, match="exhausted"):
        disc_noise(1, Fraction(1000), Script(*stream))
    decided = Script(*stream, *more(0), *more(0))
    assert disc_noise(1, Fraction(1000), decided).size == 2
    assert decided.left == 0


def test_a_uniform_of_zeros_gets_more_bits() -> None:
    """64 zeros leave the radius without an upper bound; the tail is not cut."""
    stream = Script(*first(0, 2**63), *first(2**63, 0), *first(2**63 - 1))
    with mpmath.workprec(200):
        expected = rounded(1000 * 66 * mpmath.log(2) * (1 - mpmath.ldexp(1, -63)))
    assert cube_noise(1, Fraction(1000), stream).tolist() == [expected]
    assert stream.left == 0


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 500])
def test_the_sum_of_logarithms_is_inside_its_interval(count: int, stream: TestStream) -> None:
    gamma = bodies._Gamma(count, stream)
    widths = []
    with mpmath.workprec(600):
        for bits in (64, 128, 192):
            gamma.refine(bits, stream)
            low, high, places = gamma.interval
            ends = [-sum(mpmath.log(mpmath.ldexp(n + up, -bits)) for n in gamma._drawn) for up in (1, 0)]
            assert mpmath.ldexp(low, -places) <= ends[0] <= ends[1] <= mpmath.ldexp(high, -places)
            widths.append(mpmath.ldexp(high - low, -places))
            assert widths[-1] < (ends[1] - ends[0]) * 1.01 + mpmath.ldexp(8, -places)
    assert widths[0] > 2**50 * widths[1] > 2**100 * widths[2]


def test_a_root_holds_its_square(stream: TestStream) -> None:
    gamma = bodies._Gamma(5, stream)
    low, high, places = bodies._Root(Fraction(200, 7), gamma).interval()
    least, most, _ = gamma.interval
    assert low**2 * 7 <= 200 * least << places
    assert high**2 * 7 >= 200 * most << places
    assert high - low < 2**40


def test_products_are_cut_outwards() -> None:
    factors = [2**64 - k for k in range(1, 100)]
    whole = 1
    for factor in factors:
        whole *= factor
    (least, cut), (most, cut_too) = (bodies._product(factors, 128, up) for up in (0, 1))
    assert least << cut <= whole <= most << cut_too
    assert (most << cut_too) - (least << cut) < whole >> 120


def test_noise_beyond_an_int64_wraps() -> None:
    """A vector so long that its radius exceeds 2^63: sums are added modulo 2^64."""
    drawn = cube_noise(2**15, bodies.MOST_SCALE, TestStream())
    assert np.abs(drawn.astype(float)).max() > 2.0**62


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**50 + 1)])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_impossible_scales(sampler: Callable[..., Any], scale: Fraction) -> None:
    with pytest.raises(BudgetError, match=r"noise scale must be above 0 and at most 1125899906842624"):
        sampler(1, scale, Script())
