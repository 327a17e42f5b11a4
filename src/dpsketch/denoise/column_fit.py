"""What a release says about one column, and the distribution over its cells that explains it best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.smooth_shares import SHORTEST, SquaredErrors, changes_inside, freedom, smooth_minimum
from dpsketch.denoise.tails import falling, unseen_tails
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.nonnegative import nonnegative_minimum, project_to_simplex
from dpsketch.numerics.tuned import UNRECORDED

# Penalties, in decreasing order.
SMOOTHING: Annotated[tuple[float, ...], UNRECORDED] = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
STANDS_OUT: Annotated[float, UNRECORDED] = 3.0  # standard deviations above zero at which an atom is significant
TOTAL_WEIGHT: Annotated[float, UNRECORDED] = 100.0  # precision of the total over a cell's
# Prior variance of mean positions in a cell, in squared cell widths.
POSITION_VARIANCE: Annotated[float, UNRECORDED] = 0.02
# Largest distance of a mean position from the centre, in cell widths.
MOST_OFF_CENTRE: Annotated[float, UNRECORDED] = 0.45
MANY_CELLS = 1000


@dataclass(frozen=True)
class Finer:
    """Cells that divide those of a summary, the last one again *missing*: the cell that each is a part of (`parent`),
    its own centre and width.
    """

    parent: NDArray[np.int64]
    centres: Floats
    widths: Floats


@dataclass(frozen=True)
class ColumnSummary:
    """Noisy sums about one column. The last cell is always *missing*.

    `centres` are the cells' centres on [0, 1] (an atom or integer level: its place; missing: ½) and `widths` their
    widths (0: a single value); both None for a column without order. `positions` are the sums over a cell's records of
    (x − centre) / width; `centred` is the sum of x − ½ over all records that are not missing. With `finer`, the
    distribution over finer cells is wanted. `compressed` if equal steps between cells are ever larger ones in users'
    units, so that noise far out would carry sums.
    """

    counts: Floats
    count_sd: float
    centres: Floats | None = None
    widths: Floats | None = None
    positions: Floats | None = None
    position_sd: float = 0.0
    centred: float | None = None
    centred_sd: float = 0.0
    finer: Finer | None = None
    compressed: bool = False

    @property
    def ordered(self) -> bool:
        return self.centres is not None


@dataclass(frozen=True)
class GroupTotals:
    """A second look at a column: noisy shares of groups of its cells."""

    groups: NDArray[np.int64]
    shares: Floats
    sd: Floats


@dataclass(frozen=True)
class Marginal:
    """Shares of a column's cells, and where the mean of a cell lies: offsets from the centre in cell widths.
    `smoothing` is the penalty that shares were fitted with.
    """

    shares: Floats
    offsets: Floats
    centres: Floats | None = None
    widths: Floats | None = None
    smoothing: float = 0.0

    @property
    def ordered(self) -> bool:
        return self.centres is not None

    def means(self) -> Floats:
        """E[x | cell] on [0, 1]; missing counts as ½."""
        assert self.centres is not None
        assert self.widths is not None
        return self.centres + self.offsets * self.widths

    def squares(self) -> Floats:
        """E[x² | cell]: within a cell x is uniform on the part of it that has the right mean."""
        assert self.widths is not None
        return self.means() ** 2 + (self.widths * (1 - 2 * np.abs(self.offsets))) ** 2 / 12

    def below(self, threshold: float) -> Floats:
        """P(x ≤ threshold | cell), 0 for missing."""
        assert self.widths is not None
        half = self.widths * (0.5 - np.abs(self.offsets))
        start = self.means() - half
        inside = np.divide(threshold - start, 2 * half, out=(start <= threshold).astype(float), where=half > 0)
        inside[-1] = 0.0
        return np.clip(inside, 0.0, 1.0)


def fit_marginal(
    summary: ColumnSummary, rows: float, extra: GroupTotals | None = None, start: Marginal | None = None
) -> Marginal:
    """The distribution over cells that explains all that is known about a column, as smooth as its noise allows.

    Equations: the cells, their total, the centred sum, and `extra`. Without order: non-negative least squares. Of very
    many cells: these and their total alone, which is a projection. With
    order: least squares for exp(θ) with penalised second differences of θ (never of atoms at the bounds or of missing,
    which are dropped unless their counts are significant), with the one of a few weights that has the least
    expected error of the counts: χ² plus twice the degrees of freedom. Tails then fall off like exponentials, where
    cutting negative counts off would leave mass all over the range. Finer cells also explain the mean positions in
    those they divide.
    `start`, fitted to similar sums, is as smooth and makes the fit several times faster.

    Source: Mallows, Technometrics 15 (1973) 661 (the expected error).
    """
    cells = summary.counts if summary.finer is None else summary.finer.parent
    if len(cells) > MANY_CELLS:
        return _marginal(summary, rows, _projected(summary, rows))
    known = _counted(summary, rows)
    errors = _squared_errors(known, _whole(summary, rows, extra))
    if not summary.ordered:
        shares = _nonnegative(errors, known[0].sd[0])
        return Marginal(shares / shares.sum(), np.zeros(len(shares)))
    return _marginal(summary, rows, *_smoothed(summary, rows, known[0], errors, start))


def _marginal(summary: ColumnSummary, rows: float, shares: Floats, smoothing: float = 0.0) -> Marginal:
    centres, widths = summary.centres, summary.widths
    if summary.finer is not None:
        centres, widths = summary.finer.centres, summary.finer.widths
    if summary.positions is not None and summary.finer is None:
        offsets = _offsets(summary, rows * shares)
    else:
        offsets = _offsets_from_sum(summary, rows * shares)
    return Marginal(shares, offsets, centres, widths, smoothing)


def _projected(summary: ColumnSummary, rows: float) -> Floats:
    """The nearest distribution to the counts, spread evenly over finer cells."""
    shares = project_to_simplex(summary.counts / rows)
    if summary.finer is None:
        return shares
    parent = summary.finer.parent
    return shares[parent] / np.bincount(parent, minlength=len(shares))[parent]


@dataclass(frozen=True)
class _Equations:
    """`slopes` · shares = `values`, up to `sd` each."""

    slopes: Floats
    values: Floats
    sd: Floats

    def only(self, kept: NDArray[np.bool_]) -> _Equations:
        return _Equations(self.slopes[kept], self.values[kept], self.sd[kept])

    def chi_squared(self, shares: Floats) -> float:
        return float((((self.slopes @ shares - self.values) / self.sd) ** 2).sum())

    def scaled(self) -> tuple[Floats, Floats]:
        """Slopes and values, off by one each."""
        return self.slopes / self.sd[:, None], self.values / self.sd


def _squared_errors(cells: Sequence[_Equations], whole: Sequence[_Equations]) -> SquaredErrors:
    """Half the weighted sum of squares of equations about single cells and about many of them, up to a constant. No
    cell is in two of the equations `cells[k]`.
    """
    near, far = [each.scaled() for each in cells], [each.scaled() for each in whole]
    size = cells[0].slopes.shape[1]
    linear = np.sum([slopes.T @ values for slopes, values in (*near, *far)], axis=0)
    several = np.vstack([np.zeros((0, size)), *(slopes for slopes, _ in far)])
    return SquaredErrors(np.sum([_squared(slopes) for slopes, _ in near], axis=0), several, linear)


def _squared(slopes: Floats) -> Floats:
    """The product of the transpose and a matrix that has one entry a column."""
    row = (slopes != 0).argmax(0)
    entry = slopes[row, np.arange(slopes.shape[1])]
    return np.where(row[:, None] == row, np.outer(entry, entry), 0.0)


def _counted(summary: ColumnSummary, rows: float) -> list[_Equations]:
    """What is known cell by cell: counts and, where finer cells divide them, mean positions."""
    sd = np.full(len(summary.counts), summary.count_sd / rows)
    if summary.finer is None:
        return [_Equations(np.eye(len(sd)), summary.counts / rows, sd)]
    member = (summary.finer.parent == np.arange(len(sd))[:, None]).astype(np.float64)
    found = [_Equations(member, summary.counts / rows, sd)]
    if summary.positions is not None:
        assert summary.widths is not None
        inside = summary.widths > 0
        places = (member * places_in_parents(summary))[inside]
        sd = np.full(len(places), summary.position_sd / rows)
        found.append(_Equations(places, summary.positions[inside] / rows, sd))
    return found


def places_in_parents(summary: ColumnSummary) -> Floats:
    """Where the centres of finer cells lie in the cells that they are parts of: distances from the middle, in widths of
    these.
    """
    assert summary.finer is not None
    assert summary.centres is not None
    assert summary.widths is not None
    parent = summary.finer.parent
    width = summary.widths[parent]
    away = summary.finer.centres - summary.centres[parent]
    return np.divide(away, width, out=np.zeros(len(parent)), where=width > 0)


def _whole(summary: ColumnSummary, rows: float, extra: GroupTotals | None) -> list[_Equations]:
    """What is known of many cells together."""
    found = []
    if summary.centred is not None:
        found.append(_centred_equation(summary, rows))
    if extra is not None:
        member = (extra.groups == np.arange(len(extra.shares))[:, None]).astype(np.float64)
        found.append(_Equations(member, extra.shares, extra.sd))
    return found


def _nonnegative(errors: SquaredErrors, sd: float) -> Floats:
    total = (TOTAL_WEIGHT / sd) ** 2
    return nonnegative_minimum(errors.hessian + total, errors.linear + total)


def _smoothed(
    summary: ColumnSummary, rows: float, counts: _Equations, errors: SquaredErrors, start: Marginal | None
) -> tuple[Floats, float]:
    """Shares, and the penalty that they were fitted with."""
    observed, sd = counts.values, float(counts.sd[0])
    parent, widths = np.arange(len(observed)), summary.widths
    if summary.finer is not None:
        parent, widths = summary.finer.parent, summary.finer.widths
    assert widths is not None
    if start is not None:
        first = start.shares
    elif summary.finer is None:
        first = _nonnegative(errors, sd)
    else:
        first = _projected(summary, rows)
    smooth, tails = smooth_cells(widths), _tails(summary)
    tail = tails[parent]
    live = smooth | (observed[parent] > STANDS_OUT * sd) & (tail == 0)
    least = sd * len(observed) / len(parent) / 10
    first = np.where(first[live] > 0, first[live], least) if start is not None else np.maximum(first[live], least)
    penalty = (len(parent) / len(observed)) ** 3 * _roughness(smooth)[np.ix_(live, live)]
    inside = np.zeros_like(penalty)
    if summary.finer is not None and summary.widths is not None:
        places = summary.finer.centres / np.maximum(summary.widths[parent], SHORTEST)
        inside = changes_inside(parent, places, smooth)[np.ix_(live, live)]
    errors = errors.only(live)
    theta = np.log(first / first.sum())
    kept = np.ones(len(observed), bool)
    kept[parent[~live]] = False
    counts = counts.only(kept)
    shares = np.zeros(len(parent))
    even = _logarithms_of_widths(widths, smooth)[live]
    seen, aim = counts.scaled()
    least_error = np.inf
    for tried in SMOOTHING if start is None else (start.smoothing,):
        theta = smooth_minimum(errors, tried * penalty + inside, theta, even)
        error, own = 0.0, np.exp(theta)
        if start is None:
            left = seen[:, live] @ own - aim
            error = float(left @ left) + 2 * freedom(errors, tried * penalty + inside, own, seen[:, live])
        if error < least_error:
            least_error, weight, best = error, tried, theta
    theta = best
    shares[live] = np.exp(theta)
    fallen = falling(rows * shares, widths, tail) / rows
    if not fallen.any():  # fewer records are expected in all cells than would be seen
        fallen = shares
    if fallen.sum() < shares.sum():
        # What the noise of tails took from other cells goes back to them: tails are fitted to what is expected there.
        held = np.where(tails, np.bincount(parent, fallen, len(tails)) - observed, 0.0) / sd**2
        errors = replace(errors, linear=errors.linear + held[parent][live])
        theta = smooth_minimum(errors, weight * penalty + inside, theta, even)
        shares[live] = np.exp(theta)
        fallen = np.where(tail, fallen, shares)
    return fallen / fallen.sum(), weight


def _centred_equation(summary: ColumnSummary, rows: float) -> _Equations:
    """Σ share · (centre − ½) = centred sum less what lies off the centres, which is not known unless mean positions
    are.
    """
    assert summary.widths is not None
    assert summary.centred is not None
    value, variance = summary.centred, summary.centred_sd**2
    centres = summary.centres
    if summary.finer is not None:
        centres = summary.finer.centres
        if summary.positions is None:
            variance += off_centre_variance(_spread_evenly(summary), summary.finer.widths).sum()
    elif summary.positions is not None:
        value -= float(summary.positions @ summary.widths)
        variance += summary.position_sd**2 * (summary.widths**2).sum()
    else:
        variance += off_centre_variance(summary.counts, summary.widths).sum()
    assert centres is not None
    slope = centres - 0.5
    slope[-1] = 0.0
    return _Equations(slope[None, :], np.array([value / rows]), np.array([np.sqrt(variance) / rows]))


def off_centre_variance(counts: Floats, widths: Floats) -> Floats:
    """Variance of what the records of each cell add to the column's sum beyond its centre, before looking."""
    return POSITION_VARIANCE * (np.maximum(counts, 0.0) * widths) ** 2


