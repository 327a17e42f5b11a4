"""Kernel densities of a release, with scikit-learn's interface."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dpsketch.encoding.frames import named_columns
from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.control_variate import CORRECTED
from dpsketch.learn.estimators.kernel_sums import MEAN, MEDIAN, METHODS
from dpsketch.learn.estimators.radial_kernels import Bandwidth, Radial
from dpsketch.learn.models.density.convolved import Convolved
from dpsketch.learn.models.density.fourier_kernel import FourierKernel
from dpsketch.learn.models.density.full_table import FullTable, places_of, units_at
from dpsketch.learn.models.density.hashed import Hashed, corrected
from dpsketch.learn.models.density.kernel_choice import KernelChoice
from dpsketch.learn.models.density.population_kernel import PopulationKernel, better_release, population_kernel
from dpsketch.learn.models.model import Columns, Model
from dpsketch.learn.saved import Arrays, Facts, Saved, columns_of, real
from dpsketch.maps.base import check_columns
from dpsketch.maps.hashed.hashes import HashFamily, hash_from_dict
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_COMPARED: Annotated[int, UNRECORDED] = 200  # points at which two estimates are compared
# Relative error of the number of records, above which fits warn.
_NOISY: Annotated[float, Tuned("facebook", by=BY_HAND, decision=42)] = 0.05
_LOWEST: Annotated[float, UNRECORDED] = 0.1  # records: the least density


@dataclass(frozen=True)
class _Rows:
    """The noisy number of records."""

    value: float
    stderr: float

    def check(self) -> None:
        """Warn if densities, which are divided by this number, are inaccurate because of it."""
        if self.stderr > _NOISY * self.value:
            number = Answer(self.value, self.stderr)
            warnings.warn(
                f"the number of records is {number}, and densities are divided by it: they have an error of "
                f"{self.stderr / self.value:.0%} in common\n"
                "Hint: add Part(Count(), share=0.03) to the recipe, or compare kernel sums (view.kernel_sum)",
                FitWarning,
                stacklevel=3,
            )


class KernelDensity(Model):
    """Kernel densities of the records of a release: `fit(view)`.

    A density is the mean of k(x, point) over the records x: 1 where all are equal to the point. With "gaussian" and
    "laplacian" it is divided by the kernel's integral, as in scikit-learn.

    Three kinds of parts contain densities; if a release has several, the one with the smallest standard error is used.
    Hashed counters (`Race`) have the kernel of their hash and no other: `Euclidean`, `SignedProjection` (angles about
    the midpoint of the bounds), `InnerProduct`, `MinHash` (Jaccard similarity to a power) or products. A table of
    counts over one to three number columns (`Histogram(ways=…)`, or the marginal of one column) answers any kernel of
    distance whose bandwidth is at least half of a cell. Fourier sums (`Fourier(kernel="gaussian", width=0.1)`, or
    "laplacian") have the kernel that their frequencies were drawn for, whose bandwidth is the width. Any other release
    with a joint distribution answers kernels of distance from rows drawn from it, in all its columns of numbers and
    dates unless `columns` names others.

    `kernel` is a hash, such as `Euclidean(5000, scaled=False)`, or "euclidean", "gaussian" (exp(−r²/2) at r bandwidths)
    or "laplacian" (exp(−r)) with `bandwidth`: a number in widths of the declared bounds, or a mapping of columns to
    bandwidths in their units. The default is that of the first hashed counters or, with a table alone, the one that
    `Recipe.density` released it for; of another table, "euclidean" with the default bandwidth of `Recipe.density`, but
    at least a cell; of Fourier sums alone, their own. `columns` select the part, and the order of a matrix.

    `method` is "mean" or "median": the mean over the rows of hashed counters, or a median of means, which few unlucky
    hashes affect less.

    Records with a missing cell count as the midpoint of the bounds in hashed counters, as the lower bound in Fourier
    sums, and are excluded from a table. Among rows, a missing number counts as the midpoint.

    After `fit`: `kernel_`, `feature_names_in_`, `n_features_in_`, `how_` and `considered_`, the available estimates
    with their mean standard errors; of rows, `typical_`, the mean density at drawn rows with its mean standard error.
    """

    _estimator_type = "density_estimator"
    kernel_: HashFamily | Radial
    how_: str
    considered_: tuple[tuple[str, float], ...]
    typical_: Answer | None = None

    def __init__(
        self,
        kernel: HashFamily | str | None = None,
        bandwidth: Bandwidth | None = None,
        columns: Sequence[str] | None = None,
        method: str = MEAN,
    ) -> None:
        self.kernel, self.bandwidth, self.columns, self.method = kernel, bandwidth, columns, method

    def fit(self, view: View) -> KernelDensity:
        self._check_view(view)
        columns = check_columns("KernelDensity", self.columns)
        self._check_method()
        parts = KernelChoice(self.kernel, self.bandwidth).parts(view.released, columns)
        if parts is None:
            return self._fit_rows(view, columns)
        schema, rows, table, wanted = view.schema, view.rows_in_sums(), parts.table, parts.kernel
        self._rows = _Rows(float(rows.value), float(rows.stderr))
        if not any(part.map.only_counts for part in view.released.parts):
            self._rows.check()
        found: list[Hashed | Convolved | FourierKernel] = []
        if parts.counters is not None:
            found.append(corrected(parts.counters, view))
        if table is not None and isinstance(wanted, Radial) and self.method == MEAN:
            found.append(Convolved(table, wanted))
        if parts.fourier is not None and self.method == MEAN:
            found.append(parts.fourier)
        if not found:
            raise QueryError("a median of means is of hashed counters, and this release has none", "leave out method")
        errors = [0.0] if len(found) == 1 else _mean_errors(schema, found, table)
        order = np.argsort(errors, kind="stable")
        self._source = found[order[0]]
        names = [_how(source, table, self.method) for source in found]
        self.how_ = names[order[0]]
        self.considered_ = tuple((names[place], float(errors[place] / self._rows.value)) for place in order)
        self.kernel_ = self._source.hash if isinstance(self._source, Hashed) else wanted
        self._integral = wanted.integral if isinstance(wanted, Radial) else 1.0
        self.statement_ = view.statement
        self._set_features(schema, columns or self._source.columns)
        return self

    def _fit_rows(self, view: View, columns: tuple[str, ...] | None) -> KernelDensity:
        """Fit rows of the joint distribution."""
        choice = KernelChoice(self.kernel, self.bandwidth)
        source = population_kernel(view, choice, columns)
        if source is None:
            raise QueryError(
                f"this release holds no density{'' if columns is None else ' of ' + ', '.join(columns)}",
                "release one by Recipe.density, or with a part Race(…), Histogram(ways=…) or Fourier(kernel=…)",
            )
        if self.method != MEAN:
            raise QueryError("a median of means is of hashed counters, and this release has none", "leave out method")
        self._source, self.kernel_, self._integral = source, source.kernel, source.kernel.integral
        self._rows = _Rows(source.rows, 0.0)  # densities are means, which need no number of records
        self.how_, self.statement_ = source.how, view.statement
        value, stderr = source.at(source.drawn(_COMPARED))
        unit = source.rows * self._integral
        self.typical_ = Answer(float(value.mean()) / unit, float(stderr.mean()) / unit, self.how_)
        self.considered_ = ((self.how_, self.typical_.stderr),)
        self._set_features(view.schema, columns or source.columns)
        error = float(stderr.mean() / value.mean())
        better = better_release(view, source, error)
        if better is not None:
            warnings.warn(
                f"KernelDensity: fitted to rows of the joint distribution; at typical records the standard error is "
                f"{error:.2g} of the density\nHint: {better}",
                FitWarning,
                stacklevel=3,
            )
        return self

    @property
    def counters(self) -> Hashed | None:
        """The hashed counters that answer; None if a table does."""
        self._check_fitted()
        return self._source if isinstance(self._source, Hashed) else None

    def density(self, X: Any) -> Answer:
        """Densities at each row of a mapping, table or matrix in users' units, at least 0, with standard errors.

        `bound` is set where hashed counters answer.
        """
        self._check_fitted()
        rows, unit = self._rows, self._rows.value * self._integral
        if isinstance(self._source, Hashed):
            answer = self._source.at(self._in_order(X), self.method)
            value, stderr = answer.value, answer.stderr
        else:
            value, stderr = self._source.at(places_of(self._schema, self._source.columns, X))
            answer = Answer(value, stderr)
        relative = rows.stderr / rows.value
        error = np.sqrt(stderr**2 + (value * relative) ** 2) / unit
        bounds = None
        if answer.bounds is not None:
            of_sum = answer.bounds
            extra = 4 * relative * np.abs(value)
            bounds = lambda delta: (of_sum(delta) + extra) / unit  # noqa: E731
        considered = self.considered_ if len(self.considered_) > 1 else ()
        value = np.where(value < 0, 0.0, value)  # more accurate, as the truth is not negative
        return Answer(value / unit, error, self.how_, considered=considered, bounds=bounds)

    def plain_values(self, X: Any) -> Floats:
        """Sums of the kernel without correction, for searches with thousands of queries."""
        self._check_fitted()
        if isinstance(self._source, Hashed):
            return self._source.plain_at(self._in_order(X))
        places = places_of(self._schema, self._source.columns, X)
        return self._source.plain(places) if isinstance(self._source, PopulationKernel) else self._source.at(places)[0]

    def drawn(self, count: int) -> Floats | None:
        """Points of drawn rows between the bounds, scaled to 0 … 1, where rows answer."""
        self._check_fitted()
        return self._source.drawn(count) if isinstance(self._source, PopulationKernel) else None

    def score_samples(self, X: Any) -> Floats:
        """Logarithms of the densities, as in scikit-learn.

        Densities are first raised to the smallest standard error of the noise or a tenth of a record, whichever is
        larger, because noise may make them negative.
        """
        return self.logarithms(self.density(X).value)

    def logarithms(self, densities: Floats) -> Floats:
        """`score_samples` of densities that are already known."""
        least = max(self._source.least_error, _LOWEST) / (self._rows.value * self._integral)
        return np.log(np.maximum(densities, least))

    def scores(self, X: Any) -> Columns:
        answer = self.density(X)
        return {
            "density": answer.value,
            "density_stderr": answer.stderr,
            "log_density": self.logarithms(answer.value),
        }

    def plot(self, path: str | Path) -> None:
        """Plot the density over one or two columns of numbers to an SVG or PNG file."""
        from dpsketch.learn.models.density.density_plot import density_drawing

        self._check_fitted()
        names = tuple(self.feature_names_in_)
        if len(names) > 2 or not all(self._schema.column(name).numeric for name in names):
            raise QueryError(
                f"a density of {', '.join(names)} cannot be drawn", "plots are of one or two columns of numbers"
            )
        density_drawing(self, self._schema, names).save(path)

    def score(self, X: Any) -> float:
        """The sum of `score_samples`."""
        return float(self.score_samples(X).sum())

    def to_saved(self) -> Saved:
        """What `from_saved` needs to score rows: facts for JSON, and arrays. All of it is in the release."""
        self._check_fitted()
        facts, arrays = self._source.to_saved()
        return {
            "parameters": self._parameters(),
            "source": next(name for name, kind in _SOURCES.items() if isinstance(self._source, kind)),
            "facts": facts,
            "schema": self._schema.to_dict(),
            "columns": list(self.feature_names_in_),
            "kernel": self.kernel_.to_dict(),
            "rows": [self._rows.value, self._rows.stderr],
            "integral": self._integral,
            "how": self.how_,
            "considered": [list(each) for each in self.considered_],
        }, arrays

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> KernelDensity:
        parameters, hashed = dict(facts["parameters"]), _SOURCES[facts["source"]] is Hashed
        choice = KernelChoice.from_dict(parameters)
        found = cls(**parameters | {"kernel": choice.kernel})
        found._check_method()
        schema = Schema.from_dict(facts["schema"])
        found._source = _SOURCES[facts["source"]].from_saved(facts["facts"], arrays)
        kernel = hash_from_dict(facts["kernel"]) if hashed else Radial.from_dict(facts["kernel"])
        columns = columns_of(schema, facts["columns"])
        if set(columns) != set(found._source.columns):
            raise ValueError("columns")
        if isinstance(found._source, Hashed):
            if found._source.hash != kernel or found._source.schema != schema:
                raise ValueError("kernel")
        elif not isinstance(kernel, Radial) or len(kernel.spans) != len(columns):
            raise ValueError("kernel")
        found.kernel_ = kernel
        rows, error = facts["rows"]
        found._rows = _Rows(real(rows, 1), real(error, 0))
        found._integral, found.how_ = real(facts["integral"], 0), str(facts["how"])
        if found._integral == 0:
            raise ValueError("integral")
        found.considered_ = tuple((str(how), real(error, 0)) for how, error in facts["considered"])
        found._set_features(schema, columns)
        return found

    def _parameters(self) -> Facts:
        """Arguments of the constructor, as plain values."""
        columns = None if self.columns is None else [str(name) for name in self.columns]
        method = {} if self.method == MEAN else {"method": self.method}
        return KernelChoice(self.kernel, self.bandwidth).to_dict() | {"columns": columns} | method

    def _in_order(self, X: Any) -> Any:
        """X for hashed counters, whose columns may have another order than the requested one."""
        points = self._points(X)
        if not isinstance(points, np.ndarray) or self._columns == self._source.columns:
            return points
        return named_columns(self._columns, points)

    def _check_method(self) -> None:
        if self.method not in METHODS:
            raise QueryError(f"method must be one of {', '.join(METHODS)}, got {self.method!r} instead")


_Source = Hashed | Convolved | FourierKernel | PopulationKernel
_SOURCES: dict[str, type[Hashed] | type[Convolved] | type[FourierKernel] | type[PopulationKernel]] = {
    "hashed": Hashed,
    "table": Convolved,
    "fourier": FourierKernel,
    "rows": PopulationKernel,
}


def _how(source: Hashed | Convolved | FourierKernel, table: FullTable | None, method: str) -> str:
    if isinstance(source, FourierKernel):
        return f"{len(source.sums)} Fourier frequencies of the kernel"
    if isinstance(source, Hashed):
        end = "" if source.control is None else CORRECTED
        start = "median of means of " if method == MEDIAN else ""
        return f"{start}{source.race.rows} rows of hashed counters{end}"
    assert table is not None
    return f"{table.how}, convolved with the kernel"


def _mean_errors(
    schema: Schema, found: Sequence[Hashed | Convolved | FourierKernel], table: FullTable | None
) -> list[float]:
    """Mean standard errors at points where the table has records."""
    assert table is not None
    places = table.drawn(_COMPARED, np.random.default_rng(0))
    points = units_at(schema, table.columns, places)
    return [
        float(np.mean(source.at(points).stderr if isinstance(source, Hashed) else source.at(places)[1]))
        for source in found
    ]
