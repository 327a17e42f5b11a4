"""What a release says about one column, and the distribution over its cells that explains it best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsketch.fitting.nonnegative import nonnegative_minimum, project_to_simplex
from dpsketch.schema import Floats

SMOOTHING = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # penalties, the largest first
RIDGE = 1e-3
STANDS_OUT = 3.0  # standard deviations above zero at which an atom is there
NEWTON_STEPS, GAIN = 30, 1e-2  # at most, and the gain in χ²/2 that ends them
TOTAL_WEIGHT = 100.0  # how much better than a cell the total is known
POSITION_VARIANCE = 0.02  # of mean positions in a cell, before looking; in squared cell widths
MOST_OFF_CENTRE = 0.45
MANY_CELLS = 1000
LUMPY, USUAL_LUMPS = 6.0, 0.01


@dataclass(frozen=True)
class ColumnSummary:
    """Noisy sums about one column. The last cell is always *missing*.

    `centres` are the cells' centres on [0, 1] (an atom or integer level: its place; missing: ½) and `widths` their
    widths (0: a single value); both None for a column without order. `positions` are the sums over a cell's records of
    (x − centre) / width; `centred` is the sum of x − ½ over all records that are not missing.
    """

    counts: Floats
    count_sd: float
    centres: Floats | None = None
    widths: Floats | None = None
    positions: Floats | None = None
    position_sd: float = 0.0
    centred: float | None = None
    centred_sd: float = 0.0

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
    """Shares of a column's cells, and where the mean of a cell lies: offsets from the centre in cell widths."""

    shares: Floats
    offsets: Floats
    centres: Floats | None = None
    widths: Floats | None = None

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


def lumpiness(summary: ColumnSummary) -> float:
    """How far records sit on few values of their cells: near 0 where they spread over them, 1 where most cells have
    them on one or two.

    Mean positions in cells tell: on one value anywhere in its cell their variance is 1/12, on some cells' two values,
    which are the heavier ones, about a sixth of it. Where noise hides them it is what is usual (a posterior mean).
    """
    if summary.positions is None or summary.widths is None:
        return 0.0
    inside = summary.widths > 0
    counts, positions = summary.counts[inside], summary.positions[inside]
    largest = (counts**2 - summary.count_sd**2).sum() / 12
    found, variance = (positions**2 - summary.position_sd**2).sum(), 2 * summary.position_sd**4 * inside.sum()
    known = max(largest, 0.0) * (10 * USUAL_LUMPS) ** 2
    ratio = (known * found + variance * USUAL_LUMPS) / (known * max(largest, 0.0) + variance)
    return float(np.clip(LUMPY * ratio, 0.0, 1.0))


def fit_marginal(summary: ColumnSummary, rows: float, extra: GroupTotals | None = None) -> Marginal:
    """The distribution over cells that explains all that is known about a column, as smooth as its noise allows.

    Equations: the cells, their total, the centred sum, and `extra`. Without order: non-negative least squares. Of very
    many cells: these and their total alone, which is a projection. With
    order: least squares for exp(θ) with penalised second differences of θ (never of atoms at the bounds or of missing,
    which are dropped unless their counts stand out of the noise), with the largest of a few weights that still
    explains the counts: χ² at most the number of cells. Tails then fall off like exponentials, where cutting negative
    counts off would leave mass all over the range.
    """
    observed, sd = summary.counts / rows, summary.count_sd / rows
    cells = len(observed)
    if cells > MANY_CELLS:
        shares = project_to_simplex(observed)
        return Marginal(shares, _offsets(summary, rows * shares), summary.centres, summary.widths)
    hessian = np.eye(cells) / sd**2
    linear = observed / sd**2
    if summary.centred is not None:
        slope, value, value_sd = _centred_equation(summary, rows)
        hessian += np.outer(slope, slope) / value_sd**2
        linear += slope * value / value_sd**2
    if extra is not None:
        member = (extra.groups == np.arange(len(extra.shares))[:, None]) / extra.sd[:, None]
        hessian += member.T @ member
        linear += member.T @ (extra.shares / extra.sd)
    total = (TOTAL_WEIGHT / sd) ** 2
    shares = nonnegative_minimum(hessian + total, linear + total)
    if summary.ordered:
        smooth, apart = _smooth_cells(summary)
        live = ~apart | (observed > STANDS_OUT * sd)
        start = np.maximum(shares[live], sd / 10)
        hessian, linear = hessian[np.ix_(live, live)], linear[live]
        penalty = _roughness(smooth)[np.ix_(live, live)]
        theta = np.log(start / start.sum())
        for weight in SMOOTHING:
            theta = _smooth_minimum(hessian, linear, weight * penalty, theta)
            fitted = np.exp(theta)
            if ((observed[live] - fitted) ** 2).sum() <= live.sum() * sd**2:
                break
        shares = np.zeros(cells)
        shares[live] = fitted
    shares = shares / shares.sum()
    return Marginal(shares, _offsets(summary, rows * shares), summary.centres, summary.widths)


