"""What cells may hold that a fit dropped."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.denoise.column_fit import ColumnSummary, fit_marginal
from dpsketch.denoise.dropped_cells import dropped_shares

ROWS = 2_000
WIDTHS = np.array([0.0, 0.3, 0.3, 0.0, 0.3, 0.0, 0.0])  # the lower bound, bins around a single value, upper, missing
CENTRES = np.array([0.0, 0.15, 0.5, 0.65, 0.8, 1.0, 0.5])


def test_a_label_without_records_has_the_error_of_its_noise() -> None:
    summary = ColumnSummary(np.array([1_900.0, -40.0, 140.0]), count_sd=236.0)
    dropped = dropped_shares(summary, ROWS, np.array([0.98, 0.0, 0.02]))
    np.testing.assert_allclose(dropped, [0.0, 236 / ROWS, np.hypot(236, 100) / ROWS])


def test_bounds_and_single_values_may_hold_what_their_counts_suggest() -> None:
    counts = np.array([500.0, 900.0, 100.0, 600.0, 10.0, 700.0, 0.0])
    summary = ColumnSummary(counts, count_sd=300.0, centres=CENTRES, widths=WIDTHS)
    dropped = dropped_shares(summary, ROWS, np.array([0.0, 0.9, 0.05, 0.0, 0.05, 0.0, 0.0]))
    np.testing.assert_allclose(dropped[[0, 3, 5]], np.hypot(300, [500, 600, 700]) / ROWS)
    np.testing.assert_array_equal(dropped[[1, 2, 4]], 0)  # smooth cells are never dropped


def test_no_share_exceeds_one() -> None:
    dropped = dropped_shares(ColumnSummary(np.array([9e9, 0.0]), count_sd=1e10), ROWS, np.array([0.0, 0.0]))
    np.testing.assert_array_equal(dropped, 1.0)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1])
def test_the_error_of_dropped_labels_is_that_of_many_releases(share: float) -> None:
    """Fifty labels, and noise as large as a tenth of the rows: fits drop most of them."""
    generator, labels, scale = np.random.default_rng(3), 50, 150.0
    truth = np.full(labels, (1 - share) / (labels - 1))
    truth[0] = share
    errors, stated = [], []
    for _ in range(300):
        summary = ColumnSummary(ROWS * truth + generator.laplace(scale=scale, size=labels), np.sqrt(2) * scale)
        shares = fit_marginal(summary, ROWS).shares
        dropped = dropped_shares(summary, ROWS, shares)[0]
        if dropped > 0:
            errors.append(shares[0] - share)
            stated.append(dropped)
    assert len(errors) > 50
    assert np.mean(np.abs(errors) > 3 * np.array(stated)) < 0.01
