from __future__ import annotations

import numpy as np

from dpsketch.noise.lazy_bits import Exactly, Interval, extended, wrapped


class Counting:
    def words(self, count: int) -> np.ndarray:
        return np.arange(1, count + 1, dtype=np.uint32)


def test_an_interval_rounds_only_inside_one_cell() -> None:
    assert Interval(5, 5, 1).rounded() == 3  # 2.5, a tie, goes up
    assert Interval(3, 4, 1).rounded() == 2
    assert Interval(4, 5, 1).rounded() is None
    assert Interval(7, 7, 0).rounded() == 7
    assert Interval(0, 1, 63).rounded() == 0
    assert Interval(3, 5, 2).times(Interval(1, 2, 1)) == Interval(3, 10, 3)


def test_a_double_is_exact() -> None:
    assert Exactly(0.75).interval() == Interval(3, 3, 2)
    assert Exactly(2.0**40).interval() == Interval(2**40, 2**40, 0)


def test_bits_are_appended() -> None:
    assert extended(5, Counting()) == (5 << 64) | (1 << 32) | 2


def test_entries_wrap_as_sums_do() -> None:
    assert [wrapped(entry) for entry in (5, -5, 2**63, -(2**63) - 1, 2**64 + 7)] == [5, -5, -(2**63), 2**63 - 1, 7]
