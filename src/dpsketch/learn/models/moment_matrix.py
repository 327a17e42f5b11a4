"""Second moments or covariances of a release's columns as one noisy matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.models.quadratic_fit import LeastSquares, low_rank, sees_diagonal
from dpsketch.learn.models.spectrum import Redraw, projected
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.selection import Selection
from dpsketch.maps.moments.quadratic import BoundQuadratic
from dpsketch.maps.moments.second_moments import BoundSecondMoments
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.mechanisms import triangle_dimension
from dpsketch.schema.columns import HIGHEST, MISSING, Category, Column, IdSet
from dpsketch.sketch.released import ReleasedPart

if TYPE_CHECKING:
    from dpsketch.learn.points import Frame
    from dpsketch.learn.view import View

COVARIANCE, SECOND_MOMENTS = "covariance", "second_moments"
WHAT = (COVARIANCE, SECOND_MOMENTS)
_SEED, _ROUNDING = 13, 1e-12


@dataclass(frozen=True)
class MomentMatrix:
    """Covariances, or second moments about the midpoint of the bounds, in half-widths of the columns' declared bounds.

    `redraw` simulates another release, with a given matrix as the truth. `goodness` is the mean squared distance of the
    sums to those of the nearest positive semidefinite matrix, over the noise's variance: about 1 or below for a good
    fit. `errors_known` is False where the sums determine neither the matrix nor its error.
    `length` is the mean squared length of records, as clipped, over the squared radius of the ball that clips
    them; 0 where none does.
    """

    columns: tuple[str, ...]
    value: Floats
    means: Floats
    redraw: Redraw
    how: str
    converged: bool
    goodness: float
    length: float = 0.0
    errors_known: bool = True


def moment_matrix(view: View, columns: Sequence[str] | None, of: str, rank: int) -> MomentMatrix:
    """The matrix from second moments, else from squares of projections, else from the view's answers of covariances."""
    names = None if columns is None else _checked(view, columns)
    for part, moments in view.released.parts_with(BoundSecondMoments, names, grouped=True):
        return _from_part(view, part, moments, partial(_Triangle, moments), names, of)
    for part, squares in view.released.parts_with(BoundQuadratic, names, grouped=True):
        return _from_part(view, part, squares, partial(_Projections, squares, rank), names, of)
    return _from_answers(view, names or _numbers(view, None), of)


