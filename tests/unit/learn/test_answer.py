from __future__ import annotations

import numpy as np
import pytest

from dpsketch.learn.answer import Answer, Estimate, number_text


def test_the_chain_rule_matches_finite_differences(rng: np.random.Generator) -> None:
    """value(noise) is recomputed with each noise coordinate moved a little."""
    base, slopes = rng.uniform(2, 3, 4), 0.01 * rng.normal(size=(4, 3))

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
        np.testing.assert_allclose(estimate.influence[0, j], moved, rtol=1e-5)
    np.testing.assert_allclose(estimate.stderr[0], np.linalg.norm(estimate.influence[0]))


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
    assert Answer(1.0, 0.5).interval() == (1 - 0.98, 1 + 0.98)


def test_a_clipped_estimate_is_no_farther_off_than_the_farther_bound() -> None:
    found = Estimate(np.array([0.0, 0.5, 2.0]), np.array([[12.0, 0.0], [0.3, 0.4], [3.0, 4.0]])).clipped(-1.0, 1.0)
    assert found.value.tolist() == [0.0, 0.5, 1.0]
    assert found.stderr == pytest.approx([1.0, 0.5, 2.0])


def test_text_of_very_large_and_very_precise_numbers() -> None:
    assert str(Answer(5.4e37, 4.3e37)) == "5.4e+37 ± 4.3e+37"
    assert str(Answer(100.0, 9e-14)) == "100 ± 9e-14"
