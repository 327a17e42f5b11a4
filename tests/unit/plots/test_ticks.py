"""Ticks are round, inside the axis, and not too many."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.plots.picture import ASINH, DATE, LINEAR, LOG, NAMES, Axis
from dpsketch.plots.ticks import number_label, ticks_of


def texts(axis: Axis, low: float, high: float, most: int = 6) -> list[str]:
    return [text for _, text in ticks_of(axis, low, high, most)]


def moment(text: str) -> float:
    return float(np.datetime64(text, "us").astype(np.int64))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 120, ["0", "20", "40", "60", "80", "100", "120"]),
        (0.013, 0.019, ["0.013", "0.014", "0.015", "0.016", "0.017", "0.018", "0.019"]),
        (-3, 9, ["-2", "0", "2", "4", "6", "8"]),
        (0, 2_000_000, ["0", "500,000", "1,000,000", "1,500,000", "2,000,000"]),
        (5, 5, ["5"]),
    ],
)
def test_linear(low: float, high: float, expected: list[str]) -> None:
    assert texts(Axis(scale=LINEAR), low, high) == expected


def test_logarithms() -> None:
    assert texts(Axis(scale=LOG), 1, 1e6, 8) == ["1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"]
    assert texts(Axis(scale=LOG), 1, 1e6, 4) == ["1", "100", "10,000", "1,000,000"]
    assert texts(Axis(scale=LOG), 3, 70) == ["5", "10", "20", "50"]
    assert texts(Axis(scale=LOG), 2e-4, 2e-2, 4) == ["0.001", "0.01"]
    assert texts(Axis(scale=LOG), 30, 40, 5) == ["30", "32", "34", "36", "38", "40"]


def test_inverse_sines_have_a_zero() -> None:
    found = ticks_of(Axis(scale=ASINH), -1000, 1e6, 8)
    assert [text for _, text in found] == ["-1,000", "-10", "0", "10", "1,000", "100,000"]


def test_dates() -> None:
    axis = Axis(scale=DATE)
    assert texts(axis, moment("2000-01-01"), moment("2020-01-01"), 5) == ["2000", "2005", "2010", "2015", "2020"]
    assert texts(axis, moment("2019-12-05"), moment("2020-08-01"), 5) == ["2020-01", "2020-03", "2020-05", "2020-07"]
    assert texts(axis, moment("2020-01-01"), moment("2020-01-11"), 6)[:2] == ["2020-01-01", "2020-01-03"]


def test_names_are_left_out_where_there_is_no_room() -> None:
    assert texts(Axis(scale=NAMES, names=tuple("abcdefg")), -0.5, 6.5, 4) == ["a", "c", "e", "g"]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-0.0, "0"), (0.25, "0.25"), (1500, "1,500"), (2e9, "2e+09"), (1e-5, "1e-05")]
)
def test_numbers(value: float, text: str) -> None:
    assert number_label(value) == text
