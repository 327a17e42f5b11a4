"""Arithmetic on answers carries their errors, and never makes them smaller than some correlation allows."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.learn.answer import Answer

DAY = np.timedelta64(1, "D")


def dated(text: str, days: int) -> Answer:
    return Answer(np.datetime64(text, "us"), np.timedelta64(days * 86_400_000_000, "us"))


def test_numbers_are_exact() -> None:
    answer = Answer(38.6, 0.1, "count", laplace=True)
    for made, value, stderr in (
        (answer + 2, 40.6, 0.1),
        (2 + answer, 40.6, 0.1),
        (answer - 2, 36.6, 0.1),
        (2 - answer, -36.6, 0.1),
        (-answer, -38.6, 0.1),
        (answer * -10, -386, 1.0),
        (np.float64(10) * answer, 386, 1.0),
        (answer / -4, -9.65, 0.025),
        (sum([answer, answer]), 77.2, 0.2),
    ):
        assert (made.value, made.stderr) == pytest.approx((value, stderr))
        assert made.laplace
        assert isinstance(made.value, float)
    assert (answer * 2).how == "count"


def test_what_is_possible_is_computed_too() -> None:
    share = Answer(0.9, 0.05, raw=0.9, possible=(0.0, 1.0))
    assert (100 * share).possible == (0.0, 100.0)
    assert (1 - share).possible == pytest.approx((0.0, 1.0))
    assert (share * share).possible == (0.0, 1.0)
    assert (share / share).possible == (0.0, np.inf)
    assert (1 / share).possible == (1.0, np.inf)
    assert (share / -2).possible == (-0.5, 0.0)
    assert (share - share).possible == (-1.0, 1.0)
    count = Answer(5.0, 2.0, possible=(0.0, np.inf))
    assert (count * 0).possible == (0.0, 0.0)
    assert (-count).possible == (-np.inf, 0.0)


def test_estimates_add_up_before_they_are_moved_into_what_is_possible() -> None:
    few = Answer(0.0, 3.0, raw=-4.0, possible=(0.0, np.inf))
    some = Answer(10.0, 3.0, possible=(0.0, np.inf))
    assert (few + some).value == 6.0
    assert ((few + few).value, (few + few).raw) == (0.0, -8.0)


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_no_correlation_gives_a_larger_error(correlation: float, rng: np.random.Generator) -> None:
    """Two estimates with noise of every correlation: the spread of what is computed stays within the stated error."""
    one, two = Answer(3.0, 0.4), Answer(-5.0, 0.5)
    noise = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], 100_000).T
    left, right = one.value + one.stderr * noise[0], two.value + two.stderr * noise[1]
    for made, spread in (
        (one + two, np.std(left + right)),
        (one - two, np.std(left - right)),
        (one * two, np.std(left * right)),
        (one / two, np.std(left / right)),
    ):
        assert made.stderr >= 0.99 * spread
    near_zero = Answer(0.0, 0.4) * Answer(0.0, 0.5)
    assert near_zero.stderr >= 0.99 * np.std(0.4 * noise[0] * 0.5 * noise[1])


def test_some_correlation_attains_the_error(rng: np.random.Generator) -> None:
    one, noise = Answer(3.0, 0.01), rng.normal(size=100_000)
    moved = one.value + one.stderr * noise
    for made, values in ((one + one, moved + moved), (one * one, moved * moved), (one / Answer(9.0, 0.0), moved / 9)):
        assert made.stderr == pytest.approx(np.std(values), rel=0.02)


def test_a_ratio_to_a_number_near_zero_is_not_known() -> None:
    near_zero = Answer(1.0, 0.6)
    for ratio in (Answer(3.0, 0.1) / near_zero, 3 / near_zero):
        assert not ratio.known
        assert "the denominator is not significantly different from zero" in str(ratio.explain())
    assert (3 / Answer(1.0, 0.4)).stderr > 3 * 0.4  # Fieller's interval is wider
    for nothing in (Answer(0.0, 1.0), Answer(0.0, 0.0)):
        for ratio in (1 / nothing, near_zero / nothing):
            assert not ratio.known
            assert ratio.stderr == np.inf
    with pytest.raises(ZeroDivisionError):
        near_zero / 0


def test_what_is_not_known_stays_so() -> None:
    unknown = Answer(np.nan, 9.0, raw=12.0, possible=(0.0, 1.0), reason="too few")
    for made in (unknown + 1, 1 - unknown, unknown * 2, unknown + Answer(2.0, 0.1), Answer(2.0, 0.1) / unknown):
        assert made.reason == "too few"
        assert np.isnan(made.value)
        assert not made.known
    assert str(unknown + 1) == "not known (1 to 2)"


def test_entries_of_an_array() -> None:
    counts = Answer(np.array([10.0, 20.0]), np.array([1.0, 2.0]), labels=("a", "b"), possible=(0.0, np.inf))
    shares = counts / Answer(40.0, 0.0)
    np.testing.assert_allclose(shares.value, [0.25, 0.5])
    np.testing.assert_allclose(shares.stderr, [0.025, 0.05])
    assert shares.labels == ("a", "b")
    np.testing.assert_allclose((np.array([2.0, 3.0]) * counts).value, [20, 60])
    half = Answer(np.array([np.nan, 20.0]), np.array([9.0, 2.0]), raw=np.array([1.0, 20.0]), reason="too few")
    assert (half + 1).known.tolist() == [False, True]


def test_dates_differ_by_spans_of_time() -> None:
    one, two = dated("2024-03-01", 2), dated("2024-02-01", 1)
    between = one - two
    assert between.value / DAY == 29
    assert str(between) == "29.0 ± 3 days"
    assert str(two - one) == "-29.0 ± 3 days"
    assert between.interval()[0] / DAY == pytest.approx(29 - 1.96 * 3, abs=0.01)
    assert ((one - two) / DAY).value == 29.0
    assert str(one + timedelta(days=1)).startswith("2024-03-02 00:00 ± 2 days")
    assert (one - np.datetime64("2024-02-28")).value / DAY == 2
    bounded = Answer(one.value, one.stderr, possible=(np.datetime64("2020-01-01", "us"), np.datetime64("2025", "us")))
    assert (bounded - bounded).possible[1] / DAY == 1827
    assert str(bounded + timedelta(days=366)).startswith("2025-03-02")
    for wrong in (lambda: one + two, lambda: one * 2, lambda: 2 / one, lambda: -one):
        with pytest.raises(TypeError):
            wrong()


def test_there_is_no_order_and_no_other_arithmetic() -> None:
    answer = Answer(1.0, 0.1)
    for wrong in (lambda: answer < 2, lambda: answer >= 2, lambda: answer + "a", lambda: answer * True):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError):
        np.sqrt(answer)


def test_formats_keep_the_error() -> None:
    answer = Answer(1234.567, 0.1049)
    assert f"{answer}" == "1,234.57 ± 0.1"
    assert f"{answer:.2f}" == "1234.57 ± 0.10"
    assert f"{answer:,.1f}" == "1,234.6 ± 0.1"
    assert f"{answer:+.1f}" == "+1234.6 ± 0.1"
    assert f"{answer:>20.2f}" == "      1234.57 ± 0.10"
    assert f"{answer:*<18}" == "1,234.57 ± 0.1****"
    assert f"{Answer(0.5, 0.01):.1%}" == "50.0% ± 1.0%"
    assert f"{dated('2024-03-01', 2):%d %b %Y}" == "01 Mar 2024 ± 2 days"
    unknown = Answer(np.nan, 9.0, possible=(0.0, 1.0), reason="too few")
    assert f"{unknown:.2f}" == "not known (0 to 1)"


def test_floats_are_values() -> None:
    assert float(Answer(2.5, 0.1)) == 2.5
    assert np.isnan(float(Answer(np.nan, 9.0, reason="too few")))
    for answer in (Answer(np.ones(2), np.ones(2)), dated("2024-03-01", 2)):
        with pytest.raises(TypeError, match="is not a number"):
            float(answer)


def test_answers_of_a_view(view: dps.View) -> None:
    """The error of a statement takes the correlation into account and is at most that of the arithmetic."""
    difference = view.sum("weight") - view.sum("height")
    (row,) = view.sql("select sum(weight) - sum(height) as d from sketch")
    assert difference.value == pytest.approx(row["d"].value, abs=3 * difference.stderr)
    assert row["d"].stderr <= difference.stderr
    counts = view.histogram("city") / view.count()
    np.testing.assert_allclose(counts.value.sum(), 1.0, atol=0.02)
