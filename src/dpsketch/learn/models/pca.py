"""Principal components from a release."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.answer_pictures import BARS
from dpsketch.learn.models.design import Design
from dpsketch.learn.models.linear_moments import half_widths
from dpsketch.learn.models.model import Columns, Model
from dpsketch.learn.models.moment_matrix import COVARIANCE, WHAT, moment_matrix
from dpsketch.learn.models.spectrum import axes
from dpsketch.learn.saved import Arrays, Facts, Saved, finite, floats, whole
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import NAMES, Axis, Picture, Series
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

# Mean squared length of records over the squared radius of the ball, above which many are clipped.
MOST_LENGTH: Annotated[float, UNRECORDED] = 0.5
GOOD_FIT: Annotated[float, UNRECORDED] = 1.5  # mean squared residual over the noise variance
CHANCE: Annotated[float, UNRECORDED] = 6.0  # over the square root of the number of sums
_REFITS: Annotated[int, UNRECORDED] = 24
_LOW_RANK_REFITS: Annotated[int, Tuned("simulated matrices", by=BY_HAND, decision=53)] = 16  # each is a descent
_FEW_REFITS: Annotated[int, UNRECORDED] = 8
_MANY_COLUMNS: Annotated[int, UNRECORDED] = 200
_VARIANCES = ("explained_variance", "explained_variance_ratio")
_ARRAYS = ("components", "components_stderr", "mean", *_VARIANCES, *(f"{name}_stderr" for name in _VARIANCES))
_NUMBERS = ("noise_variance", "goodness_of_fit")


class PCA(Model):
    """Principal components of a release, with scikit-learn's interface: `fit(view)`.

    `of="covariance"` takes the columns' covariances in the user's units, as scikit-learn does (but divided by the
    number of records, not by one less). `of="second_moments"` takes uncentred second moments about the midpoint of the
    bounds, for columns scaled to [-1, 1] by their bounds: what `SecondMoments` and `Quadratic` sum up, with records
    clipped to their ball. The first needs means in the release, the second needs nothing more.

    A transformed column counts as its logarithm or asinh, a date in days. `columns` are by default all numbers and
    integers in the release's part.

    After `fit`: `components_` (one row each, the largest entry positive), `explained_variance_` (of the records along
    `components_`), `explained_variance_ratio_`, `mean_`, `noise_variance_`, each of the first three also as
    `…_stderr_`; `feature_names_in_`, `how_`, `converged_` and `goodness_of_fit_`: the mean squared distance of sums to
    fit over the variance of the noise, about 1 or below.
    """

    _estimator_type = "transformer"

    def __init__(self, n_components: int, columns: Sequence[str] | None = None, of: str = COVARIANCE) -> None:
        self.n_components, self.columns, self.of = n_components, columns, of

    def fit(self, view: View, uncertainty: bool = True) -> PCA:
        """Fit the components to a release.

        `uncertainty=False` omits refits to new noise, and with them standard errors and the bias correction of the
        variances, which noise inflates.
        """
        self._check_view(view)
        self._check()
        rank = self.n_components + (self.of == COVARIANCE)  # the mean is one more direction of second moments
        found = moment_matrix(view, self.columns, self.of, rank)
        dimension = len(found.columns)
        if self.n_components > dimension:
            raise QueryError(
                f"n_components must be at most the number of columns, {dimension}, got {self.n_components} instead"
            )
        self._set_design(view.schema, found.columns)
        self.statement_ = view.statement
        scale = self._half if self.of == COVARIANCE else np.ones(dimension)
        both = np.outer(scale, scale)
        few = _LOW_RANK_REFITS if "rank" in found.how else _REFITS
        refits = (few if dimension <= _MANY_COLUMNS else _FEW_REFITS) * (uncertainty and found.errors_known)
        result = axes(
            found.value * both,
            lambda truth, generator: found.redraw(truth / both, generator) * both,
            self.n_components,
            refits,
        )
        self.components_, self.components_stderr_ = result.components, result.components_stderr
        self.explained_variance_, self.explained_variance_stderr_ = result.variance, result.variance_stderr
        self.explained_variance_ratio_, self.explained_variance_ratio_stderr_ = result.ratio, result.ratio_stderr
        self.mean_: Floats = self._middle + self._half * found.means
        left = result.total - float(result.variance.sum())
        self.noise_variance_ = max(left, 0.0) / max(dimension - self.n_components, 1)
        self.how_, self.converged_, self.goodness_of_fit_ = found.how, found.converged, found.goodness
        self._set_features(view.schema, found.columns)
        self._warn(found.length if self.of == COVARIANCE else 0.0, found.errors_known)
        return self

    def _set_design(self, schema: Schema, columns: Sequence[str]) -> None:
        self._design = Design(schema, columns)
        self._middle, self._half = half_widths(schema, columns)

    def transform(self, X: Any) -> Floats:
        """Coordinates along the components for the rows of a mapping or table of columns in the user's units.

        Missing cells count as means, or with second moments as the midpoint. Nothing is clipped to the ball.
        """
        return self._centred(X) @ self.components_.T

    def scores(self, X: Any) -> Columns:
        return {f"component_{number}": along for number, along in enumerate(self.transform(X).T, 1)}

    def score(self, X: Any) -> float:
        """Mean log-likelihood of rows under the model of probabilistic PCA, as in scikit-learn."""
        centred = self._centred(X)
        dimension = centred.shape[1]
        rest = max(self.noise_variance_, 1e-9 * float(self.explained_variance_.sum()), 1e-300)
        along = centred @ self.components_.T
        inside = np.maximum(self.explained_variance_, rest)
        if self.n_components == dimension:
            left, logarithm = 0.0, float(np.log(inside).sum())
        else:
            left = ((centred**2).sum(axis=1) - (along**2).sum(axis=1)) / rest
            logarithm = float(np.log(inside).sum()) + (dimension - self.n_components) * np.log(rest)
        distance = left + (along**2 / inside).sum(axis=1)
        return float(np.mean(-0.5 * (distance + logarithm + dimension * np.log(2 * np.pi))))

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row per component, with its entries by column."""
        self._check_fitted()
        return [
            {
                "component": place + 1,
                "explained_variance": float(self.explained_variance_[place]),
                "explained_variance_stderr": float(self.explained_variance_stderr_[place]),
                "explained_variance_ratio": float(self.explained_variance_ratio_[place]),
                "explained_variance_ratio_stderr": float(self.explained_variance_ratio_stderr_[place]),
            }
            | dict(zip(self.feature_names_in_.tolist(), map(float, self.components_[place]), strict=True))
            for place in range(self.n_components)
        ]

    def to_saved(self) -> Saved:
        self._check_fitted()
        facts = {
            "n_components": self.n_components,
            "of": self.of,
            "schema": self._design.schema.to_dict(),
            "columns": list(self._design.columns),
            "named": self.columns is not None,
            "how": self.how_,
            "converged": bool(self.converged_),
        }
        arrays = {name: getattr(self, f"{name}_") for name in _ARRAYS}
        single = {name: np.array([getattr(self, f"{name}_")], np.float64) for name in _NUMBERS}
        return facts, arrays | single

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> PCA:
        count, columns = whole(facts["n_components"], 1), facts["columns"]
        model = cls(count, tuple(columns) if facts["named"] else None, facts["of"])
        model._check()
        schema = Schema.from_dict(facts["schema"])
        model._set_design(schema, columns)
        dimension = len(columns)
        shapes = {"components": (count, dimension), "components_stderr": (count, dimension), "mean": (dimension,)}
        for name in _ARRAYS:
            read = floats if name.endswith("_stderr") else finite
            setattr(model, f"{name}_", read(arrays, name, *shapes.get(name, (count,))))
        for name in _NUMBERS:
            setattr(model, f"{name}_", float(floats(arrays, name, 1)[0]))
        model.how_, model.converged_ = str(facts["how"]), facts["converged"] is True
        model._set_features(schema, columns)
        return model

    def plot(self, path: str | Path) -> None:
        """Plot the share of variance along each component, with 95 % intervals, to an SVG or PNG file."""
        self._check_fitted()
        variances_drawing(self.explained_variance_ratio_, self.explained_variance_ratio_stderr_).save(path)

    def _centred(self, X: Any) -> Floats:
        frame = self._frame(X)
        features = self._design.features(frame)
        centred = np.where(np.isnan(features), 0.0, features - self.mean_)
        return centred if self.of == COVARIANCE else centred / self._half

    def _check(self) -> None:
        count = self.n_components
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise QueryError(f"n_components must be a whole number of at least 1, got {count!r} instead")
        if self.of not in WHAT:
            raise QueryError(f"of must be one of {', '.join(WHAT)}, got {self.of!r} instead")

    def _warn(self, length: float, errors_known: bool) -> None:
        """Warn about a poor fit. `length` is the mean squared length of records, where clipping would
        bias the result.
        """
        if not errors_known:
            warnings.warn(
                "PCA: these squares of projections do not determine variances; their standard errors are not known.\n"
                "Hint: release more directions, of kind 'hadamard3' or 'gaussian', or SecondMoments",
                FitWarning,
                stacklevel=3,
            )
        if not self.converged_:
            warnings.warn(
                "PCA: the fit did not converge; components may still change.\n"
                "Hint: release SecondMoments, which needs no fit, or fewer components",
                FitWarning,
                stacklevel=3,
            )
        elif self.goodness_of_fit_ > GOOD_FIT + CHANCE / (len(self.mean_) * (len(self.mean_) + 1) / 2) ** 0.5:
            warnings.warn(
                f"PCA: poor fit: squared residuals are {self.goodness_of_fit_:.1f} times the variance of the noise.\n"
                "Hint: squares of projections miss what is not of low rank: release more of them, or SecondMoments; "
                "covariances need records that the ball does not clip: raise its radius, or ask for second_moments",
                FitWarning,
                stacklevel=3,
            )
        elif length > MOST_LENGTH:
            warnings.warn(
                f"PCA: the mean squared length of records is {length:.0%} of the ball's squared radius: many are "
                "clipped, covariances are biased downwards, and standard errors do not cover this.\n"
                "Hint: release with a larger radius, or ask for of='second_moments', which are of clipped records",
                FitWarning,
                stacklevel=3,
            )


def variances_drawing(shares: Floats, errors: Floats) -> Drawing:
    """The share of variance along each component, with 95 % intervals, and along all up to it."""
    names = tuple(str(index + 1) for index in range(len(shares)))
    around = 1.96 * np.nan_to_num(errors)
    bars = Series("bars", np.zeros(0), shares, shares - around, shares + around, "each component")
    line = Series.exact("line", np.arange(float(len(shares))), np.cumsum(shares), "all up to this one")
    axes = Axis("component", NAMES, names), Axis("share of the variance")
    return Drawing((Picture("explained variance", *axes, (bars, line), note=BARS),))