def _spread_evenly(summary: ColumnSummary) -> Floats:
    """Counts of finer cells, if each cell is spread evenly over them."""
    assert summary.finer is not None
    parent = summary.finer.parent
    return summary.counts[parent] / np.bincount(parent, minlength=len(summary.counts))[parent]


def _logarithms_of_widths(widths: Floats, smooth: NDArray[np.bool_]) -> Floats:
    """Logarithms of the widths of smooth cells, relative to their mean; 0 for single values."""
    sized = smooth & (widths > 0)
    found = np.zeros(len(widths))
    if sized.any():
        found[sized] = np.log(widths[sized] / widths[sized].mean())
    return found


def smooth_cells(widths: Floats) -> NDArray[np.bool_]:
    """Cells that are like their neighbours: not missing, and not atoms at the bounds of binned columns."""
    smooth = widths > 0 if widths.any() else np.ones(len(widths), bool)
    smooth[-1] = False
    return smooth


def _tails(summary: ColumnSummary) -> NDArray[np.int64]:
    """`unseen_tails` of all cells; only a compressed column has any."""
    tails = np.zeros(len(summary.counts), np.int64)
    if summary.compressed and summary.widths is not None:
        inner = slice(1, -2) if summary.widths.any() else slice(0, -1)  # neither bounds of bins nor missing
        tails[inner] = unseen_tails(summary.counts[inner], summary.count_sd)
    return tails