def _smooth_minimum(hessian: Floats, linear: Floats, penalty: Floats, theta: Floats) -> Floats:
    """Log shares θ, exp(θ) of sum one, that minimise ½·pᵀHp − fᵀp + ½·θᵀQθ for p = exp(θ): Levenberg–Marquardt."""
    penalty = penalty + RIDGE * (np.eye(len(theta)) - 1 / len(theta))
    damping = 1e-3

    def cost(theta: Floats) -> float:
        shares = np.exp(theta)
        return float(0.5 * shares @ hessian @ shares - linear @ shares + 0.5 * theta @ penalty @ theta)

    now = cost(theta)
    for _ in range(NEWTON_STEPS):
        shares = np.exp(theta)
        pull = hessian @ shares
        slope = pull - linear
        gradient = shares * (slope - shares @ slope) + penalty @ theta
        # T·H·T for the change T = diag(p) − ppᵀ of shares p by θ; adding a constant to θ changes nothing.
        turned = np.outer(shares, shares) * (hessian - pull[:, None] - pull + shares @ pull)
        curvature = turned + penalty + 1 / len(theta)
        while damping < 1e8:
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-3)
            step = np.clip(np.linalg.solve(damped, -gradient), -3.0, 3.0)
            moved = theta + step
            moved = moved - np.logaddexp.reduce(moved)
            then = cost(moved)
            if then <= now:
                break
            damping = max(4 * damping, 1e-4)
        else:
            break
        theta, gained, now = moved, now - then, then
        damping = max(0.3 * damping, 1e-8)
        if gained < GAIN:
            break
    return theta


def _centred_equation(summary: ColumnSummary, rows: float) -> tuple[Floats, float, float]:
    """Slopes, value and standard deviation of: Σ share · (centre − ½) = centred sum less what lies off the centres."""
    assert summary.centres is not None
    assert summary.widths is not None
    assert summary.centred is not None
    value, variance = summary.centred, summary.centred_sd**2
    if summary.positions is not None:
        value -= float(summary.positions @ summary.widths)
        variance += summary.position_sd**2 * (summary.widths**2).sum()
    elif summary.widths.any():
        variance += (rows * summary.widths.max() / 8) ** 2
    slope = summary.centres - 0.5
    slope[-1] = 0.0
    return slope, value / rows, np.sqrt(variance) / rows


def _smooth_cells(summary: ColumnSummary) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Cells that are like their neighbours, and those apart: missing, and atoms at the bounds of binned columns."""
    assert summary.widths is not None
    smooth = summary.widths > 0 if summary.widths.any() else np.ones(len(summary.counts), bool)
    smooth[-1] = False
    return smooth, ~smooth


def _roughness(smooth: NDArray[np.bool_]) -> Floats:
    """The quadratic form of squared second differences of smooth cells."""
    penalty = np.zeros((len(smooth), len(smooth)))
    second = np.outer((1.0, -2.0, 1.0), (1.0, -2.0, 1.0))
    for cell in range(len(smooth) - 2):
        if smooth[cell : cell + 3].all():
            penalty[cell : cell + 3, cell : cell + 3] += second
    return penalty


def _offsets(summary: ColumnSummary, counts: Floats) -> Floats:
    """Mean positions in the cells, shrunk towards the centres by how little is known."""
    if summary.positions is None or summary.widths is None:
        return np.zeros(len(counts))
    known = counts**2 * POSITION_VARIANCE
    offsets = summary.positions * counts * POSITION_VARIANCE / (known + summary.position_sd**2)
    return np.where(summary.widths > 0, np.clip(offsets, -MOST_OFF_CENTRE, MOST_OFF_CENTRE), 0.0)
