"""What a regression expects of the records before it sees their sums: how far they may differ from its points.

The density of the records relative to that of the points is 1 + g. As a prior, g is a sum of independent normal
effects: cosines of the ranks of single columns, shares of labels, shares of values at bounds and of missing cells,
products of cosines of two columns, and white noise for everything else. The moments of features are then normal too.

Effects are in groups, one scale each. Scales are estimated from the released moments: the mean of their posterior, with
a prior that is flat in the logarithm. So a scale that the moments do not determine stays large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

_CHOSEN = Tuned("Random10, Beta(2,8), lifesci", by=BY_HAND, decision=58)
ORDERS: Annotated[int, _CHOSEN] = 12  # cosines of a column
FREE: Annotated[int, _CHOSEN] = 4  # of them with a scale of their own; later ones fall
SMOOTH: Annotated[int, _CHOSEN] = 4  # as this power, for expectations
ROUGH: Annotated[int, _CHOSEN] = 2  # and for errors: densities may be rougher than is likely
DOUBT: Annotated[float, _CHOSEN] = 0.2  # standard deviation of a share of single values, for errors
PAIRED: Annotated[int, _CHOSEN] = 3  # cosines of each column in products of two
LABELS, PRODUCTS, BOUND, ABSENT = FREE, FREE + 1, FREE + 2, FREE + 3  # groups after those of the cosines
GROUPS = FREE + 4
MOST_LABELS = 16  # effects of a column of labels; more labels share them
MOST_PRODUCTS = 2048
MOST_SCANNED = 512  # moments from which scales are estimated
PASSES = 2
SPREADS: Annotated[tuple[float, float], _CHOSEN] = (1e-3, 20.0)  # least and greatest scale
SHARES: Annotated[tuple[float, float], _CHOSEN] = (1e-5, 0.3)  # the same of expected shares of single values
TRIED = 41
_LEAST = 1e-300
USUAL: Annotated[float, _CHOSEN] = 1.0  # a scale s is as likely as 1/(1 + (s/USUAL)²), on the scale of its logarithm
USUAL_SHARE: Annotated[float, _CHOSEN] = 0.01  # the same of an expected share
STEP: Annotated[float, _CHOSEN] = 2.0  # largest change of a log density from one set of points to the next


@dataclass(frozen=True)
class ColumnEffects:
    """Functions of the cells of a column, one row each; their groups; their variances, if the scale of their group is
    1, and those of a rougher density; the points' shares of single values, 0 for other functions; and cosines of ranks,
    for products.
    """

    functions: Floats
    groups: NDArray[np.int64]
    variances: Floats
    rough: Floats
    held: Floats
    cosines: Floats

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Cells of single values, where all smooth functions are zero."""
        return np.asarray(~self.functions[self.groups < BOUND].any(axis=0))

    def moved(self, start: Floats, shares: Floats) -> Floats:
        """The change of the log density of cells from one set of shares to another, with mean zero."""
        change = np.log(np.maximum(shares, _LEAST) / np.maximum(start, _LEAST))
        return self._centred(change, shares)

    def tilted(self, start: Floats, shares: Floats, means: Floats, least: float) -> Floats:
        """The shares of cells of which these are the effects, when points began with `start` and now have `shares`;
        single values keep at least a tenth of `least`.
        """
        single = self.held > 0
        change = self._centred(means[self.groups < BOUND] @ self.functions[self.groups < BOUND], shares)
        step = np.where(start > 0, change - self.moved(start, shares), 0.0)
        tilted = np.where(self.alone, 0.0, shares * np.exp(np.clip(step, -STEP, STEP)))
        cells = np.flatnonzero(self.alone & (shares > 0))
        held = self.held[single] * np.maximum(1 + means[single] / np.sqrt(self.held[single]), np.exp(-STEP))
        tilted *= max(1 - held.sum(), least) / tilted.sum()
        tilted[cells] = np.maximum(held, least / 10)
        return tilted / tilted.sum()

    def _centred(self, change: Floats, shares: Floats) -> Floats:
        inside = np.where(self.alone, 0.0, shares)
        return np.where(self.alone, 0.0, change - change @ inside / inside.sum())


