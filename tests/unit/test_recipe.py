"""Rules that choose sizes and shares from public numbers."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import minimize_scalar

import dpsketch as dps
from conftest import MIXED
from dpsketch.recipe import LEAST_COUNT_SHARE, MOST_COUNT_SHARE, count_share


def noise_to_signal(share: float, signal: float, frequencies: int) -> float:
    """compressive L. 27 with its L. 28: A/s² of the count, C/γ² of the sums with ‖z‖² = m, less their product's 1."""
    count, sums = (signal * share) ** -2, 8 * frequencies**2 * (signal * (1 - share)) ** -2
    return count + sums + count * sums


@pytest.mark.parametrize("frequencies", [1, 3, 20, 150, 300])
@pytest.mark.parametrize("signal", [0.01, 1, 5, 30, 1e3, 1e5, 1e9])
def test_the_counts_share_minimises_the_noise_to_signal_ratio(signal: float, frequencies: int) -> None:
    least = minimize_scalar(
        lambda share: math.log(noise_to_signal(share, signal, frequencies)),
        bounds=(LEAST_COUNT_SHARE, MOST_COUNT_SHARE),
        method="bounded",
        options={"xatol": 1e-9},
    )
    share = count_share(1000, signal / 1000, frequencies)
    assert share == pytest.approx(least.x, abs=2e-4)
    assert LEAST_COUNT_SHARE <= share <= MOST_COUNT_SHARE


@pytest.mark.parametrize("signal", [10, 30, 100, 500])
def test_the_papers_rule_holds_where_the_sums_are_lost_in_noise(signal: float) -> None:
    """Its closed form (App. E), and its approximation for many rows, come out with more frequencies than rows·ε."""
    a = signal**-2
    e = ((27 * a + 3 * math.sqrt(81 * a**2 + 96 * a**3)) / 2) ** (1 / 3)
    share = count_share(1, signal, frequencies=10**6)
    assert share == pytest.approx(e / 3 - 2 * a / e, abs=1e-4)
    assert share == pytest.approx(signal ** (-2 / 3), rel=0.2)


def test_more_rows_than_the_paper_needs_do_not_take_the_count_away() -> None:
    few, many = count_share(10**4, 1.0, 100), count_share(10**9, 1.0, 100)
    assert few == pytest.approx(many, rel=0.01)
    assert many > 100 * 1e9 ** (-2 / 3)


def test_frequencies_follow_from_rows_and_epsilon() -> None:
    assert count_share(100_000, 1.0) == count_share(100_000, 1.0, 500) == 0.01
    assert count_share(1000, 1.0) == count_share(1000, 1.0, 20)
    assert count_share(1000, math.inf, 20) == count_share(10**9, 100.0, 20)


def test_the_counts_share_adds_up_with_the_rest() -> None:
    for rows in (10, 100, 1000, 10_000):
        share = count_share(rows, 1.0)
        dps.Recipe([dps.Part(dps.Count(), share), dps.Part(dps.Fourier(size=20), round(1 - share, 4))])


def test_the_general_recipe_takes_every_kind_of_budget() -> None:
    schema = dps.Schema.from_dict(MIXED)
    pure = dps.Recipe.general(schema, 100_000, dps.Budget(1.0))
    assert dps.Recipe.general(schema, 100_000, dps.Budget(rho=0.5)) == pure
    assert dps.Recipe.general(schema, 100_000, dps.Budget(1.0, delta=1e-6)) == pure
    assert dps.Recipe.general(schema, 100_000, dps.Budget(math.inf)).parts[0].share == 0.03
