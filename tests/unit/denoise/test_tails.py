from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpsketch.denoise.column_fit import ColumnSummary, Finer, fit_marginal
from dpsketch.denoise.tails import falling, unseen_tails

BINS, SD = 64, 20.0
CENTRES = np.concatenate([[0.0], (np.arange(BINS) + 0.5) / BINS, [1.0, 0.5]])
WIDTHS = np.concatenate([[0.0], np.full(BINS, 1 / BINS), [0.0, 0.0]])


def summary(upper: float) -> ColumnSummary:
    """50,000 records around a quarter of the range, nothing beyond a half, and noisy counts `upper` at the far end."""
    bell = np.exp(-0.5 * ((CENTRES - 0.25) / 0.05) ** 2) * (WIDTHS > 0)
    counts = 50_000 * bell / bell.sum()
    counts[-8:-3] += upper
    return ColumnSummary(counts, SD, CENTRES, WIDTHS, compressed=True)


def test_tails_end_where_records_are_seen() -> None:
    counts = np.zeros(40)
    counts[[12, 20]] = 200.0
    tails = unseen_tails(counts, SD)
    assert (tails[:12] == -1).all()
    assert (tails[12:21] == 0).all()
    assert (tails[21:] == 1).all()


def test_many_cells_together_are_seen_where_none_alone_is() -> None:
    counts = np.zeros(40)
    counts[0] = 200.0
    counts[8:24] = 1.5 * SD
    tails = unseen_tails(counts, SD)
    assert not tails[:9].any()
    assert tails[24:].all()


def test_noise_alone_has_no_tails_and_seldom_ends_one() -> None:
    assert not unseen_tails(np.zeros(30), SD).any()
    random = np.random.default_rng(3)
    ended = 0
    for _ in range(300):
        counts = random.laplace(0, SD / 2**0.5, 64)
        counts[0] = 1000.0
        ended += bool((unseen_tails(counts, SD)[1:] == 0).any())
    assert ended <= 12


def test_tails_fall_outwards() -> None:
    records = np.array([3.0, 4.0, 100.0, 8.0, 2.0, 5.0, 0.5])
    tails = np.array([-1, -1, 0, 1, 1, 1, 1])
    assert falling(records, np.ones(7), tails).tolist() == [3.0, 4.0, 100.0, 8.0, 2.0, 2.0, 0.0]
    single = np.array([1.0, 1, 1, 1, 0, 1, 1])
    assert falling(records, single, tails).tolist() == [3.0, 4.0, 100.0, 8.0, 0.0, 5.0, 0.0]


@pytest.mark.parametrize("upper", [0.5 * SD, 1.5 * SD])
def test_noise_far_out_carries_no_records(upper: float) -> None:
    """The mean of a function that grows a thousandfold for each quarter of the range is that of the records seen."""
    noisy = summary(upper)
    values = 1000.0 ** (4 * CENTRES)
    fitted = fit_marginal(noisy, 50_000.0)
    truth = summary(0.0).counts / 50_000 @ values
    assert fitted.shares @ values < 3 * truth
    assert fitted.shares[-8:-3].sum() * 50_000 < 1.0


def test_a_significant_count_far_out_stays() -> None:
    assert fit_marginal(summary(8 * SD), 50_000.0).shares[-8:-3].sum() * 50_000 == pytest.approx(40 * SD, rel=0.2)


def test_what_noise_took_goes_back_evenly() -> None:
    """Half of the records share a cell of their own. Noise in the tail is no reason to give that cell more of them."""
    rows = 50_000.0
    counts = summary(1.2 * SD).counts / 2
    counts[-12:-3] = 1.2 * SD
    counts[17] += rows - counts.sum() + 9 * 1.2 * SD
    fitted = fit_marginal(ColumnSummary(counts, SD, CENTRES, WIDTHS, compressed=True), rows)
    assert fitted.shares[17] * rows - counts[17] < SD


def test_only_compressed_columns_have_tails() -> None:
    """In others noise far out hardly moves a sum, and which cells are tails would change from refit to refit."""
    noisy = summary(1.5 * SD)
    plain = fit_marginal(replace(noisy, compressed=False), 50_000.0)
    assert plain.shares[-8:-3].sum() * 50_000 > 10 * fit_marginal(noisy, 50_000.0).shares[-8:-3].sum() * 50_000


def test_a_column_that_is_all_tails_is_still_a_distribution() -> None:
    """Two cells are significant together, and noise has left 20 rows: less than one is expected in each finer cell."""
    narrow = 40
    inner = np.repeat(np.arange(1, BINS + 1), narrow)[: 15 * narrow]
    parent = np.concatenate([[0], inner, [16, 17]])
    widths = np.concatenate([[0.0], np.full(15 * narrow, 1 / 15 / narrow), [0.0, 0.0]])
    centres = np.concatenate([[0.0], (np.arange(15 * narrow) + 0.5) / 15 / narrow, [1.0, 0.5]])
    coarse = np.concatenate([[0.0], (np.arange(15) + 0.5) / 15, [1.0, 0.5]])
    counts = np.zeros(18)
    counts[7:9] = 400.0
    own = np.where((coarse > 0) & (coarse < 1) & (np.arange(18) < 16), 1 / 15, 0.0)
    column = ColumnSummary(counts, 100.0, coarse, own, finer=Finer(parent, centres, widths), compressed=True)
    assert unseen_tails(counts[1:-2], 100.0).all()
    assert fit_marginal(column, 20.0).shares.sum() == pytest.approx(1)
