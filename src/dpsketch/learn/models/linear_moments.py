"""Least squares from second moments, which are all that a linear model needs of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.models.design import Design
from dpsketch.learn.models.moment_matrix import COVARIANCE, moment_matrix
from dpsketch.learn.points import Frame
from dpsketch.maps.moments.second_moments import BoundSecondMoments
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import HIGHEST, LOWEST
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_REFITS: Annotated[int, UNRECORDED] = 24
_SEED = 17
# Of the penalty, assumed for the truth; none at all is too noisy to compare with.
_TRUE_PENALTY: Annotated[float, UNRECORDED] = 0.03


@dataclass(frozen=True)
class MomentFit:
    """Coefficients in the user's units (of the logarithm or asinh of a transformed target), with standard errors."""

    design: Design
    means: Floats
    coefficients: Floats
    intercept: Floats
    coefficients_stderr: Floats
    intercept_stderr: Floats


def moments_of(view: View, target: str, columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The predictor columns, if the release has second moments of them and the target; else None."""
    for _, moments in view.released.parts_with(BoundSecondMoments, (target, *(columns or ()))):
        return tuple(columns or [name for name in moments.columns if name != target])
    return None


def fit_moments(
    view: View, target: str, columns: tuple[str, ...], penalty: float | None, uncertainty: bool
) -> MomentFit:
    """Ridge regression on the noisy covariances without their negative eigenvalues.

    The default penalty is ½·σ·√(2(d+1)) for each squared coefficient of columns in half-widths of their bounds, where σ
    is the standard deviation of the noise in a covariance: a fourth of the largest eigenvalue of noise alone.

    Standard errors cover noise and the bias from the penalty. They take the matrix without its negative eigenvalues as
    the truth, and compare refits to it with new noise to its own coefficients with almost no penalty. Source: RESEARCH
    "Regression".
    """
    if not columns:
        raise QueryError("there is no column to learn from", "name at least one in columns")
    if target in columns:
        raise QueryError(f"'{target}' is the target and one of the columns", "leave it out of columns")
    found = moment_matrix(view, (*columns, target), COVARIANCE, 1)
    draws = [np.random.default_rng([_SEED, each]) for each in range(_REFITS)]
    redrawn = [found.redraw(found.value, draw) for draw in draws]
    deviation = float(np.sqrt(np.mean([(each - found.value) ** 2 for each in redrawn])))
    ridge = 0.5 * deviation * np.sqrt(2 * (len(columns) + 1))

    def solved(matrix: Floats, part: float = 1.0) -> Floats:
        """Solve with this fraction of the penalty."""
        possible = _possible(matrix)
        inner = possible[:-1, :-1]
        added = np.full(len(columns), ridge) if penalty is None else penalty * np.diag(inner)
        return np.asarray(np.linalg.lstsq(inner + np.diag(part * added), possible[:-1, -1], rcond=1e-12)[0])

    design = Design(view.schema, columns)
    middle, half = half_widths(view.schema, columns)
    (middle_y,), (half_y,) = half_widths(view.schema, (target,))
    means, mean_y = middle + half * found.means[:-1], middle_y + half_y * found.means[-1]
    coefficients = solved(found.value) * half_y / half
    intercept = mean_y - coefficients @ means
    errors, intercept_error = np.full(len(columns), np.nan), np.nan
    if uncertainty:
        possible = _possible(found.value)
        refits = [solved(found.redraw(possible, np.random.default_rng([_SEED, each]))) for each in range(_REFITS)]
        off = (np.array(refits) - solved(possible, _TRUE_PENALTY)) * half_y / half
        errors = np.sqrt(np.mean(off**2, axis=0))
        intercept_error = float(np.sqrt(np.mean((off @ means) ** 2)))
    return MomentFit(design, means, coefficients, np.array(intercept), errors, np.array(intercept_error))


def _possible(matrix: Floats) -> Floats:
    """The matrix without negative eigenvalues, as covariances are."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def half_widths(schema: Schema, columns: Sequence[str]) -> tuple[Floats, Floats]:
    """Midpoint and half-width of the bounds, in the units of the features."""
    corners = {name: np.array([LOWEST, HIGHEST], np.int16) for name in columns}
    low, high = Design(schema, columns).features(Frame(schema, corners))
    return (low + high) / 2, (high - low) / 2
