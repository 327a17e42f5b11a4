import numpy as np
import pytest

from dpsketch.denoise.column_fit import ColumnSummary, Finer, GroupTotals, Marginal, fit_marginal
from dpsketch.numerics.nonnegative import nonnegative_minimum

BINS = 32
CENTRES = np.concatenate([[0.0], (np.arange(BINS) + 0.5) / BINS, [1.0, 0.5]])
WIDTHS = np.concatenate([[0.0], np.full(BINS, 1 / BINS), [0.0, 0.0]])
ROWS = 10_000.0


def bell() -> np.ndarray:
    shares = np.where(WIDTHS > 0, np.exp(-0.5 * ((CENTRES - 0.4) / 0.1) ** 2), 0.0)
    shares[0], shares[-1] = shares.sum() / 10, shares.sum() / 20
    return shares / shares.sum()


def summary(shares: np.ndarray, sd: float, rng: np.random.Generator) -> ColumnSummary:
    def noise(size: int, units: float) -> np.ndarray:
        return rng.laplace(0, sd / units / 2**0.5, size)

    counts = ROWS * shares
    offsets = np.where(WIDTHS > 0, 0.2, 0.0)
    centred = counts @ np.where(np.arange(len(counts)) < BINS + 2, CENTRES + offsets * WIDTHS - 0.5, 0.0)
    return ColumnSummary(
        counts + noise(len(counts), 1),
        sd,
        CENTRES,
        WIDTHS,
        counts * offsets + noise(len(counts), 0.25),
        4 * sd,
        centred + noise(1, 1)[0],
        sd,
    )


def test_nonnegative_minimum_solves_the_optimality_conditions():
    rng = np.random.default_rng(1)
    for size in (1, 5, 60):
        root = rng.normal(size=(size + 3, size))
        hessian, linear = root.T @ root, rng.normal(size=size) * 10
        x = nonnegative_minimum(hessian, linear)
        slope = hessian @ x - linear
        assert (x >= 0).all()
        assert slope.min() > -1e-8
        assert np.abs(slope[x > 0]).max(initial=0.0) < 1e-8


def test_marginal_recovers_exact_input():
    shares = bell()
    marginal = fit_marginal(summary(shares, 1e-3, np.random.default_rng(1)), ROWS)
    assert marginal.shares == pytest.approx(shares, abs=1e-5)
    assert marginal.offsets[shares > 1e-3][1:-1] == pytest.approx(0.2, abs=1e-3)
    categories = fit_marginal(ColumnSummary(ROWS * shares, 1e-3), ROWS)
    assert categories.shares == pytest.approx(shares, abs=1e-6)


@pytest.mark.parametrize("sd", [10.0, 300.0, 10_000.0])
def test_marginal_is_a_distribution(sd):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        marginal = fit_marginal(summary(bell(), sd, rng), ROWS)
        assert (marginal.shares >= 0).all()
        assert marginal.shares.sum() == pytest.approx(1)
        assert (np.abs(marginal.offsets) <= 0.45).all()
        nominal = fit_marginal(ColumnSummary(rng.normal(0, sd, 5), sd), ROWS)
        assert (nominal.shares >= 0).all()
        assert nominal.shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("rows", [1.0, 1e3, 1e9])
def test_any_counts_give_a_distribution(rows):
    rng = np.random.default_rng(int(rows))
    for sd in (1e-3, 1.0, 1e4):
        for cells in (2, 3, 20):
            centres, widths = np.append(np.arange(cells - 1) / max(cells - 2, 1), 0.5), np.zeros(cells)
            counts = rng.normal(0, 1, cells) * rng.choice([0.0, sd, rows])
            for known in ({}, {"centres": centres, "widths": widths, "centred": rng.normal(0, rows), "centred_sd": sd}):
                marginal = fit_marginal(ColumnSummary(counts, sd, **known), rows)
                assert np.isfinite(marginal.shares).all()
                assert marginal.shares.sum() == pytest.approx(1)


def test_smoothing_beats_the_counts():
    shares, raw, fitted = bell(), 0.0, 0.0
    for seed in range(10):
        noisy = summary(shares, 60.0, np.random.default_rng(seed))
        raw += ((noisy.counts / ROWS - shares) ** 2).sum()
        fitted += ((fit_marginal(noisy, ROWS).shares - shares) ** 2).sum()
    assert fitted < raw / 2


def test_group_totals_are_used():
    noisy = summary(bell(), 100.0, np.random.default_rng(3))
    groups = (np.arange(BINS + 3) > 12).astype(np.int64)
    truth = np.bincount(groups, bell())
    marginal = fit_marginal(noisy, ROWS, GroupTotals(groups, truth, np.full(2, 1e-5)))
    assert np.bincount(groups, marginal.shares) == pytest.approx(truth, abs=1e-3)