def column_effects(cells: Cells, start: Floats, shares: Floats) -> ColumnEffects:
    """The effects of a column whose points began with the shares `start` of its cells, and now have others."""
    alone = np.zeros(cells.count, bool)
    alone[cells.missing] = True
    if cells.binned:
        alone[[0, cells.missing - 1]] = True
    cosines = np.zeros((0, cells.count))
    if cells.column.numeric:
        even, inner = (np.where(alone, 0.0, each) / max(each[~alone].sum(), 1e-300) for each in (start, shares))
        orders = np.arange(1, min(ORDERS, int(np.count_nonzero(even)) - 1) + 1)
        functions, cosines = (
            np.sqrt(2) * np.cos(np.pi * orders[:, None] * (np.cumsum(each) - each / 2)) * ~alone
            for each in (even, inner)
        )
        groups = np.minimum(orders, FREE) - 1
        variances = np.minimum(1.0, (FREE / orders) ** SMOOTH)
        rough = np.minimum(1.0, (FREE / orders) ** ROUGH)
        cosines = cosines[:PAIRED] - (cosines[:PAIRED] @ inner)[:, None] * ~alone
    else:
        of_label = np.arange(cells.count) * min(cells.missing, MOST_LABELS) // cells.missing
        functions = (of_label == np.unique(of_label[~alone])[:, None]) * ~alone * 1.0
        groups = np.full(len(functions), LABELS)
        variances = rough = np.ones(len(functions))
    single = np.flatnonzero(alone & (shares > 0))
    held = shares[single]
    return ColumnEffects(
        np.concatenate([functions, np.eye(cells.count)[single] / np.sqrt(held)[:, None]]),
        np.append(groups, np.where(single == cells.missing, ABSENT, BOUND)),
        np.append(variances, 1 / held),
        np.append(rough, 1 / held),
        np.append(np.zeros(len(groups)), held),
        cosines,
    )


class Effects:
    """All effects at some points, one row each: those of the `single` columns, then products of any two columns."""

    def __init__(
        self, columns: Mapping[str, ColumnEffects], bins: Mapping[str, NDArray[np.int64]], single: Sequence[str]
    ) -> None:
        own = [columns[name] for name in single]
        ends = np.cumsum([len(each.groups) for each in own]).tolist()
        self.starts: dict[str, int] = dict(zip(single, [0, *ends], strict=False))
        values = [columns[name].functions[:, bins[name]] for name in single]
        values = [each - each.mean(axis=1, keepdims=True) for each in values]
        products = []
        if sum(len(one.cosines) * len(two.cosines) for one, two in combinations(columns.values(), 2)) <= MOST_PRODUCTS:
            at_points = [each.cosines[:, bins[name]] for name, each in columns.items()]
            products = [(one[:, None] * two).reshape(-1, one.shape[1]) for one, two in combinations(at_points, 2)]
        size = sum(map(len, products))
        self.values = np.concatenate([np.zeros((0, len(next(iter(bins.values()))))), *values, *products])
        self.groups = np.concatenate([*(each.groups for each in own), np.full(size, PRODUCTS)])
        weights = 1 / np.arange(1, PAIRED + 1) ** 2
        relative = [
            np.outer(weights[: len(one.cosines)], weights[: len(two.cosines)]).ravel()
            for one, two in combinations(columns.values(), 2)
        ]
        self.relative = np.concatenate([*(each.variances for each in own), *(relative if products else [])])
        self.rough = np.concatenate([*(each.rough for each in own), *(relative if products else [])])
        self.held = np.concatenate([*(each.held for each in own), np.zeros(size)])

    def variances(self, scales: Floats) -> Floats:
        """The prior variance of each effect."""
        return self.relative * scales[self.groups] ** 2

    def means(self, scales: Floats) -> Floats:
        """The prior mean of each effect: single values of which the points have too many or too few."""
        root = np.sqrt(self.held)
        return np.divide(scales[self.groups], root, out=np.zeros(len(root)), where=root > 0) - root


@dataclass(frozen=True)
class Scales:
    """The scale of every group, and the variance of the white noise."""

    groups: Floats
    white: float

    @property
    def uneven(self) -> float:
        """The standard deviation of the density of a number, relative to an even one."""
        return float(np.sqrt(np.square(self.groups[:FREE]).sum()))


START = Scales(np.array([0.1] * LABELS + [0.1, 0.01, 1e-3, 1e-3]), 1e-4)


