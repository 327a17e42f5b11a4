"""Linear regression and a linear classifier from hashed counters, as in the race paper, for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.models.design import Design, accuracy, label_texts, labels_array, labels_of, r_squared
from dpsketch.learn.models.linear_moments import half_widths
from dpsketch.learn.models.model import Columns, Labels, Model
from dpsketch.learn.models.surrogate import Collisions, minimum
from dpsketch.learn.saved import Arrays, Facts, Saved, finite
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.selection import check_arithmetic
from dpsketch.maps.hashed.hashes import InnerProduct
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.maps.hashed.ramps import with_one
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import Boolean, Category, Column
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

LOSSES = ("squared", "hinge")
_LONGEST: Annotated[float, UNRECORDED] = 1.5  # length of slopes and intercept, in half-widths of the bounds


class HashedLinear(Model):
    """A linear model whose loss is estimated from hashed counters (`Recipe.hashed_linear`), as in the race paper:
    `fit(view)`.

    `loss="squared"` predicts a number, `"hinge"` one of two classes.

    **Less accurate than its alternatives**, `LinearRegression` and `LogisticRegression` or `DensityClassifier`: a
    thousand hashes resolve a loss too coarsely, with or without noise. docs/models.md has figures.

    `coef_` and `intercept_` are in the user's units (of the logarithm or asinh where the schema transforms a column):
    those of the target for `"squared"`, of a score whose sign is the class for `"hinge"`. Their errors from noise and
    hashes are unknown: `coef_stderr_` and `intercept_stderr_` are NaN. Source: race §4; PAPERS "race".
    """

    classes_: Labels

    def __init__(self, target: str, loss: str = "squared") -> None:
        self.target, self.loss = target, loss

    @property
    def _estimator_type(self) -> str:  # type: ignore[override]
        return "classifier" if self.loss == "hinge" else "regressor"

    def fit(self, view: View) -> HashedLinear:
        self._check_view(view)
        self._check()
        column = find_column(view.schema, self.target)
        if self.loss == "squared":
            check_arithmetic(column, "regression")
        else:
            _two_classes(column)
        race, counters = self._part(view)
        columns = [name for name in race.columns if name != self.target]
        collisions, size = Collisions(race), len(columns)
        middle, half = half_widths(view.schema, columns)
        if self.loss == "squared":
            unit = 1 / np.sqrt(1 + _LONGEST**2)

            def residuals(places: Floats) -> Floats:
                target = np.full((len(places), 1), -1.0)
                queries = unit * np.hstack([places[:, :size], target, places[:, size:]])
                return collisions.sums(counters[0], queries) + collisions.sums(counters[0], -queries)

            found = minimum(residuals, size + 1, _LONGEST)
            (middle_y,), (half_y,) = half_widths(view.schema, (self.target,))
        else:

            def margins(places: Floats) -> Floats:
                return collisions.sums(counters[0], places) + collisions.sums(counters[1], -places)

            found = minimum(margins, size + 1, 1.0)
            middle_y, half_y = 0.0, 1.0
        self.coef_ = found[:-1] * half_y / half
        self.intercept_ = np.float64(middle_y + half_y * found[-1] - self.coef_ @ middle)
        self.statement_ = view.statement
        self._restore(view.schema, columns)
        return self

    def decision_function(self, X: Any) -> Floats:
        """The linear score: positive for the second class, or the (transformed) target."""
        frame = self._frame(X)
        features = self._design.features(frame)
        return np.where(np.isnan(features), self._middle, features) @ self.coef_ + self.intercept_

    def predict(self, X: Any) -> Any:
        """Expected values, or classes, for the rows of a mapping or table of columns in the user's units."""
        scores = self.decision_function(X)
        if self.loss == "hinge":
            return self.classes_[(scores > 0).astype(np.int64)]
        return self._column.unscaled(scores)

    def score(self, X: Any, y: Any) -> float:
        """R² of the predictions on known values, or the fraction of known classes that are predicted."""
        measured = accuracy if self.loss == "hinge" else r_squared
        return measured(self._schema, self.target, self.predict(X), y)

    def scores(self, X: Any) -> Columns:
        return {"prediction": label_texts(self.predict(X))}

    def to_saved(self) -> Saved:
        self._check_fitted()
        facts = {
            "target": self.target,
            "loss": self.loss,
            "schema": self._design.schema.to_dict(),
            "columns": list(self._design.columns),
        }
        return facts, {"coef": self.coef_, "intercept": np.asarray(self.intercept_)}

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> Self:
        model = cls(facts["target"], facts["loss"])
        model._check()
        schema, columns = Schema.from_dict(facts["schema"]), list(facts["columns"])
        if not all(isinstance(name, str) and schema.column(name).numeric for name in columns):
            raise ValueError("columns")
        if len(set(columns)) < len(columns) or not columns or model.target in columns:
            raise ValueError("columns")
        if model.loss == "squared":
            check_arithmetic(find_column(schema, model.target), "regression")
        model.coef_ = finite(arrays, "coef", len(columns))
        model.intercept_ = np.float64(finite(arrays, "intercept"))
        model._restore(schema, columns)
        return model

    def _restore(self, schema: Schema, columns: list[str]) -> None:
        """Restore what follows from the coefficients and their columns."""
        self._column, self._design = find_column(schema, self.target), Design(schema, columns)
        self._middle, _ = half_widths(schema, columns)
        self.coef_stderr_: Floats = np.full(len(columns), np.nan)
        self.intercept_stderr_ = np.float64(np.nan)
        if self.loss == "hinge":
            self.classes_ = labels_array(_two_classes(self._column))
        self._set_features(schema, columns, self._design.names)

    def _part(self, view: View) -> tuple[BoundRace, list[Floats]]:
        """Hashed counters of records with a constant one, one matrix row per row of the table; for "hinge", of both
        classes.
        """
        grouped_by = self.target if self.loss == "hinge" else None
        for part, race in view.released.parts_with(BoundRace, grouped=True):
            if part.map.grouped_by != grouped_by or not _suits(race):
                continue
            if self.loss == "squared" and race.columns[-1] != self.target:
                continue
            counters = part.sums.reshape(part.map.groups, race.rows, race.width).astype(np.float64)
            return race, list(counters[:2])
        raise QueryError(
            f"this release holds no hashed counters of inner products for '{self.target}' and loss='{self.loss}'",
            f"release Recipe.hashed_linear(schema, target='{self.target}', …): "
            + (
                "Part(Race((*columns, target), hash=InnerProduct(4), …), share)"
                if self.loss == "squared"
                else "Part(Grouped(Race(columns, hash=InnerProduct(4), …), target), share)"
            )
            + ", with a one beside the columns",
        )

    def _check(self) -> None:
        if self.loss not in LOSSES:
            raise QueryError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r} instead")


def _suits(race: BoundRace) -> bool:
    hashed = [factor.hash for factor in race.factors]
    whole = all(isinstance(each, InnerProduct) and each.radius == 1 for each in hashed)
    columns = race.factors[0].columns
    return whole and race.direct and race.unit_increments and race.description.embedding == with_one(len(columns))  # type: ignore[attr-defined]


def _two_classes(column: Column) -> list[Any]:
    """Labels of both classes; the class of unlisted labels and missing cells do not count."""
    if isinstance(column, Boolean) or (isinstance(column, Category) and len(column.values) == 2):
        return list(labels_of(column)[:2])
    raise QueryError(f"column '{column.name}' does not have two classes", "use DensityClassifier or LogisticRegression")
