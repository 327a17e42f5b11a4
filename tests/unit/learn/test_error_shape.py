from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpsketch.learn.error_shape import error_quantiles, shares_below


@pytest.mark.parametrize(("laplace", "known"), [(False, stats.norm()), (True, stats.laplace(scale=np.sqrt(0.5)))])
def test_both_shapes_have_a_standard_deviation_of_one(laplace: bool, known: stats.rv_continuous) -> None:
    shares = np.linspace(0.001, 0.999, 99)
    np.testing.assert_allclose(error_quantiles(shares, laplace), known.ppf(shares), atol=1e-12)
    errors = np.linspace(-5, 5, 101)
    np.testing.assert_allclose(shares_below(errors, laplace), known.cdf(errors), atol=1e-12)
    assert known.std() == pytest.approx(1.0)