def estimated_scales(
    start: Scales, effects: Effects, covariance: Floats, gram: Floats, known: Floats, distance: Floats, groups: int
) -> Scales:
    """The scales that explain the distance of the released moments from those of the points. `covariance` is that of
    features and effects at the points, `known` that of the distance without any effects.
    """
    if len(gram) > MOST_SCANNED:
        chosen = np.random.default_rng(0).choice(len(gram), MOST_SCANNED, replace=False)
        gram, known = gram[np.ix_(chosen, chosen)], known[np.ix_(chosen, chosen)]
        covariance, distance = covariance[chosen], distance[chosen]
    scales, white = start.groups.copy(), start.white
    for _ in range(PASSES):
        for group in np.unique(effects.groups[effects.groups < groups]):
            mine, other = effects.groups == group, effects.groups != group
            variances = np.where(other, effects.variances(scales), 0.0)
            left = distance - covariance @ np.where(other, effects.means(scales), -np.sqrt(effects.held))
            own = covariance[:, mine]
            rising = (own / np.sqrt(effects.held[mine])).sum(axis=1) if group >= BOUND else np.zeros(len(left))
            others = known + white * gram + (covariance * variances) @ covariance.T
            scales[group] = _scale(others, own * np.sqrt(effects.relative[mine]), left, rising)
        others = known + (covariance * effects.variances(scales)) @ covariance.T
        white = _white(others, gram, distance - covariance @ effects.means(scales))
    return Scales(scales, white)


def likely_single(
    effects: Effects, known: Floats, covariance: Floats, rough: Floats, distance: Floats, means: Floats
) -> Floats:
    """The mean square of the difference of single values' effects from `means`, if their shares may be anything up to
    about DOUBT and the density is as rough; 0 for other effects. `known` is the covariance of the distance without any
    effects.
    """
    from scipy.linalg import cho_factor, cho_solve

    alone = effects.held > 0
    wide = np.where(alone, DOUBT**2 / np.where(alone, effects.held, 1.0), rough)
    none = -np.sqrt(effects.held)
    cross = covariance * wide
    factor = cho_factor(known + cross @ covariance.T)
    own = cross[:, alone]
    variances = np.maximum(wide[alone] - np.einsum("mk,mk->k", own, cho_solve(factor, own)), 0.0)
    shift = none[alone] + own.T @ cho_solve(factor, distance - covariance @ none) - means[alone]
    found = np.zeros(len(wide))
    found[alone] = variances + np.minimum(shift**2, wide[alone])
    return found


def _scale(others: Floats, factor: Floats, distance: Floats, rising: Floats) -> float:
    """The posterior mean of a scale s: the distance has mean s·rising and covariance others + s²·factor·factorᵀ."""
    from scipy.linalg import cholesky, solve_triangular, svd

    lower = cholesky(others, lower=True)
    whitened = solve_triangular(lower, np.column_stack([factor, distance, rising]), lower=True)
    vectors, lengths, _ = svd(whitened[:, :-2], full_matrices=False)
    shares = bool(rising.any())
    tried = np.geomspace(*(SHARES if shares else SPREADS), TRIED)[:, None]
    left = vectors.T @ whitened[:, -2] - tried * (vectors.T @ whitened[:, -1])
    usual = USUAL_SHARE if shares else USUAL
    mean = _posterior_mean(tried, lengths**2, left**2, 1 if shares else 2, usual)
    return mean if shares else mean**0.5


def _white(others: Floats, gram: Floats, distance: Floats) -> float:
    """The posterior mean of the variance of the white noise."""
    from scipy.linalg import eigh

    squares, vectors = eigh(gram, others)
    tried = np.geomspace(*SPREADS, TRIED)[:, None]
    return _posterior_mean(tried, np.maximum(squares, 0.0), (vectors.T @ distance) ** 2, 2, USUAL)


def _posterior_mean(tried: Floats, squares: Floats, distances: Floats, power: int, usual: float) -> float:
    variances = 1 + tried**2 * squares
    likelihood = -0.5 * (np.log(variances) + distances / variances).sum(axis=1)
    weights = np.exp(likelihood - likelihood.max()) / (1 + (tried[:, 0] / usual) ** 2)
    return float(weights @ tried[:, 0] ** power / weights.sum())
