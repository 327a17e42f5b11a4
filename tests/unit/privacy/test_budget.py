from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpsketch.privacy.budget import Budget, decimal_text


def test_epsilon_is_the_number_as_written() -> None:
    assert Budget(0.1).exact_epsilon == Fraction(1, 10)
    assert sum(Budget(0.1).exact_epsilon for _ in range(10)) == 1
    assert Budget(1).exact_epsilon == 1
    assert not Budget(float("inf")).private
    assert Budget(np.float64(0.5)).exact_epsilon == Fraction(1, 2)


def test_decimal_text() -> None:
    texts = {
        "0.125": Fraction(1, 8),
        "1": Fraction(1),
        "1/3": Fraction(1, 3),
        "0.05": Fraction(1, 20),
        "10": Fraction(10),
    }
    assert {decimal_text(value): value for value in texts.values()} == texts
    assert decimal_text(Fraction(-3, 2)) == "-1.5"