def _roughness(smooth: NDArray[np.bool_]) -> Floats:
    """The quadratic form of squared second differences of smooth cells."""
    cells = np.flatnonzero(smooth)  # single values between them do not interrupt their neighbours
    triples = [(cells[shift : shift + max(len(cells) - 2, 0)], weight) for shift, weight in enumerate((1.0, -2.0, 1.0))]
    found = np.zeros((len(smooth), len(smooth)))
    for (one, first), (two, second) in product(triples, triples):
        found[one, two] += first * second
    return found


def _offsets(summary: ColumnSummary, counts: Floats) -> Floats:
    """Mean positions in the cells, shrunk towards the centres by how little is known."""
    if summary.positions is None or summary.widths is None:
        return np.zeros(len(counts))
    known = counts**2 * POSITION_VARIANCE
    offsets = summary.positions * counts * POSITION_VARIANCE / (known + summary.position_sd**2)
    return np.where(summary.widths > 0, np.clip(offsets, -MOST_OFF_CENTRE, MOST_OFF_CENTRE), 0.0)


def _offsets_from_sum(summary: ColumnSummary, counts: Floats) -> Floats:
    """Mean positions in the cells that agree with the column's sum: the difference is handed to the cells by how far
    off its centre each may be.
    """
    centres, widths = summary.centres, summary.widths
    if summary.finer is not None:
        centres, widths = summary.finer.centres, summary.finer.widths
    if summary.centred is None or centres is None or widths is None:
        return np.zeros(len(counts))
    variance = off_centre_variance(counts, widths)
    left = summary.centred - float(counts[:-1] @ (centres[:-1] - 0.5))
    share = left / max(float(variance.sum()) + summary.centred_sd**2, 1e-300)
    moved = share * variance / np.maximum(counts * widths, 1e-300)
    return np.where(widths > 0, np.clip(moved, -MOST_OFF_CENTRE, MOST_OFF_CENTRE), 0.0)
