from __future__ import annotations

import numpy as np
import pytest

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer, Estimate, number_text, stacked


def test_the_chain_rule_matches_finite_differences(rng: np.random.Generator) -> None:
    """value(noise) is recomputed with each noise coordinate moved a little. Errors of ratios are slightly wider, by the
    squared relative error of the denominator, and those of roots, by half their relative error.
    """
    base, slopes = rng.uniform(2, 3, 4), 1e-4 * rng.normal(size=(4, 3))

    def compute(noise: np.ndarray, linear: bool) -> Estimate | float:
        numbers = base + slopes @ noise
        if not linear:
            a, b, c, d = numbers
            return float(np.sqrt((a * b - c) / d + a))
        a, b, c, d = (Estimate(numbers[i : i + 1], slopes[i : i + 1]) for i in range(4))
        return ((a * b - c) / d + a).root()

    estimate = compute(np.zeros(3), True)
    assert isinstance(estimate, Estimate)
    step = 1e-6
    for j in range(3):
        moved = (compute(step * np.eye(3)[j], False) - compute(-step * np.eye(3)[j], False)) / (2 * step)
        np.testing.assert_allclose(estimate.influence[0, j], moved, rtol=3e-4)
    np.testing.assert_allclose(estimate.stderr[0], np.linalg.norm(estimate.influence[0]))


@pytest.mark.parametrize("variance", [3.0, 4.0, 6.0, 100.0])
def test_two_errors_of_a_root_reach_to_the_root_two_errors_below(variance: float) -> None:
    root = Estimate(np.array([variance]), np.ones((1, 1))).root()
    assert root.value[0] - 2 * root.stderr[0] == pytest.approx(np.sqrt(variance - 2), abs=0.03)


def test_a_ratio_without_a_denominator_is_not_a_number() -> None:
    ratio = Estimate(np.array([1.0]), np.ones((1, 1))) / Estimate(np.array([-0.1]), np.ones((1, 1)))
    assert np.isnan(ratio.value[0])


def test_text_shows_the_digits_that_the_error_supports() -> None:
    assert number_text(1234.5678, 0.02) == "1,234.568"
    assert number_text(1234.5678, 30) == "1,235"
    assert number_text(1234.5678, 0) == "1,234.57"
    assert str(Answer(38.643, 0.13)) == "38.64 ± 0.13"
    assert str(Answer(147_347.0, 4712.0)) == "147,347 ± 4,700"
    assert str(Answer(1000.0, 99.6)) == "1,000 ± 100"
    moment = np.datetime64("2024-04-12T02:32:49", "us")
    for seconds, text in ((589_540, "6.8 days"), (9000, "2.5 hours"), (90, "1.5 minutes"), (0.5, "0.5 seconds")):
        answer = Answer(moment, np.timedelta64(int(seconds * 1e6), "us"))
        assert str(answer) == f"2024-04-12 02:32 ± {text}"


def test_intervals_are_by_level() -> None:
    answer = Answer(1.0, 0.5)
    assert answer.interval() == pytest.approx((1 - 0.98, 1 + 0.98), abs=1e-4)
    assert answer.interval(0.6827) == pytest.approx((0.5, 1.5), abs=1e-4)
    laplace = Answer(1.0, 0.5, laplace=True)
    half = 0.5 / np.sqrt(2) * np.log(20)
    assert laplace.interval() == pytest.approx((1 - half, 1 + half))
    share = Answer(0.01, 0.1, possible=(0.0, 1.0))
    assert share.interval() == (0.0, pytest.approx(0.206, abs=1e-3))
    low, high = Answer(np.array([0.0, np.nan]), np.array([1.0, 9.0]), possible=(-1.0, 1.0), reason="noise").interval()
    assert low.tolist() == [-1, -1]
    assert high.tolist() == [1, 1]


