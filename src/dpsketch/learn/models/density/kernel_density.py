"""Kernel densities of a release, with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dpsketch.encoding.frames import named_columns
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators import radial_kernels as radial
from dpsketch.learn.estimators.control_variate import CORRECTED
from dpsketch.learn.estimators.radial_kernels import Bandwidth, Radial
from dpsketch.learn.models.density.convolved import Convolved
from dpsketch.learn.models.density.fourier_kernel import FourierKernel, fourier_kernels
from dpsketch.learn.models.density.full_table import FullTable, full_table, places_of, units_at
from dpsketch.learn.models.density.hashed import Hashed, corrected, hashed_counters
from dpsketch.learn.models.model import Columns, Model
from dpsketch.learn.saved import Arrays, Facts, Saved, columns_of, real
from dpsketch.maps.base import check_columns
from dpsketch.maps.hashed.hashes import Euclidean, HashFamily, hash_from_dict
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.recipe.tasks.density_task import default_bandwidth
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_COMPARED: Annotated[int, UNRECORDED] = 200  # points at which two estimates are compared
_LOWEST: Annotated[float, UNRECORDED] = 0.1  # records: the least density


@dataclass(frozen=True)
class _Rows:
    """The noisy number of records."""

    value: float
    stderr: float


class KernelDensity(Model):
    """Kernel densities of the records of a release: `fit(view)`.

    A density is the mean of k(x, point) over the records x: 1 where all are equal to the point. With "gaussian" and
    "laplacian" it is divided by the kernel's integral, as in scikit-learn.

    Three kinds of parts contain densities; if a release has several, the one with the smallest standard error is used.
    Hashed
    counters (`Race`) have the kernel of their hash and no other: `Euclidean`, `SignedProjection` (angles about the
    midpoint of the bounds), `InnerProduct`, `MinHash` (Jaccard similarity to a power) or products. A table of counts
    over one to three number columns (`Histogram(ways=…)`, or the marginal of one column) answers any kernel of distance
    whose bandwidth is at least half of a cell. Fourier sums (`Fourier(kernel="gaussian", width=0.1)`, or "laplacian")
    have the kernel that their frequencies were drawn for, whose bandwidth is the width.

    `kernel` is a hash, such as `Euclidean(5000, scaled=False)`, or "euclidean", "gaussian" (exp(−r²/2) at r bandwidths)
    or "laplacian" (exp(−r)) with `bandwidth`: a number in widths of the declared bounds, or a mapping of columns to
    bandwidths in their units. The default is that of the hashed counters or, with a table alone, "euclidean" with the
    default bandwidth of `Recipe.density`, but at least a cell, or that of the Fourier sums. `columns` select the part,
    and the order of a matrix.

    Records with a missing cell count as the midpoint of the bounds in hashed counters, as the lower bound in Fourier
    sums, and are excluded from a table.

    After `fit`: `kernel_`, `feature_names_in_`, `n_features_in_`, `how_` and `considered_`, the available estimates
    with their mean standard errors.
    """

    _estimator_type = "density_estimator"
    kernel_: HashFamily | Radial
    how_: str
    considered_: tuple[tuple[str, float], ...]

    def __init__(
        self,
        kernel: HashFamily | str | None = None,
        bandwidth: Bandwidth | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.kernel, self.bandwidth, self.columns = kernel, bandwidth, columns

    def fit(self, view: View) -> KernelDensity:
        self._check_view(view)
        self._check()
        columns = check_columns("KernelDensity", self.columns)
        hashed = hashed_counters(view.released, columns)
        table = full_table(view.released, columns or (None if hashed is None else hashed.columns))
        first = next((each.columns for each in (table, hashed) if each is not None), None)
        fourier = fourier_kernels(view.released, columns or first)
        if hashed is None and table is None and not fourier:
            raise QueryError(
                f"this release holds no density{'' if columns is None else ' of ' + ', '.join(columns)}",
                "release one by Recipe.density, or with a part Race(…), Histogram(ways=…) or Fourier(kernel=…)",
            )
        schema, rows = view.schema, view.rows_in_sums()
        self._rows = _Rows(float(rows.value), float(rows.stderr))
        wanted = self._wanted(schema, hashed, table, fourier)
        found: list[_Source] = []
        if hashed is not None and _has(schema, hashed, wanted):
            found.append(corrected(hashed, view))
        if table is not None and isinstance(wanted, Radial):
            found.append(Convolved(table, wanted))
        found += [source for kernel, source in fourier if isinstance(wanted, Radial) and kernel.same(wanted)][:1]
        if not found:
            raise self._refused(hashed, table, fourier)
        errors = [0.0] if len(found) == 1 else _mean_errors(schema, found, table)
        order = np.argsort(errors, kind="stable")
        self._source = found[order[0]]
        names = [_how(source, table) for source in found]
        self.how_ = names[order[0]]
        self.considered_ = tuple((names[place], float(errors[place] / self._rows.value)) for place in order)
        self.kernel_ = self._source.hash if isinstance(self._source, Hashed) else wanted
        self._integral = wanted.integral if isinstance(wanted, Radial) else 1.0
        self.statement_ = view.statement
        self._set_features(schema, columns or self._source.columns)
        return self

    def density(self, X: Any) -> Answer:
        """Densities at each row of a mapping, table or matrix in users' units, at least 0, with standard errors.

        `bound` is set where hashed counters answer.
        """
        self._check_fitted()
        rows, unit = self._rows, self._rows.value * self._integral
        if isinstance(self._source, Hashed):
            answer = self._source.at(self._in_order(X))
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
        return self._source.at(places_of(self._schema, self._source.columns, X))[0]

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
        """Plot the density over one or two columns of numbers to a PNG file."""
        from dpsketch.learn.models.density.density_plot import plot_density

        self._check_fitted()
        names = tuple(self.feature_names_in_)
        if len(names) > 2 or not all(self._schema.column(name).numeric for name in names):
            raise QueryError(
                f"a density of {', '.join(names)} cannot be drawn", "plots are of one or two columns of numbers"
            )
        plot_density(path, self, self._schema, names)

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
        if isinstance(parameters["kernel"], Mapping):
            parameters["kernel"] = hash_from_dict(parameters["kernel"])
        found = cls(**parameters)
        found._check()
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
        kernel, bandwidth, columns = self.kernel, self.bandwidth, self.columns
        if isinstance(bandwidth, Mapping):
            plain: Any = {str(name): _plain(number) for name, number in bandwidth.items()}
        else:
            plain = None if bandwidth is None else _plain(bandwidth)
        return {
            "kernel": kernel.to_dict() if isinstance(kernel, HashFamily) else kernel,
            "bandwidth": plain,
            "columns": None if columns is None else [str(name) for name in columns],
        }

    def _in_order(self, X: Any) -> Any:
        """X for hashed counters, whose columns may have another order than the requested one."""
        points = self._points(X)
        if not isinstance(points, np.ndarray) or self._columns == self._source.columns:
            return points
        return named_columns(self._columns, points)

    def _check(self) -> None:
        if self.kernel is not None and not isinstance(self.kernel, HashFamily | str):
            raise QueryError(
                f"kernel must be one of {', '.join(radial.NAMES)} or a hash such as Euclidean(0.1), "
                f"got {self.kernel!r} instead"
            )
        if isinstance(self.kernel, HashFamily) and self.bandwidth is not None:
            raise QueryError("the bandwidth is part of the kernel", "write kernel=Euclidean(bandwidth)")

    def _wanted(
        self,
        schema: Schema,
        hashed: Hashed | None,
        table: FullTable | None,
        fourier: Sequence[tuple[Radial, FourierKernel]],
    ) -> HashFamily | Radial:
        """The requested kernel, as one of distances whenever it is one."""
        alone = hashed is None and table is None
        columns = next(each.columns for each in (table, hashed, *(own for _, own in fourier)) if each is not None)
        kernel = self.kernel
        if kernel is None and self.bandwidth is None:
            if alone:
                return fourier[0][0]
            if hashed is not None:
                kernel = hashed.hash
            else:
                assert table is not None
                kernel = Euclidean(max(default_bandwidth(len(columns)), *(axis.step for axis in table.axes)))
        if isinstance(kernel, HashFamily):
            embedded = hashed is not None and hashed.embedded
            if isinstance(kernel, Euclidean) and not embedded and all(schema.column(n).numeric for n in columns):
                return radial.euclidean(schema, columns, kernel)
            return kernel
        if self.bandwidth is None:
            raise QueryError(f"kernel '{kernel}' needs a bandwidth", "pass bandwidth=0.05, in widths of the bounds")
        default = fourier[0][0].name if alone else radial.EUCLIDEAN
        return radial.named(schema, columns, kernel or default, self.bandwidth)

    def _refused(
        self, hashed: Hashed | None, table: FullTable | None, fourier: Sequence[tuple[Radial, FourierKernel]]
    ) -> QueryError:
        has = []
        if hashed is not None:
            has.append(f"hashed counters with {hashed.hash}, which is their only kernel")
        if table is not None:
            has.append("a table, for kernels of distance")
        has += [f"Fourier sums with kernel '{kernel.name}', width {1 / max(kernel.spans):g}" for kernel, _ in fourier]
        asked = self.kernel if self.kernel is not None else f"bandwidth {self.bandwidth}"
        return QueryError(f"this release does not hold {asked}", f"it holds {' and '.join(has)}")


def _plain(number: float) -> float:
    return number if type(number) is int else float(number)


_Source = Hashed | Convolved | FourierKernel
_SOURCES: dict[str, type[Hashed] | type[Convolved] | type[FourierKernel]] = {
    "hashed": Hashed,
    "table": Convolved,
    "fourier": FourierKernel,
}


def _has(schema: Schema, hashed: Hashed, wanted: HashFamily | Radial) -> bool:
    if not isinstance(wanted, Radial):
        return hashed.hash == wanted
    family = hashed.hash
    if not isinstance(family, Euclidean) or hashed.embedded or len(hashed.columns) != len(wanted.spans):
        return False
    if wanted.name != radial.EUCLIDEAN:
        return False
    return radial.euclidean(schema, hashed.columns, family).same(wanted)


def _how(source: _Source, table: FullTable | None) -> str:
    if isinstance(source, FourierKernel):
        return f"{len(source.sums)} Fourier frequencies of the kernel"
    if isinstance(source, Hashed):
        end = "" if source.control is None else CORRECTED
        return f"{source.race.rows} rows of hashed counters{end}"
    assert table is not None
    return f"{table.how}, convolved with the kernel"


def _mean_errors(schema: Schema, found: Sequence[_Source], table: FullTable | None) -> list[float]:
    """Mean standard errors at points where the table has records."""
    assert table is not None
    places = table.drawn(_COMPARED, np.random.default_rng(0))
    points = units_at(schema, table.columns, places)
    return [
        float(np.mean(source.at(points).stderr if isinstance(source, Hashed) else source.at(places)[1]))
        for source in found
    ]
