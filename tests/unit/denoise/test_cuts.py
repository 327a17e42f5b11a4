"""Cells chosen from noisy counts of levels."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.denoise.cuts import MOST_CELLS, NoisyLevels, bin_firsts, choose_cut, shared_values


def levels_of(counts: np.ndarray, scale: float, rng: np.random.Generator) -> NoisyLevels:
    return NoisyLevels(counts + rng.laplace(0, scale, len(counts)), scale * 2**0.5, laplace=True)


def test_bins_are_near_equal_and_halves_divide_them() -> None:
    for levels in (10, 100, 65_533):
        for bins in (1, 3, 7, 10):
            firsts = bin_firsts(levels, bins)
            lengths = np.diff(np.append(firsts, levels))
            assert firsts[0] == 0
            assert lengths.max() - lengths.min() <= 1
            assert set(firsts) <= set(bin_firsts(levels, 2 * bins))


@pytest.mark.parametrize("bins", [1, 16, 700, 20_000, 32_768])
@pytest.mark.parametrize("length", [17, 5000, 65_533])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_a_cut_is_one_of_all_levels(bins: int, length: int, scale: float, rng: np.random.Generator) -> None:
    """Rising from 0, with all bins, and a cell for every single level, whatever the counts are."""
    counts = rng.poisson(0.2, length).astype(float)
    counts[rng.integers(0, length, 600)] += 5000
    starts, alone = choose_cut(levels_of(counts, scale, rng), bins, 1e9, counts.sum())
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert starts[-1] < length
    assert set(bin_firsts(length, min(bins, length))) <= set(starts)
    assert set(alone) <= set(starts)
    assert {level + 1 for level in alone if level + 1 < length} <= set(starts)
    assert len(starts) <= max(MOST_CELLS, min(bins, length) + 2 * len(alone))


def test_values_that_many_records_share_stand_alone(rng: np.random.Generator) -> None:
    counts = np.zeros(65_533)
    heavy = np.array([0, 777, 30_000, 65_532])
    counts[heavy] = 5000
    _, alone = choose_cut(levels_of(counts, 100.0, rng), 64, 100, counts.sum())
    assert set(heavy) <= set(alone)
    assert len(alone) <= len(heavy) + 20, "four are expected by chance"
    none = choose_cut(levels_of(np.zeros(65_533), 100.0, rng), 64, 100, 1.0)[1]
    assert len(none) <= 20
    flat = choose_cut(levels_of(np.full(65_533, 300.0), 10.0, rng), 64, 100, 300.0 * 65_533)[1]
    assert len(flat) <= 20, "a level is compared with its neighbours"


def test_runs_show_what_the_noise_of_single_levels_hides(rng: np.random.Generator) -> None:
    """5,000 records in a bin of 4,096 levels, whose noise is 9,000 records."""
    counts, bins = np.zeros(65_533), 16
    first = bin_firsts(len(counts), bins)[5]
    counts[first : first + 4000] = 1.25
    noisy, firsts = levels_of(counts, 100.0, rng), bin_firsts(len(counts), 8 * bins)
    runs = levels_of(np.add.reduceat(counts, firsts), 100.0, rng)
    alone = choose_cut(noisy, bins, 50, 5000)[0]
    both = choose_cut(noisy, bins, 50, 5000, runs)[0]
    inside = [np.count_nonzero((starts > first) & (starts < first + 4096)) for starts in (alone, both)]
    assert inside[0] <= 4, "single levels by chance"
    assert inside[1] >= inside[0] + 5


def test_bins_are_halved_where_records_are(rng: np.random.Generator) -> None:
    counts = np.zeros(65_533)
    counts[20_000:20_500] = 200
    starts, _ = choose_cut(levels_of(counts, 20.0, rng), 16, 200, counts.sum())
    assert np.count_nonzero((starts >= 20_000) & (starts < 20_500)) >= 50
    assert np.count_nonzero(starts < 15_000) <= 30
    noisy, _ = choose_cut(levels_of(counts, 1e5, rng), 16, 200, counts.sum())
    assert len(noisy) <= 60, "noise does not let one see more"


@pytest.mark.parametrize("together", [1, 40])
def test_the_number_of_records_that_share_a_value_is_estimated(together: int, rng: np.random.Generator) -> None:
    counts = np.zeros(65_533)
    places = rng.integers(0, 65_533, 400_000 // together)
    np.add.at(counts, places, together)
    levels = levels_of(counts, 5.0, rng)
    starts, _ = choose_cut(levels, 64, 100, counts.sum())
    sharing = shared_values(levels, 64, starts)
    assert abs(sharing.average - together) < 5 * sharing.sd + 0.1 * together, "the heaviest stand alone"
    assert 1 <= sharing.expected <= sharing.most
    empty = shared_values(levels_of(np.zeros(100), 5.0, rng), 4, np.array([0, 50]))
    assert empty.sd > 1e6