def test_cells_say_where_values_are():
    marginal = Marginal(
        np.array([0.2, 0.5, 0.2, 0.1]), np.array([0, 0.25, 0, 0]), np.array([0, 0.5, 1, 0.5]), np.array([0, 1.0, 0, 0])
    )
    assert marginal.means() == pytest.approx([0, 0.75, 1, 0.5])
    assert marginal.squares()[1] == pytest.approx(0.75**2 + 0.5**2 / 12)  # uniform on [½, 1]
    assert marginal.below(0.6) == pytest.approx([1, 0.2, 0, 0])
    assert marginal.below(1.0) == pytest.approx([1, 1, 1, 0])


def peak(fine: int) -> tuple[np.ndarray, Finer]:
    """Most records within one bin out of BINS, and finer cells, `fine` a bin."""
    parent = np.concatenate([[0], 1 + np.arange(BINS * fine) // fine, [BINS + 1, BINS + 2]])
    centres = np.concatenate([[0.0], (np.arange(BINS * fine) + 0.5) / (BINS * fine), [1.0, 0.5]])
    widths = np.concatenate([[0.0], np.full(BINS * fine, 1 / (BINS * fine)), [0.0, 0.0]])
    shares = np.where(widths > 0, np.exp(-0.5 * ((centres - 0.41) / 0.01) ** 2), 0.0)
    return shares / shares.sum(), Finer(parent, centres, widths)


def coarse_summary(shares: np.ndarray, finer: Finer, sd: float, rng: np.random.Generator) -> ColumnSummary:
    counts = ROWS * np.bincount(finer.parent, shares)
    place = np.divide(
        finer.centres - CENTRES[finer.parent], WIDTHS[finer.parent], out=0 * shares, where=WIDTHS[finer.parent] > 0
    )
    positions = ROWS * np.bincount(finer.parent, shares * place)
    noise = rng.normal(size=(2, len(counts)))
    centred = ROWS * float(shares @ (finer.centres - 0.5))
    return ColumnSummary(
        counts + sd * noise[0], sd, CENTRES, WIDTHS, positions + 4 * sd * noise[1], 4 * sd, centred, sd, finer
    )


def test_finer_cells_find_a_peak_inside_of_a_bin():
    shares, finer = peak(8)
    below = np.cumsum(shares)
    totals = GroupTotals(np.searchsorted([0.4, 0.41, 0.42], finer.centres), np.zeros(4), np.full(4, 3e-3))
    totals = GroupTotals(totals.groups, np.bincount(totals.groups, shares), totals.sd)
    found = coarse_summary(shares, finer, 20.0, np.random.default_rng(1))
    fine = fit_marginal(found, ROWS, totals)
    assert len(fine.shares) == len(shares)
    assert fine.shares.sum() == pytest.approx(1)
    assert np.abs(np.cumsum(fine.shares) - below).max() < 0.02
    even = np.bincount(finer.parent, shares)[finer.parent] / np.bincount(finer.parent)[finer.parent]
    assert np.abs(np.cumsum(even) - below).max() > 0.08  # what a bin hides
    assert np.abs(fine.means() @ fine.shares - finer.centres @ shares) < 0.005


def test_a_start_keeps_the_smoothing_and_ends_at_the_same_shares():
    shares, finer = peak(4)
    found = coarse_summary(shares, finer, 20.0, np.random.default_rng(2))
    cold = fit_marginal(found, ROWS)
    warm = fit_marginal(found, ROWS, start=cold)
    assert warm.smoothing == cold.smoothing > 0
    assert warm.shares == pytest.approx(cold.shares, abs=2e-3)


def test_very_many_finer_cells_share_what_their_bins_hold():
    shares, finer = peak(40)
    found = coarse_summary(shares, finer, 1e-3, np.random.default_rng(3))
    fine = fit_marginal(found, ROWS)
    assert len(fine.shares) == len(shares) > 1000
    assert np.bincount(finer.parent, fine.shares) == pytest.approx(np.bincount(finer.parent, shares), abs=1e-5)
    assert np.ptp(fine.shares[finer.parent == int(np.argmax(found.counts))]) == 0


@pytest.mark.parametrize("sd", [2.0, 20.0])
def test_refits_spread_as_far_as_the_fit_is_off(sd: float) -> None:
    """Records by hour, with two peaks: as smooth a fit as the counts allow is off by more than refits of it spread."""
    by_hour = np.array([3, 2, 1, 1, 1, 3, 8, 14, 16, 12, 9, 9, 10, 10, 10, 11, 13, 16, 15, 11, 8, 6, 5, 4, 0.0])
    shares, rng, off, spread = by_hour / by_hour.sum(), np.random.default_rng(0), 0.0, 0.0
    known = {"centres": np.append(np.arange(24) / 23, 0.5), "widths": np.zeros(25)}
    for _ in range(20):
        marginal = fit_marginal(ColumnSummary(ROWS * shares + sd * rng.normal(size=25), sd, **known), ROWS)
        off += ((marginal.shares - shares) ** 2).sum()
        again = ColumnSummary(ROWS * marginal.shares + sd * rng.normal(size=25), sd, **known)
        spread += ((fit_marginal(again, ROWS, start=marginal).shares - marginal.shares) ** 2).sum()
    assert off < 1.2 * spread
    assert ROWS**2 * off < 20 * 25 * sd**2, "more than the counts are"
