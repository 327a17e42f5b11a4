"""Anomaly scores from a release: a row with few similar records is anomalous."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import isnan, sqrt
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.estimators.radial_kernels import Bandwidth
from dpsketch.learn.models.density.full_table import units_at
from dpsketch.learn.models.density.hashed import Hashed, made_up_records
from dpsketch.learn.models.density.kernel_choice import KernelChoice
from dpsketch.learn.models.density.kernel_density import KernelDensity
from dpsketch.learn.models.density.raking import raked
from dpsketch.learn.models.model import Columns, Model
from dpsketch.learn.saved import Arrays, Facts, Saved, real
from dpsketch.maps.base import check_columns
from dpsketch.maps.hashed.hashes import Euclidean, HashFamily
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.recipe.tasks.anomaly_task import ANOMALY_BANDWIDTH, ANOMALY_POWER
from dpsketch.recipe.tasks.task import MOST_TABLE_COLUMNS

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_DRAWN: Annotated[int, UNRECORDED] = 4000  # simulated records for the threshold
_CLOSE: Annotated[int, UNRECORDED] = 100  # of these, those at which the threshold's error is taken
_RAKED_ROWS: Annotated[int, UNRECORDED] = 256  # of the table of counters, by which they are weighted


class AnomalyScorer(Model):
    """Anomaly scores of rows relative to the records of a release: `fit(view)`. Higher is more normal, as in
    scikit-learn.

    From hashed counters, a score is the mean over the table's rows of the logarithm of the row's counter. From a table
    of up to three number columns, or from rows of any other joint distribution, it is the logarithm of the kernel
    density. `predict` gives −1 for the rows below
    `offset_`, else 1.

    `kernel` and `bandwidth` choose among several kernels of a release, or the bandwidth of a table, as in
    `KernelDensity`.

    `contamination` is the expected fraction of anomalies, from public knowledge: `offset_` is that quantile of the
    scores of simulated records. These are drawn from the table of the release or, beside hashed counters, from the
    distribution of `view.sample`, with weights that reproduce the released counters. No record is read. Without such a
    distribution in the release there are scores but no `predict`. `offset_stderr_` is the standard error of scores at
    the threshold, known for rows alone. `how_` names the source of the scores. Source: race
    §4; RESEARCH "Anomaly scores".
    """

    _estimator_type = "outlier_detector"
    offset_: float | None
    offset_stderr_: float = float("nan")

    def __init__(
        self,
        contamination: float = 0.01,
        columns: Sequence[str] | None = None,
        kernel: HashFamily | str | None = None,
        bandwidth: Bandwidth | None = None,
    ) -> None:
        self.contamination, self.columns, self.kernel, self.bandwidth = contamination, columns, kernel, bandwidth

    def fit(self, view: View) -> AnomalyScorer:
        self._check_view(view)
        self._check()
        share = self.contamination
        columns = check_columns("AnomalyScorer", self.columns)
        parts = KernelChoice(self.kernel, self.bandwidth).parts(view.released, columns)
        self.offset_stderr_ = float("nan")
        if parts is None or (parts.counters is None and parts.table is None):
            self._fit_rows(view, columns)
        elif parts.counters is not None:
            self._source: Hashed | KernelDensity = parts.counters
            self.offset_ = _offset_of_counters(view, parts.counters, float(share))
        else:
            table = parts.table
            assert table is not None  # by the check above
            self._source = KernelDensity(self.kernel, self.bandwidth, table.columns).fit(view)
            drawn = units_at(view.schema, table.columns, table.drawn(_DRAWN, np.random.default_rng(0)))
            self.offset_ = float(np.quantile(self._source.score_samples(drawn), share))
        self.statement_ = view.statement
        self._finish()
        return self

    def _fit_rows(self, view: View, columns: tuple[str, ...] | None) -> None:
        """Score by the density of rows of the joint distribution, with the kernel of `Recipe.anomaly` by default."""
        try:
            population = view.population
        except QueryError:
            raise QueryError(
                "this release holds no densities from counters or a table, and no joint distribution",
                "release it by Recipe.anomaly",
            ) from None
        columns = columns or population.columns
        kernel, bandwidth = self.kernel, self.bandwidth
        if kernel is None and bandwidth is None and len(columns) > MOST_TABLE_COLUMNS:
            kernel = Euclidean(ANOMALY_BANDWIDTH * sqrt(len(columns)), ANOMALY_POWER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            self._source = density = KernelDensity(kernel, bandwidth, columns).fit(view)
        frame = next(iter(population.draw(_DRAWN, 0)))
        found = density.density({name: frame.cells(name) for name in columns})
        scores = density.logarithms(found.value)
        self.offset_ = float(np.quantile(scores, self.contamination))
        close = np.argsort(np.abs(scores - self.offset_))[:_CLOSE]
        self.offset_stderr_ = float(np.mean(found.stderr[close] / np.exp(scores[close])))
        warnings.warn(
            "AnomalyScorer: fitted to rows of the joint distribution, in which rare records are the least accurate\n"
            "Hint: a release by Recipe.anomaly (--for anomaly) is made for anomalies; docs/densities.md compares both",
            FitWarning,
            stacklevel=3,
        )

    def score_samples(self, X: Any) -> Floats:
        """Scores of the rows. Higher is more normal."""
        self._check_fitted()
        return (
            self._source.mean_logs(self._points(X))
            if isinstance(self._source, Hashed)
            else self._source.score_samples(X)
        )

    def scores(self, X: Any) -> Columns:
        """Scores, and which rows are anomalies if there is a threshold."""
        values = self.score_samples(X)
        return {"score": values} | ({} if self.offset_ is None else {"anomaly": values < self.offset_})

    def decision_function(self, X: Any) -> Floats:
        """Scores minus the threshold."""
        return self.score_samples(X) - self._threshold()

    def predict(self, X: Any) -> NDArray[np.int64]:
        """−1 for anomalies, 1 for others."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def to_saved(self) -> Saved:
        """What `from_saved` needs to score rows: facts for JSON, and arrays. All of it is in the release."""
        self._check_fitted()
        facts, arrays = self._source.to_saved()
        source = "hashed" if isinstance(self._source, Hashed) else "table"
        columns = None if self.columns is None else [str(name) for name in self.columns]
        own = {"contamination": float(self.contamination), "columns": columns, "offset": self.offset_}
        if not isnan(self.offset_stderr_):
            own["offset_stderr"] = self.offset_stderr_
        asked = KernelChoice(self.kernel, self.bandwidth).to_dict()
        kernel = {name: value for name, value in asked.items() if value is not None}
        return own | kernel | {"source": source, "facts": facts}, arrays

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> AnomalyScorer:
        choice = KernelChoice.from_dict(facts)
        found = cls(facts["contamination"], facts["columns"], choice.kernel, choice.bandwidth)
        found._check()
        found._source = _SOURCES[facts["source"]].from_saved(facts["facts"], arrays)
        found.offset_ = None if facts["offset"] is None else real(facts["offset"])
        found.offset_stderr_ = real(facts["offset_stderr"], 0) if "offset_stderr" in facts else float("nan")
        found._finish()
        if found.columns is not None and set(found.columns) != set(found.feature_names_in_):
            raise ValueError("columns")
        return found

    def _check(self) -> None:
        share = self.contamination
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share <= 0.5:
            raise QueryError(f"contamination must be above 0 and at most 0.5, got {share!r} instead")

    def _finish(self) -> None:
        source = self._source
        if isinstance(source, Hashed):
            self.how_ = f"{source.race.rows} rows of hashed counters"
            self._set_features(source.schema, source.columns)
        else:
            self.how_ = source.how_
            self._set_features(source._schema, source.input_columns)

    def _threshold(self) -> float:
        self._check_fitted()
        if self.offset_ is None:
            raise QueryError(
                "this release gives scores of rows but not their distribution, so there is no threshold",
                "release by Recipe.anomaly, or compare score_samples with a threshold of your own",
            )
        return self.offset_


_SOURCES: dict[str, type[Hashed] | type[KernelDensity]] = {"hashed": Hashed, "table": KernelDensity}


def _offset_of_counters(view: View, hashed: Hashed, share: float) -> float | None:
    """The quantile of the scores of weighted simulated records."""
    drawn = made_up_records(view, hashed.columns, _DRAWN, 0)
    if drawn is None:
        return None
    records = hashed.records(drawn)
    scores = hashed.mean_logs_of(records, hashed.sums)
    rows = min(hashed.race.rows, _RAKED_ROWS)
    places, _ = hashed.race.entries(records, rows)
    counters = np.asarray(hashed.sums[: hashed.race.size // hashed.race.rows * rows], np.float64)
    weights = raked(places, counters, float(np.sqrt(hashed.variance)), float(view.rows_in_sums().value))
    order = np.argsort(scores)
    below = np.cumsum(weights[order]) / weights.sum()
    return float(scores[order[min(int(np.searchsorted(below, share)), len(order) - 1)]])
