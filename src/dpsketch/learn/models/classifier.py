"""Classifiers from hashed counters, one sketch per class, or from the rows of any release's joint distribution."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.kernel_sums import KernelSums
from dpsketch.learn.models.class_rows import ClassRows
from dpsketch.learn.models.class_tables import LogOdds, expected_counts, log_odds, shared_evidence, slope
from dpsketch.learn.models.design import STANDS_OUT, Classes, accuracy, label_texts, labels_of
from dpsketch.learn.models.model import Columns, Labels, Model
from dpsketch.learn.saved import Arrays, Facts, Saved, counters, finite, read_map, real, whole
from dpsketch.maps.hashed.race import BoundRace, Race
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Category
from dpsketch.schema.schema import Schema, nearest

if TYPE_CHECKING:
    from dpsketch.learn.view import View

PRIORS, METHODS = ("map", "ml"), ("log-odds", "likelihood")
_BLOCK = 1 << 22  # numbers of records times tables times classes that are looked at together
_LEAST_LIKELIHOOD = 1e-12


class DensityClassifier(Model):
    """Predict the class whose records are densest around a record, from `Grouped(Race(…), target)` or from the rows of
    any joint distribution: `fit(view)`.

    `method="log-odds"` adds up the evidence of each table's counters for and against a class. `"likelihood"` compares
    mean counters, as in the paper, which is less accurate. `prior="map"` weights classes by their noisy numbers of
    records, `"ml"` equally. Among rows, classes have kernel densities, and `method` has no effect.

    After `fit`: `classes_` (the labels with significant counts; all of the schema's where fewer than two have one),
    `class_count_`, `class_count_stderr_`, `slope_` (the
    factor applied to the sum of log-odds over all tables, whose evidence overlaps), `slope_how_` (whether it was
    estimated from the counters), `calibrated_` (false: the slope is a guess that may be wrong by a factor of several),
    `feature_names_in_` and `how_`. Source: race §4, RESEARCH "Classifiers (race)"; docs/models.md.
    """

    _estimator_type = "classifier"
    _rows: ClassRows | None

    def __init__(self, target: str, prior: str = "map", method: str = "log-odds") -> None:
        self.target, self.prior, self.method = target, prior, method

    def fit(self, view: View) -> DensityClassifier:
        self._check_view(view)
        self._check()
        held = self._part(view)
        if held is None:
            return self._fit_rows(view)
        bound, sums, variance = held
        totals, errors = self._totals(view, bound, sums, variance)
        present = self._present(view.schema, totals, errors)
        counted = (each[present] for each in expected_counts(totals, errors))
        self._finish(view.schema, bound, present, sums[present], variance, *counted)
        self.statement_ = view.statement
        return self

    def log_odds(self, X: Any) -> Answer:
        """Log-odds of each class against all others together, one column per class, with standard errors.

        Errors come from the variation between tables, which noise and the choice of hashes cause, and are at least
        those of the noise; the noise of the classes' counts is added. They cover neither the sampling of the table nor
        the slope. Those of rows are for the same densities of the records themselves.
        """
        self._check_fitted()
        if self._rows is not None:
            found = self._rows.evidence(X, self._levels)
            return Answer(found.value + self._log_prior, self._with_counts(found.stderr), self.how_)
        if self.method == "likelihood":
            return self._likelihoods(X)
        tables = self._race.rows
        scores, squares, noise = self._summed(X, (self._odds.value, self._odds.value**2, self._odds.deviation**2))
        between = np.maximum(squares - scores**2 / tables, 0.0) * (tables / max(tables - 1, 1))
        value = self.slope_ * scores + self._log_prior
        return Answer(value, self._with_counts(self.slope_ * np.sqrt(np.maximum(between, noise))), self.how_)

    def decision_function(self, X: Any) -> Floats:
        """Log-odds of the second of two classes against the first, or of each class, as in scikit-learn."""
        value = np.asarray(self.log_odds(X).value)
        return value[:, 1] - value[:, 0] if len(self.classes_) == 2 else value

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes, one column each. They are not calibrated, and a warning says so."""
        self._check_fitted()
        warnings.warn(
            "DensityClassifier: probabilities are not calibrated: the dependence between tables is uncertain.\n"
            "Hint: rely on the order of decision_function, or calibrate on public records whose classes are known",
            FitWarning,
            stacklevel=2,
        )
        return self.probabilities(np.asarray(self.log_odds(X).value))

    def probabilities(self, log_odds: Floats) -> Floats:
        """The probabilities of `predict_proba` for log-odds that are already known."""
        raised = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> Labels:
        """The most probable classes."""
        best = np.asarray(self.log_odds(X).value).argmax(axis=1)
        return self.classes_[best]

    def score(self, X: Any, y: Any) -> float:
        """Accuracy: fraction of the rows whose known class is predicted. Rows without a class do not count."""
        return accuracy(self._schema, self.target, self.predict(X), y)

    def scores(self, X: Any) -> Columns:
        answer = self.log_odds(X)
        shares = self.probabilities(answer.value)
        columns: Columns = {"prediction": label_texts(self.classes_[answer.value.argmax(1)])}
        columns |= {f"probability_{label}": share for label, share in zip(self.classes_, shares.T, strict=True)}
        for label, value, stderr in zip(self.classes_, answer.value.T, answer.stderr.T, strict=True):
            columns |= {f"log_odds_{label}": value, f"log_odds_{label}_stderr": stderr}
        return columns

    def to_saved(self) -> Saved:
        """Facts for JSON and arrays, from which `from_saved` restores this model."""
        self._check_fitted()
        facts = {
            "target": self.target,
            "prior": self.prior,
            "method": self.method,
            "schema": self._schema.to_dict(),
            "levels": self._levels.tolist(),
        }
        counted = {"class_count": self.class_count_, "class_count_stderr": self.class_count_stderr_}
        if self._rows is not None:
            own, arrays = self._rows.to_saved()
            return facts | {"rows": own}, arrays | counted
        counters = {"race": self._race.description.to_dict(), "noise_variance": self._variance}
        return facts | counters, {"counters": self._counters} | counted

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> DensityClassifier:
        schema = Schema.from_dict(facts["schema"])
        model = cls(facts["target"], facts["prior"], facts["method"])
        model._check()
        levels = np.array([whole(level) for level in facts["levels"]], np.int64)
        if len(levels) < 2 or (np.diff(levels) <= 0).any() or levels[-1] >= len(labels_of(schema.column(model.target))):
            raise ValueError("levels")
        totals, errors = (finite(arrays, name, len(levels)) for name in ("class_count", "class_count_stderr"))
        if totals.min() <= 0 or errors.min() < 0:
            raise ValueError("class_count")
        if "rows" in facts:
            rows = ClassRows.from_saved(schema, model.target, facts["rows"], arrays)
            model._finish_rows(schema, rows, levels, totals, errors)
            return model
        bound = read_map(facts["race"], schema, Race, arrays["counters"], len(levels)).bind(schema)
        if not bound.unit_increments:
            raise ValueError("race")
        counted = counters(arrays, "counters", len(levels), bound.rows, bound.width)
        model._finish(schema, bound, levels, counted, real(facts["noise_variance"], 0), totals, errors)
        return model

    def _fit_rows(self, view: View) -> DensityClassifier:
        """Compare densities of the classes among rows of the joint distribution."""
        try:
            population = view.population
        except QueryError:
            population = None
        columns = () if population is None else tuple(name for name in population.columns if name != self.target)
        if population is None or not columns or self.target not in population.columns:
            raise QueryError(
                f"this release holds no hashed counters for each class of '{self.target}', and no joint distribution",
                f"release Recipe.classify(schema, target='{self.target}', …), "
                f"or Part(Grouped(Race(…), '{self.target}'), share=…)",
            )
        levels = Classes(view.schema.column(self.target), population).levels
        counted = view.histogram(self.target, 2)
        totals, errors = (np.asarray(each)[levels] for each in (counted.value, counted.stderr))
        rows = ClassRows.of(view.schema, population, self.target, columns)
        self._finish_rows(view.schema, rows, levels, np.maximum(totals, 1.0), errors)
        self.statement_ = view.statement
        warnings.warn(
            "DensityClassifier: fitted to rows of the joint distribution\nHint: a release by Recipe.classify "
            f"(--for classify:{self.target}) is made for it, and LogisticRegression may predict better from "
            "this one; docs/models.md compares them",
            FitWarning,
            stacklevel=3,
        )
        return self

    def _finish_rows(
        self, schema: Schema, rows: ClassRows, levels: NDArray[np.int64], totals: Floats, errors: Floats
    ) -> None:
        self._rows, self.slope_, self.slope_how_, self.calibrated_ = rows, 1.0, "none is needed", False
        self._set_classes(schema, levels, totals, errors)
        self.how_ = f"{rows.how} for each of {len(levels)} classes"
        self._set_features(schema, rows.columns)

    def _set_classes(self, schema: Schema, levels: NDArray[np.int64], totals: Floats, errors: Floats) -> None:
        self._levels = levels
        self.classes_ = labels_of(schema.column(self.target))[levels]
        if len({type(label) for label in self.classes_}) == 1:
            self.classes_ = np.array(self.classes_.tolist())
        self.class_count_, self.class_count_stderr_ = totals, errors
        self._log_prior = np.log(totals / totals.sum()) if self.prior == "map" else np.zeros(len(levels))

    def _finish(
        self,
        schema: Schema,
        race: BoundRace,
        levels: NDArray[np.int64],
        counters: np.ndarray,
        variance: float,
        totals: Floats,
        errors: Floats,
    ) -> None:
        self._rows, self._race, self._variance = None, race, variance
        self._counters = counters.reshape(len(levels), race.rows, race.width)
        self._sums = KernelSums(schema, race, self._counters[0].ravel(), variance)
        self._set_classes(schema, levels, totals, errors)
        numbers = self._counters.astype(np.float64)
        self._odds: LogOdds = log_odds(numbers, totals, variance)
        shared = shared_evidence(numbers, totals, variance) if race.direct else None
        self.slope_ = slope(self._odds, totals, shared) if self.method == "log-odds" else 1.0
        self.slope_how_ = "halves of the hashes" if shared is not None else "a rule"
        self.calibrated_ = False
        what = "summed log-odds" if self.method == "log-odds" else "mean likelihoods"
        self.how_ = f"{what} of {race.rows} rows of hashed counters for each of {len(levels)} classes"
        self._set_features(schema, self._sums.columns)

    def _likelihoods(self, X: Any) -> Answer:
        """Mean counters over class totals, corrected for accidental collisions."""
        tables, width = self._race.rows, self._race.width
        numbers = self._counters.astype(np.float64)
        sums, squares = self._summed(X, (numbers, numbers**2))
        scale, accident = (1.0, 0.0) if self._race.direct else (width / (width - 1), 1 / width)
        mean = sums / tables
        spread = np.maximum(squares / tables - mean**2, self._variance) / tables
        share = np.maximum((mean / self.class_count_ - accident) * scale, _LEAST_LIKELIHOOD)
        stderr = scale * np.sqrt(spread) / (self.class_count_ * share)
        return Answer(np.log(share) + self._log_prior, self._with_counts(stderr), self.how_)

    def _with_counts(self, stderr: Floats) -> Floats:
        """Standard errors with those of the logarithms of the classes' numbers of records."""
        return np.asarray(np.hypot(stderr, self.class_count_stderr_ / self.class_count_))

    def _summed(self, X: Any, tables: tuple[Floats, ...]) -> list[Floats]:
        """Entries of each record's cells, summed over tables, for each class: one matrix for each of `tables`."""
        records = self._sums.records(self._points(X))
        classes, rows = len(self.classes_), self._race.rows
        found = [np.empty((len(records), classes)) for _ in tables]
        step = max(_BLOCK // (rows * classes), 1)
        for start in range(0, len(records), step):
            chosen = np.arange(start, min(start + step, len(records)))
            places, _ = self._race.entries(records.take(chosen), rows)
            for sums, table in zip(found, tables, strict=True):
                sums[chosen] = np.stack([each.ravel()[places].sum(axis=1) for each in table], axis=1)
        return found

    def _part(self, view: View) -> tuple[BoundRace, np.ndarray, float] | None:
        """Hashed counters of every class, without that of missing labels; None if there are none."""
        if self.target not in [column.name for column in view.schema.scalars]:
            raise QueryError(
                f"there is no column '{self.target}'",
                nearest(str(self.target), [column.name for column in view.schema.scalars]),
            )
        for part, race in view.released.parts_with(BoundRace, grouped=True):
            if part.map.grouped_by == self.target and race.unit_increments:
                return race, part.sums.reshape(part.map.groups, -1)[:-1], float(part.noise_variance)
        return None

    def _present(self, schema: Schema, totals: Floats, errors: Floats) -> NDArray[np.int64]:
        """Levels with significant counts, or all that the schema lists where noise hides all of these but one."""
        significant = (totals > STANDS_OUT * errors) & (totals > 0)
        if not significant.any():
            raise QueryError(
                f"column '{self.target}' has no class with a significant count",
                "release with a larger epsilon, fewer counters or more rows",
            )
        if significant.sum() < 2:
            column = schema.column(self.target)
            significant[: len(column.values) if isinstance(column, Category) else None] = True
            warnings.warn(
                f"DensityClassifier: only one class of '{self.target}' has a significant count; all are kept\n"
                "Hint: the others may have few records or none: see class_count_stderr_, and the errors of log_odds",
                FitWarning,
                stacklevel=4,
            )
        return np.flatnonzero(significant)

    def _totals(self, view: View, race: BoundRace, sums: np.ndarray, variance: float) -> tuple[Floats, Floats]:
        """Numbers of records of the classes, from counts by class and the tables' totals together."""
        counted = [(sums.sum(axis=1, dtype=np.int64) / race.rows, variance * race.width / race.rows)]
        for part in view.released.parts:
            if part.map.grouped_by == self.target and part.map.ungrouped.only_counts:
                counted.append((part.sums[:-1].astype(np.float64), float(part.noise_variance)))
        if not variance:
            return counted[0][0], np.zeros(len(sums))
        precisions = np.array([1 / each for _, each in counted])
        found = precisions @ np.stack([count for count, _ in counted]) / precisions.sum()
        return found, np.full(len(found), precisions.sum() ** -0.5)

    def _check(self) -> None:
        if self.prior not in PRIORS:
            raise QueryError(f"prior must be one of {', '.join(PRIORS)}, got {self.prior!r} instead")
        if self.method not in METHODS:
            raise QueryError(f"method must be one of {', '.join(METHODS)}, got {self.method!r} instead")
