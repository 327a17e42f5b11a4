import numpy as np
import pytest

from dpsketch.denoise.column_fit import ColumnSummary, Finer
from dpsketch.denoise.heaping import lumpiness

BINS = 64


def summary(numbers, noise=1.0, seed=1):
    """Of numbers between 0 and 1 in 64 bins, with a single value at both bounds, and missing."""
    generator = np.random.default_rng(seed)
    bins = np.clip((numbers * BINS).astype(int), 0, BINS - 1)
    counts = np.concatenate([[0], np.bincount(bins, minlength=BINS), [0, 0]]).astype(float)
    places = np.bincount(bins, numbers * BINS - bins - 0.5, BINS)
    positions = np.concatenate([[0], places, [0, 0]])
    widths = np.concatenate([[0], np.full(BINS, 1 / BINS), [0, 0]])
    centres = np.concatenate([[0], (np.arange(BINS) + 0.5) / BINS, [1, 0.5]])
    counts, positions = (each + noise * generator.normal(size=len(each)) for each in (counts, positions))
    return ColumnSummary(counts, noise, centres, widths, positions, noise)


def rounded(numbers, steps):
    return np.clip((np.round(numbers * steps - 0.31) + 0.31) / steps, 0, 1 - 1e-9)


@pytest.fixture(scope="module")
def numbers():
    return np.random.default_rng(3).beta(2, 3, 200_000)


@pytest.mark.parametrize(("steps", "low", "high"), [(23, 0.9, 1.0), (61, 0.75, 1.0), (130, 0.3, 0.6), (191, 0.15, 0.4)])
def test_how_many_values_a_bin_has(numbers, steps, low, high):
    found = lumpiness(summary(rounded(numbers, steps)))
    assert low <= found.together <= high
    assert found.likely > 0.3


def test_cells_that_divide_bins_have_fewer(numbers):
    coarse = summary(rounded(numbers, 130))
    parent = np.concatenate([[0], np.repeat(np.arange(1, BINS + 1), 2), [BINS + 1, BINS + 2]])
    finer = Finer(parent, np.zeros(len(parent)), np.zeros(len(parent)))
    both = [lumpiness(each) for each in (coarse, ColumnSummary(**{**vars(coarse), "finer": finer}))]
    assert both[1].together == pytest.approx(2 * both[0].together, rel=0.05)


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (1, 8), (0.5, 0.5), (30, 30), (0.4, 40)])
def test_numbers_without_lumps_have_none_however_they_crowd(shape):
    numbers = np.random.default_rng(4).beta(*shape, 200_000) * (1 - 1e-9)
    found = lumpiness(summary(numbers))
    assert found.together < 0.05
    assert found.likely < 0.1


def test_noise_is_not_taken_for_lumps(numbers):
    for seed in range(20):
        assert lumpiness(summary(numbers, 3000.0, seed)).together == 0


def test_columns_without_positions_have_no_lumps():
    nothing = lumpiness(ColumnSummary(np.ones(4), 1.0))
    assert (nothing.likely, nothing.together) == (0, 0)


def test_a_column_without_records_tells_nothing():
    assert lumpiness(summary(np.zeros(0), 1.0)).together == 0
