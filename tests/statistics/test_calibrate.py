from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from dp_accounting import get_sigma_gaussian

from dpsketch.errors import BudgetError
from dpsketch.privacy.analytic_gaussian import gaussian_deviation


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "5", "50"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-12"])
def test_the_deviation_is_the_analytic_one(epsilon: str, delta: str) -> None:
    found = gaussian_deviation(Fraction(epsilon), Fraction(delta), 1)
    theirs = get_sigma_gaussian(float(epsilon), float(delta))
    assert found == pytest.approx(theirs, rel=1e-3)


def test_the_known_value() -> None:
    assert gaussian_deviation(Fraction(1), Fraction(1, 10**6), 1) == pytest.approx(4.224679, abs=1e-6)


@pytest.mark.parametrize("l2_squared", [1, 7, 1073789908 * 500, 10**30])
def test_delta_is_met_and_hardly_more(l2_squared: int) -> None:
    deviation = gaussian_deviation(Fraction(1, 2), Fraction(1, 10**9), l2_squared)
    with mpmath.workprec(200):
        for factor, meets in ((1, True), (1 - mpmath.mpf(10) ** -12, False)):
            ratio = mpmath.sqrt(l2_squared) / (deviation * factor)
            spent = mpmath.ncdf(ratio / 2 - 0.5 / ratio) - mpmath.exp(0.5) * mpmath.ncdf(-ratio / 2 - 0.5 / ratio)
            assert (spent <= mpmath.mpf(10) ** -9) is meets


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(-1, 2)])
def test_deltas_out_of_range_are_refused(delta: Fraction) -> None:
    with pytest.raises(BudgetError, match="delta must be above 0"):
        gaussian_deviation(Fraction(1), delta, 1)
