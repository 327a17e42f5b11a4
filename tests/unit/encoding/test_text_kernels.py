"""Kernels read usual spellings to the bits that the slower rules give, and leave all others to these rules."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsketch.encoding import arrow
from dpsketch.encoding.text_kernels import read_moments, read_numbers

CELLS = 20_000
FIXED = [
    "0",
    "-0",
    "0.0e5",
    "1.",
    ".",
    "+.5e-3",
    "1e",
    "1e+",
    "0x1",
    "inf",
    "nan",
    "5,5",
    "1_0",
    "٣",
    "0000000000000000000000000007",
    "1e400",
    "1e-400",
    "0e999",
    "+",
    "-",
    "e5",
    "1.2.3",
    "--1",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "1e22",
    "1e23",
    "8.5e-23",
    "1e9999999999999999999",
    " .5",
    "1 2",
    "",
    "\t7\n",
]


def ties(rng: random.Random) -> str:
    """A number close to the middle between two neighbouring floats, or exactly there."""
    bits = rng.getrandbits(52) | (1023 + rng.randrange(-60, 60)) << 52
    low, high = (struct.unpack("<d", struct.pack("<Q", each))[0] for each in (bits, bits + 1))
    middle = (Fraction(low) + Fraction(high)) / 2
    return f"{Decimal(middle.numerator) / Decimal(middle.denominator):.{rng.randrange(14, 20)}e}"


NUMBERS: list[Callable[[random.Random], str]] = [
    lambda rng: repr(rng.uniform(-1, 1) * 10 ** rng.randrange(-30, 30)),
    lambda rng: f"{rng.uniform(-100, 100):.{rng.randrange(20)}f}",
    lambda rng: f"{rng.getrandbits(rng.randrange(1, 70))}e{rng.randrange(-45, 45)}",
    lambda rng: "".join(rng.choice("0123456789.+-eE \t") for _ in range(rng.randrange(9))),
    lambda rng: str((1 << 53) + 2 * rng.getrandbits(40) + 1),
    lambda rng: rng.choice(FIXED),
    ties,
]


def moments(rng: random.Random) -> str:
    year = rng.choice([0, 1, 1582, 1600, 1900, 2000, 2004, 2023, 9999, rng.randrange(10_000)])
    text = f"{year:04d}-{rng.randrange(14):02d}-{rng.randrange(33):02d}"
    if rng.random() < 0.5:
        text += f"{rng.choice('T t_')}{rng.randrange(25):02d}:{rng.randrange(61):02d}:{rng.randrange(61):02d}"
    if rng.random() < 0.2:
        text += rng.choice(["Z", ".5", ".123456", "+02:00", " ", "x"])
    if rng.random() < 0.05:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice("0-:T x") + text[place + 1 :]
    return text


@pytest.fixture
def cells() -> random.Random:
    return random.Random(20)


def column(texts: list[str], rng: random.Random) -> pa.Array:
    """A slice of a column with some missing cells."""
    return pa.array([None if rng.random() < 0.01 else text.encode() for text in texts], pa.large_binary()).slice(7)


def test_numbers_are_the_same_bits(cells: random.Random) -> None:
    array = column([cells.choice(NUMBERS)(cells) for _ in range(CELLS)], cells)
    fast, slow = arrow._usual_spellings(array, dates=False), arrow._parsed_numbers(arrow.texts(array))
    assert np.array_equal(np.isnan(fast), np.isnan(slow))
    known = ~np.isnan(slow)
    assert 0.5 < known.mean() < 0.95
    assert np.array_equal(fast.view(np.int64)[known], slow.view(np.int64)[known])


def test_moments_are_the_same(cells: random.Random) -> None:
    array = column([moments(cells) for _ in range(CELLS)], cells)
    fast, slow = arrow._usual_spellings(array, dates=True), arrow._each(arrow.texts(array), arrow._moment)
    assert 0.4 < np.isfinite(slow).mean() < 0.9
    assert np.array_equal(fast, slow, equal_nan=True)


@pytest.mark.parametrize("dates", [False, True], ids=["numbers", "dates"])
def test_usual_spellings_are_decided_here(dates: bool, cells: random.Random) -> None:
    """Almost all cells that programs write: left to the slower rules, they would take five times as long."""
    if dates:
        texts = [datetime.fromtimestamp(cells.randrange(2**31)).isoformat(cells.choice("T ")) for _ in range(1000)]
    else:
        texts = [repr(cells.gauss(0, 10 ** cells.randrange(-9, 9))) for _ in range(1000)]
    array = pa.array(texts, pa.large_binary())
    offsets, data = np.frombuffer(array.buffers()[1], np.int64), np.frombuffer(array.buffers()[2], np.uint8)
    numbers, hard = np.full(1000, np.nan), np.ones(1000, np.bool_)
    if dates:
        read_moments(data, offsets, numbers, hard)
        assert not hard.any()
    else:
        read_numbers(data, offsets, numbers.view(np.int64), hard)
        assert hard.mean() < 0.01
        assert [number for number, left in zip(numbers.tolist(), hard, strict=True) if not left] == [
            float(text) for text, left in zip(texts, hard, strict=True) if not left
        ]
