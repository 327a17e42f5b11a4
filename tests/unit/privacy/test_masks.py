"""Noise that counts on secret masks: against all masks one by one, at both ends of the rounding."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp, log

import numpy as np
import pytest

from dpsketch.privacy.events import Mechanism, Noise, Release
from dpsketch.privacy.masks import Masks


def over_all_masks(features: list[int], rate: float, scale: float) -> float:
    """ln E_h exp(‖Φ_h‖₁/b), mask by mask."""
    total = 0.0
    for mask in product((0, 1), repeat=len(features)):
        chance = float(np.prod([rate if kept else 1 - rate for kept in mask]))
        total += chance * exp(sum(norm for norm, kept in zip(features, mask, strict=True) if kept) / scale)
    return log(total)


@pytest.mark.parametrize("rate", [Fraction(1, 10), Fraction(1, 2), Fraction(1)])
@pytest.mark.parametrize("scale", [3, 40, 1000])
def test_equal_features_attain_the_bound(rate: Fraction, scale: int) -> None:
    found = Masks(7, rate).epsilon(35, Fraction(scale))
    assert float(found) == pytest.approx(over_all_masks([7] * 5, float(rate), scale), rel=1e-9)


def test_no_features_within_the_norms_exceed_the_bound(rng: np.random.Generator) -> None:
    """Features of at most 9 each and 30 together."""
    worst = 0.0
    for _ in range(300):
        features = rng.integers(0, 10, 6)
        while features.sum() > 30:
            features[rng.integers(6)] //= 2
        scale = float(rng.uniform(2, 60))
        limit = float(Masks(9, Fraction(1, 5)).epsilon(30, Fraction(scale)))
        found = over_all_masks(features.tolist(), 0.2, scale)
        assert found <= limit * (1 + 1e-9)
        worst = max(worst, found / limit)
    assert worst > 0.8


@pytest.mark.parametrize("epsilon", ["1/1000000000000", "1/1000", "9/10", "3", "100"])
@pytest.mark.parametrize("rate", [Fraction(1, 2**32), Fraction(1, 10), Fraction(2**32 - 1, 2**32), Fraction(1)])
@pytest.mark.parametrize(("largest", "l1"), [(2, 400), (1 << 40, 1 << 45), (5, 3)])
def test_a_scale_keeps_its_epsilon_and_is_nearly_the_smallest(
    epsilon: str, rate: Fraction, largest: int, l1: int
) -> None:
    masks, wanted = Masks(largest, rate), Fraction(epsilon)
    scale = masks.scale(l1, wanted)
    assert masks.epsilon(l1, scale) <= wanted
    assert scale <= l1 / wanted
    if largest < l1:
        assert masks.epsilon(l1, scale * Fraction(99, 100)) > wanted


def test_rounding_is_upwards() -> None:
    """The bound on ε in exact fractions, by a series of e^x and one of ln that are cut on the safe side."""
    masks, l1, scale = Masks(1, Fraction(1, 3)), 2, Fraction(10)
    power, term = Fraction(0), Fraction(1)
    for place in range(1, 40):
        term *= masks.largest / scale / place
        power += term  # below e^(c/b) − 1
    growth = masks.rate * power
    logarithm = sum((-1) ** (place + 1) * growth**place / place for place in range(1, 81))  # below ln(1 + growth)
    assert 0 <= masks.epsilon(l1, scale) - l1 * logarithm < Fraction(1, 10**29)


def test_two_releases_of_the_same_masks_cost_more_than_the_sum_of_both() -> None:
    """1/b adds up inside the exponential: hence one release only (tests of the ledger)."""
    masks = Masks(2, Fraction(1, 10))
    once = masks.epsilon(40, Fraction(8))
    assert masks.epsilon(40, Fraction(4)) > 2 * once * Fraction(11, 10)


def test_bounds_of_more_or_larger_features_cover_others() -> None:
    masks = Masks(4, Fraction(1, 4))
    assert masks.covers(Masks(3, Fraction(1, 5)))
    assert not masks.covers(Masks(5, Fraction(1, 5)))
    assert not masks.covers(Masks(3, Fraction(1, 3)))
    assert not masks.covers(None)
    assert Masks(5, Fraction(1, 3)).epsilon(20, Fraction(7)) > masks.epsilon(20, Fraction(7))


@pytest.mark.parametrize(
    "changes",
    [
        {"masks": {"largest": 0, "rate": "1/2"}},
        {"masks": {"largest": True, "rate": "1/2"}},
        {"masks": {"largest": 2, "rate": "3/2"}},
        {"masks": {"largest": 2, "rate": "0"}},
        {"masks": {"largest": 2**300, "rate": "1/2"}},
        {"mechanism": "rounded Gaussian"},
    ],
)
def test_masks_of_a_file_are_checked(changes: dict[str, object]) -> None:
    noise = Noise(Mechanism.LAPLACE, 8, Fraction(9), Masks(2, Fraction(1, 10)))
    assert Noise.from_dict(noise.to_dict()) == noise
    with pytest.raises(ValueError, match="masks"):
        Noise.from_dict(noise.to_dict() | changes)
    assert Release.from_dict({"budget": {"epsilon": 1.0}, "noises": [noise.to_dict()]}).once
