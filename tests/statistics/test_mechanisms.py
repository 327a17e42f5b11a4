"""The table of what is known about noise against the table of how it is drawn. Seeds are fixed."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from conftest import TestStream
from dpsketch.maps.base import Shape
from dpsketch.noise.samplers import SAMPLERS, SHARES
from dpsketch.privacy.mechanisms import BY_SHAPE, MECHANISMS, Mechanism, Norm, sum_variances

ALPHA = 1e-3
WRONG = 1.2
SIZE, SCALE, VECTORS = 6, Fraction(40), 2000  # six sums: three discs, or the upper triangle of a 3 × 3 matrix
every = pytest.mark.parametrize("mechanism", list(Mechanism), ids=lambda mechanism: mechanism.name.lower())


@cache
def drawn(mechanism: Mechanism) -> NDArray[np.float64]:
    stream = TestStream(7)
    return np.stack([SAMPLERS[mechanism](SIZE, SCALE, stream) for _ in range(VECTORS)]).astype(np.float64)


def agrees(noise: NDArray[np.float64], variances: object) -> bool:
    """Squares over their variances have mean 1; sums of one vector may depend on each other, vectors do not."""
    ratios = (noise**2 / np.asarray(variances)).mean(axis=1)
    error = (ratios.mean() - 1) / (ratios.std() / sqrt(len(ratios)))
    return bool(2 * norm.sf(abs(error)) > ALPHA)


def test_both_tables_have_every_mechanism() -> None:
    assert set(MECHANISMS) == set(SAMPLERS) == set(Mechanism)
    assert {mechanism for mechanism, facts in MECHANISMS.items() if facts.shared} == set(SHARES)
    assert set(BY_SHAPE) == {shape.value for shape in Shape}


@every
def test_the_noise_has_the_stated_variances(mechanism: Mechanism) -> None:
    variances = np.asarray(sum_variances(mechanism, SIZE, float(SCALE)))
    assert agrees(drawn(mechanism), variances)
    assert not agrees(drawn(mechanism), WRONG * variances)
    assert not agrees(drawn(mechanism), variances / WRONG)


@pytest.mark.parametrize("mechanism", list(SHARES), ids=lambda mechanism: mechanism.name.lower())
def test_shares_add_up_to_the_stated_variances(mechanism: Mechanism) -> None:
    """Three shares of three; four of three have a third more."""
    stream = TestStream(8)
    shares = np.array([SHARES[mechanism](SIZE * VECTORS, SCALE, 3, stream) for _ in range(4)]).reshape(4, VECTORS, SIZE)
    variance = sum_variances(mechanism, SIZE, float(SCALE))
    assert agrees(shares[:3].sum(axis=0).astype(np.float64), variance)
    assert agrees(shares.sum(axis=0).astype(np.float64), variance * 4 / 3)
    assert not agrees(shares.sum(axis=0).astype(np.float64), variance)


@every
def test_the_noise_stays_within_its_reach(mechanism: Mechanism) -> None:
    deviation = sqrt(float(np.max(sum_variances(mechanism, SIZE, float(SCALE)))))
    reach = MECHANISMS[mechanism].reach(SIZE) * float(SCALE)
    assert np.abs(drawn(mechanism)).max() < reach
    assert reach > 10 * deviation


@every
def test_a_draw_may_be_as_small_as_stated(mechanism: Mechanism) -> None:
    least = MECHANISMS[mechanism].least
    assert len(SAMPLERS[mechanism](least, SCALE, TestStream(1))) == least


@every
def test_the_density_falls_with_a_norm(mechanism: Mechanism, rng: np.random.Generator) -> None:
    """Moved by a vector of length Δ, pure noise is at most exp(Δ/scale) times as likely; groups add up."""
    facts = MECHANISMS[mechanism]
    noise, shift = drawn(mechanism), 30 * rng.normal(size=SIZE)
    moved = facts.log_density(noise + shift, 1, float(SCALE)) - facts.log_density(noise, 1, float(SCALE))
    length = facts.length(shift[None], 1)[0] / float(SCALE)
    if facts.pure:
        assert np.abs(moved).max() <= length * (1 + 1e-12)
    else:
        assert np.abs(moved).max() > length
    assert facts.length(3 * noise, 1) == pytest.approx(3 * facts.length(noise, 1))
    twice = facts.log_density(np.hstack([noise, noise]), 2, float(SCALE))
    assert twice == pytest.approx(2 * facts.log_density(noise, 1, float(SCALE)))


@every
def test_the_density_explains_the_noise(mechanism: Mechanism) -> None:
    """Moments of the length follow from the density in n dimensions: n·scale, or n·deviation² of its square. The ball
    adds a degree of freedom where their number is even.
    """
    facts, noise = MECHANISMS[mechanism], drawn(mechanism)
    lengths = facts.length(noise, 1) / float(SCALE)
    squares = lengths**2 if not facts.pure else lengths
    limit = -norm.ppf(ALPHA / 2) * squares.std() / sqrt(VECTORS)
    assert abs(squares.mean() - SIZE) < limit + (0.05 * SIZE if mechanism is Mechanism.BALL else 0.01 * SIZE)


def test_what_the_statement_and_budgets_read() -> None:
    assert [mechanism for mechanism, facts in MECHANISMS.items() if not facts.pure] == [
        Mechanism.GAUSSIAN,
        Mechanism.DISCRETE_GAUSSIAN,
    ]
    assert MECHANISMS[Mechanism.GAUSSIAN].scale_name == "standard deviation"
    assert MECHANISMS[Mechanism.CUBE].scale_name == "noise scale"
    for facts in MECHANISMS.values():
        assert (facts.norm is Norm.BODY) == (facts.shape is not None)