@pytest.mark.parametrize("level", [0, 1, -0.5, True, "0.95", float("nan")])
def test_levels_are_between_0_and_1(level: object) -> None:
    with pytest.raises(QueryError, match="between 0 and 1"):
        Answer(1.0, 0.5).interval(level)  # type: ignore[arg-type]


def test_a_factor_is_not_a_level() -> None:
    with pytest.raises(QueryError) as error:
        Answer(1.0, 0.5).interval(1.96)
    assert "level 0.95" in str(error.value.hint)


def test_intervals_of_dates_lie_inside_the_bounds() -> None:
    first, last = np.datetime64("2024-01-01", "us"), np.datetime64("2024-12-31", "us")
    day = np.timedelta64(86_400_000_000, "us")
    low, high = Answer(first + day, 2 * day, possible=(first, last)).interval()
    assert low == first
    assert high > first + 4 * day
    unknown = Answer(np.datetime64("NaT"), 400 * day, possible=(first, last), reason="noise")
    assert unknown.interval() == (first, last)
    assert str(unknown) == "not known (2024-01-01 00:00 to 2024-12-31 00:00)"


def test_text_of_what_is_not_known() -> None:
    for possible, text in (
        ((0.0, 110.0), "not known (0 to 110)"),
        ((0.0, 12345.6), "not known (0 to 12,346)"),
        ((0.0, np.inf), "not known (0 or more)"),
        ((-np.inf, 0.5), "not known (at most 0.5)"),
        ((-np.inf, np.inf), "not known"),
    ):
        assert str(Answer(np.nan, 1.0, possible=possible, reason="noise")) == text
    assert "not known: noise" in Answer(np.nan, 1.0, reason="noise").explain()


def test_two_errors_of_a_ratio_are_half_of_fiellers_interval() -> None:
    """A denominator of 5 ± 1 is between 3 and 7: one over it is between 1/7 and 1/3."""
    ratio = Estimate(np.ones(1), np.zeros((1, 1))) / Estimate(np.array([5.0]), np.ones((1, 1)))
    assert 2 * ratio.stderr[0] == pytest.approx((1 / 3 - 1 / 7) / 2)


def test_a_ratio_to_a_number_near_zero_has_no_finite_error() -> None:
    top, noise = Estimate(np.ones(3), np.zeros((3, 1))), np.ones((3, 1))
    ratio = top / Estimate(np.array([1.9, 2.1, 100.0]), noise)
    assert np.isfinite(ratio.stderr).tolist() == [False, True, True]
    assert ratio.stderr[1] > 10 / 2.1**2  # far more than linearised
    assert ratio.stderr[2] == pytest.approx(1e-4, rel=1e-3)
    negative = top.over(Estimate(np.array([-1.9, -2.1, -100.0]), noise))
    assert negative.value.tolist() == pytest.approx((-ratio.value).tolist())
    assert negative.stderr[1:].tolist() == pytest.approx(ratio.stderr[1:].tolist())


def test_what_follows_from_a_rough_estimate_is_rough() -> None:
    one, other = Estimate(np.ones(1), np.ones((1, 1)) / 9, rough=True), Estimate(np.ones(1), np.ones((1, 2)) / 9)
    for found in (one + other, other - one, one * other, other / one, stacked([one, other]), one.root(), one[:1]):
        assert found.rough
    assert not (other * other).rough


def test_a_clipped_estimate_is_no_farther_off_than_the_farther_bound() -> None:
    found = Estimate(np.array([0.0, 0.5, 2.0]), np.array([[12.0, 0.0], [0.3, 0.4], [3.0, 4.0]])).clipped(-1.0, 1.0)
    assert found.value.tolist() == [0.0, 0.5, 1.0]
    assert found.stderr == pytest.approx([1.0, 0.5, 2.0])


def test_text_of_very_large_and_very_precise_numbers() -> None:
    assert str(Answer(5.4e37, 4.3e37)) == "5.4e+37 ± 4.3e+37"
    assert str(Answer(100.0, 9e-14)) == "100 ± 9e-14"
