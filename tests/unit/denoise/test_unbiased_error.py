import numpy as np
import pytest

from dpsketch.denoise.column_fit import ColumnSummary, Finer, Marginal
from dpsketch.denoise.unbiased_error import SWAMPED, CellNoise, believed

ROWS = 1000.0
CENTRES = np.array([0.0, 0.25, 0.75, 1.0, 0.5])
WIDTHS = np.array([0.0, 0.5, 0.5, 0.0, 0.0])
MARGINAL = Marginal(np.array([0.1, 0.4, 0.4, 0.1, 0.0]), np.zeros(5), CENTRES, WIDTHS)


def summary(**others: object) -> ColumnSummary:
    return ColumnSummary(np.full(5, 200.0), 50.0, CENTRES, WIDTHS, **others)


def test_error_of_a_cell_is_its_noise_less_what_the_number_of_rows_tells():
    values = np.array([[0.0, 1.0, 0.0, 0.0, 0.0]])
    error = CellNoise.of(summary(), ROWS).error(values, MARGINAL)
    gained = values - 0.4
    assert error == pytest.approx(0.05 * np.sqrt((gained**2).sum()))


def test_a_sum_that_is_released_settles_what_is_linear():
    noise = CellNoise.of(summary(centred=0.0, centred_sd=2.0), ROWS)
    assert noise.error(MARGINAL.means()[None], MARGINAL) == pytest.approx(0.002)
    without = CellNoise.of(summary(), ROWS)
    assert without.error(MARGINAL.means()[None], MARGINAL)[0] > 0.02


def test_parts_of_a_counted_cell_share_its_noise():
    parts = np.array([0, 1, 1, 2, 2, 3, 4])
    finer = Finer(parts, CENTRES[parts], WIDTHS[parts] / 2)
    halves = Marginal(np.array([0.1, 0.2, 0.2, 0.2, 0.2, 0.1, 0.0]), np.zeros(7), CENTRES[parts], WIDTHS[parts] / 2)
    values = np.array([[0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    split = CellNoise.of(summary(finer=finer), ROWS).error(values, halves)
    whole = CellNoise.of(summary(), ROWS).error(values[:, [0, 1, 3, 5, 6]], MARGINAL)
    assert split == pytest.approx(whole)


def test_claims_are_raised_only_where_noise_hides_what_is_asked():
    claimed, sizes = np.full(4, 0.001), np.ones(4)
    unbiased = np.array([0.9 / SWAMPED, 1.2 / SWAMPED, 12.0, 0.003]) / np.sqrt(12)
    found = believed(claimed, unbiased, sizes)
    assert found == pytest.approx([0.001, 1.2 / SWAMPED / np.sqrt(12), 1 / np.sqrt(12), 0.001])
    near = unbiased / (SWAMPED - 1)
    assert believed(near, unbiased, sizes) == pytest.approx(near)
