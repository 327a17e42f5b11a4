from __future__ import annotations

import numpy as np
import pytest

from dpsketch.privacy.events import Mechanism
from dpsketch.privacy.mechanisms import (
    ball_variances,
    cube_variance,
    disc_variance,
    gaussian_variance,
    laplace_variance,
    sum_variances,
)


def test_laplace_is_the_sum_over_all_integers() -> None:
    for scale in (0.2, 1.0, 7.0):
        z = np.arange(-400, 401)
        shares = np.exp(-np.abs(z) / scale)
        assert laplace_variance(scale) == pytest.approx((z**2 * shares).sum() / shares.sum())
    assert laplace_variance(1e-4) == 0


@pytest.mark.parametrize("pairs", [1, 10, 1000])
def test_a_disc_needs_a_quarter_of_the_variance_of_laplace(pairs: int) -> None:
    """Laplace noise on m pairs of length A has the scale √2·m·A/ε."""
    scale = 1e7
    ratio = disc_variance(pairs, scale) / laplace_variance(2**0.5 * pairs * scale)
    assert ratio == pytest.approx((pairs + 0.5) * (pairs + 1) / (4 * pairs**2), rel=1e-6)


def test_a_cube_needs_a_sixth_of_the_variance_of_laplace() -> None:
    assert cube_variance(10**5, 1e7) / laplace_variance(1e7 * 10**5) == pytest.approx(1 / 6, rel=1e-4)


def test_the_ball_has_two_variances() -> None:
    assert ball_variances(2, 10.0) - 1 / 12 == pytest.approx([400, 200, 400])  # three coordinates, four degrees
    assert ball_variances(3, 10.0) - 1 / 12 == pytest.approx([800, 400, 400, 800, 400, 800])  # six, and one more


def test_by_mechanism() -> None:
    assert sum_variances(Mechanism.LAPLACE, 6, 3.0) == laplace_variance(3.0)
    assert sum_variances(Mechanism.GAUSSIAN, 6, 3.0) == gaussian_variance(3.0) == 9 + 1 / 12
    assert sum_variances(Mechanism.DISC, 6, 3.0) == disc_variance(3, 3.0)
    assert sum_variances(Mechanism.CUBE, 6, 3.0) == cube_variance(6, 3.0)
    assert np.array_equal(sum_variances(Mechanism.BALL, 6, 3.0), ball_variances(3, 3.0))