def _checked(view: View, columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise QueryError("columns must be a list of names", f"write ['{columns}', …]")
    for name in columns:
        if isinstance(find_column(view.schema, name), Category | IdSet):
            raise QueryError(
                f"column '{name}' is a {find_column(view.schema, name).kind}: principal components need numbers",
                "name numbers, integers, booleans or dates",
            )
    if not columns or len(set(columns)) < len(columns):
        raise QueryError("columns must name at least one column, each once")
    return tuple(columns)


def _numbers(view: View, among: Sequence[str] | None) -> tuple[str, ...]:
    """Numbers and integers of the release."""
    found = [column for column in view.schema.scalars if column.arithmetic]
    names = tuple(column.name for column in found if among is None or column.name in among)
    if not names:
        raise QueryError("there is no column with numbers to find components of", "name booleans or dates in columns")
    return names


def _from_part(
    view: View,
    part: ReleasedPart,
    bound: BoundSecondMoments | BoundQuadratic,
    decode: Callable[[Floats, Floats], _Triangle | _Projections],
    columns: tuple[str, ...] | None,
    of: str,
) -> MomentMatrix:
    """Second moments of the part's records and, for covariances, their means."""
    groups, rate, names = part.map.groups, part.map.rate, columns or _numbers(view, part.map.columns)
    rows = view.rows_in_sums()
    count, doubt = float(rows.value), float(rows.stderr) / float(rows.value)
    unit = bound.grid * count * rate
    sums = part.sums.reshape(groups, -1).sum(axis=0, dtype=np.int64) / unit
    masks = 3 * float(np.mean(sums**2)) * (1 / rate - 1) / count  # E(ω·x)⁴ of normal projections is 3·(E(ω·x)²)²
    variances = np.broadcast_to(groups * part.noise_variances, sums.shape) / unit**2 + masks
    fit = decode(sums, variances)
    radius = bound.ball / HIGHEST
    places = np.array([part.map.columns.index(name) for name in names])
    chosen = np.ix_(places, places)
    constant = bound.constant / bound.ball
    nothing = np.zeros(len(names))
    if of == COVARIANCE and constant:
        means, doubts = fit.matrix[places, -1] * (radius / constant), nothing
    else:
        means, doubts = _means(view, names) if of == COVARIANCE else (nothing, nothing)
    value = fit.matrix[chosen] * radius**2 - np.outer(means, means)

    def redraw(truth: Floats, generator: np.random.Generator) -> Floats:
        """A simulated release; columns that were not asked for keep their estimates."""
        full = fit.matrix.copy()
        full[chosen] = (truth + np.outer(means, means)) / radius**2
        drawn = fit.redraw(full, generator) / max(1 + doubt * generator.normal(), 0.1)
        moved = means + doubts * generator.normal(size=len(names))
        if of == COVARIANCE and constant:
            moved = drawn[places, -1] * (radius / constant)
        return np.asarray(drawn[chosen] * radius**2 - np.outer(moved, moved))

    goodness = _misfit(value, redraw) if fit.goodness is None else fit.goodness
    how, length, every = fit.how, 0.0, len(part.map.columns)
    if radius < every**0.5 * (1 - 1e-3):
        how += f" of records clipped to a ball of {radius:.3g} half-widths"
        length = float(np.trace(fit.matrix[:every, :every]))
    return MomentMatrix(names, value, means, redraw, how, fit.converged, goodness, length, fit.errors_known)


class _Triangle:
    """Sums that are the matrix itself."""

    converged = errors_known = True
    how = "second moments"
    goodness: float | None = None

    def __init__(self, bound: BoundSecondMoments, sums: Floats, variances: Floats) -> None:
        self._triangle = np.triu_indices(triangle_dimension(bound.size))
        self._deviations = np.sqrt(variances)
        self.matrix = self._square(sums)

    def redraw(self, truth: Floats, generator: np.random.Generator) -> Floats:
        return truth + self._square(self._deviations * generator.normal(size=len(self._deviations)))

    def _square(self, triangle: Floats) -> Floats:
        size = int(self._triangle[0][-1]) + 1
        found = np.zeros((size, size))
        found[self._triangle] = triangle
        return found + np.triu(found, 1).T


class _Projections:
    """Squares of projections: least squares where they determine the matrix, else a low-rank fit."""

    def __init__(self, bound: BoundQuadratic, rank: int, sums: Floats, variances: Floats) -> None:
        self._directions, self._variance = bound.directions, float(variances[0])
        self._least = LeastSquares(self._directions)
        self.errors_known = True
        size, dimension = self._directions.shape
        if self._least.known:
            self.matrix, self.converged = self._least.matrix(sums), True
            self.how = f"least squares on {size} squares of projections"
            self.goodness: float | None = self._residual(sums)
            return
        self._rank = min(max(rank, min(2 * rank, size // (2 * dimension))), dimension)
        fit = low_rank(self._directions, sums, self._variance, self._rank)
        self.matrix, self.converged = fit.matrix, fit.converged
        self.how = f"matrix of rank {self._rank} fitted to {size} squares of projections"
        self.goodness = fit.residual / self._variance if self._variance else float("nan")
        self.errors_known = fit.free > 0 and sees_diagonal(self._directions)
        self._variance = fit.error_variance(self._variance)

    def _residual(self, sums: Floats) -> float:
        values, vectors = projected(self.matrix)
        possible = (vectors.T * values) @ vectors
        if not self._variance:
            return float("nan")
        return float(np.mean((sums - self._squares(possible)) ** 2) / self._variance)

    def _squares(self, matrix: Floats) -> Floats:
        return np.asarray(((self._directions @ matrix) * self._directions).sum(axis=1))

    def redraw(self, truth: Floats, generator: np.random.Generator) -> Floats:
        """Refits start afresh: from the fit that they are compared with, they would find it again."""
        sums = self._squares(truth) + np.sqrt(self._variance) * generator.normal(size=len(self._directions))
        if self._least.known:
            return self._least.matrix(sums)
        return low_rank(self._directions, sums, self._variance, self._rank).matrix


def _misfit(value: Floats, redraw: Redraw) -> float:
    """Distance of a noisy matrix to the nearest positive semidefinite one, over the standard deviation of the noise."""
    values, vectors = projected(value)
    possible = (vectors.T * values) @ vectors
    moved = [np.mean((redraw(possible, np.random.default_rng([_SEED, each])) - possible) ** 2) for each in range(4)]
    if np.mean(moved) < (_ROUNDING * np.abs(value).max()) ** 2:
        return float("nan")  # no noise
    return float(np.mean((value - possible) ** 2) / np.mean(moved))


def _means(view: View, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Means in half-widths from the midpoint; a missing cell counts as the midpoint, as in the second moments."""
    for name in names:
        if not view.knows((name,)):
            raise QueryError(
                f"this release holds second moments, but not the mean of '{name}', which covariances need",
                f"release SecondMoments(means=True), as Recipe.pca does, or ask for PCA(…, of='{SECOND_MOMENTS}'), "
                "about the middle of the bounds",
            )
    codes = [_code(view.schema.column(name)) for name in names]
    estimates = [view.best((code,), Selection.share).estimate for code in codes]
    return (
        np.array([float(each.value[0]) for each in estimates]),
        np.array([float(each.stderr[0]) for each in estimates]),
    )


def _from_answers(view: View, names: tuple[str, ...], of: str) -> MomentMatrix:
    """Covariances as the view answers them, over records where both cells are present."""
    if not view.knows(names[:2]):
        raise QueryError(
            "this release has no covariances of columns",
            "release Recipe.pca(schema, …), or add Part(SecondMoments(means=True), share=0.5) to the recipe",
        )
    codes = [_code(view.schema.column(name)) for name in names]
    answer, means = view.covariances(names, codes, [_present(name) for name in names])
    value, deviations = answer.value, np.triu(answer.stderr)
    shift = np.outer(means, means) if of == SECOND_MOMENTS else np.zeros_like(value)

    def redraw(truth: Floats, generator: np.random.Generator) -> Floats:
        noise = deviations * generator.normal(size=truth.shape)
        return truth + noise + np.triu(noise, 1).T

    centre = np.zeros(len(names)) if of == SECOND_MOMENTS else means
    return MomentMatrix(names, value + shift, centre, redraw, answer.how, True, _misfit(value, redraw))


def _code(column: Column) -> Factor:
    """A column scaled from its bounds to −1 … 1; 0 where missing."""

    def each(frame: Frame) -> Floats:
        codes = frame.codes(column.name)
        return np.where(codes == MISSING, 0.0, codes / HIGHEST)[None, :]

    return Factor((column.name,), each)


def _present(name: str) -> Factor:
    return Factor((name,), lambda frame: (frame.codes(name) != MISSING)[None, :].astype(np.float64))
