"""Conversion of rows to the features and targets of models, and scores of predictions on known targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.models.model import Labels
from dpsketch.learn.points import Frame
from dpsketch.learn.population.weighted_rows import Population, known_columns, spread
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import Boolean, Category, Column, Integer
from dpsketch.schema.schema import Schema

# Standard errors above zero at which the share of a class is significant.
STANDS_OUT: Annotated[float, UNRECORDED] = 3.0


class Design:
    """Features of some columns, in the user's units.

    Numbers and integers are one feature each, as logarithm or asinh where the schema declares it. Dates are days since
    1970, booleans 0 or 1. Categories are one feature per label, `column=label`. A missing category is all zeros; other
    missing values are NaN.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self.schema, self.columns = schema, tuple(columns)
        self.names: tuple[str, ...] = tuple(
            name for column in self.columns for name in _feature_names(schema.column(column))
        )

    def features(self, frame: Frame) -> Floats:
        """The feature matrix, one row per point."""
        return np.hstack([_features(self.schema.column(name), frame) for name in self.columns])

    def features_of(self, table: Any) -> Floats:
        """Features of a user's table, or of a matrix with these columns, by the rules of the release."""
        return self.features(Frame.read(self.schema, self.columns, table))


def design(schema: Schema, population: Population, target: str | None, columns: Sequence[str] | None) -> Design:
    """The features of the named columns, or of all except the target."""
    if isinstance(columns, str):
        raise QueryError("columns must be a list of names", f"write columns=['{columns}']")
    if columns is None:
        columns = [column.name for column in schema.scalars if column.name in population.columns]
        columns = [name for name in columns if name != target]
    chosen = known_columns(population, columns)
    if target in chosen:
        raise QueryError(f"'{target}' is the target and one of the columns", "leave it out of columns")
    if not chosen:
        raise QueryError("there is no column to learn from", "name at least one in columns")
    return Design(schema, chosen)


def numbers_of(column: Column, frame: Frame) -> Floats:
    """A numeric target in the user's units, NaN where missing; dates as days."""
    return frame.values(column.name) / column.unit


def r_squared(schema: Schema, target: str, predicted: Floats, y: Any) -> float:
    """R² of predictions on known values. Rows without one do not count."""
    known = numbers_of(schema.column(target), _known(schema, target, predicted, y))
    present = ~np.isnan(known)
    left = np.sum((known - predicted)[present] ** 2)
    return float(1 - left / np.sum((known[present] - known[present].mean()) ** 2))


def accuracy(schema: Schema, target: str, predicted: Labels, y: Any) -> float:
    """Fraction of the known classes that are predicted. Rows without one do not count."""
    levels = _known(schema, target, predicted, y).levels(target)
    return float((labels_of(schema.column(target))[levels] == predicted)[levels >= 0].mean())


def _known(schema: Schema, target: str, predicted: NDArray[Any], y: Any) -> Frame:
    frame = Frame.read(schema, [target], {target: y})
    if frame.size != len(predicted):
        raise QueryError("X and y have different lengths", "pass one value of y for each row of X")
    return frame


def label_texts(labels: Labels) -> Labels:
    """Labels as a table column of a single type."""
    return labels.astype(str) if labels.dtype == object else labels


class Classes:
    """The classes of a target: `levels` with significant shares, and their `labels` as users know them."""

    def __init__(self, column: Column, population: Population) -> None:
        if not (isinstance(column, Category | Boolean) or (isinstance(column, Integer) and column.levels == 2)):
            raise QueryError(
                f"column '{column.name}' is a {column.kind}, not a class",
                "use LinearRegression, or declare the column as a category or a boolean",
            )
        self._column = column
        fit, *refits = (_shares(column, population, model) for model in range(population.refits + 1))
        error = spread(fit, refits) if refits else np.full_like(fit, population.noise)
        self.levels = np.flatnonzero((fit > STANDS_OUT * error) & (fit > 0))
        if len(self.levels) < 2:
            raise QueryError(
                f"column '{column.name}' has fewer than two classes with significant shares",
                "release with a larger epsilon, fewer columns or more rows",
            )
        self.labels: Labels = labels_array(labels_of(column)[self.levels].tolist())

    def of(self, frame: Frame) -> NDArray[np.int64]:
        """The class of each point as its index in `labels`; −1 where it is missing or none of them."""
        index = np.full(self._column.levels + 1, -1)
        index[self.levels] = np.arange(len(self.levels))
        return index[frame.levels(self._column.name)]


def _shares(column: Column, population: Population, model: int) -> Floats:
    points = population.points(model)
    levels = points.frame.levels(column.name)
    return np.bincount(levels[levels >= 0], points.weights[levels >= 0], column.levels).astype(np.float64)


def labels_array(labels: Sequence[Any]) -> Labels:
    """Labels as an array of their own type, or of objects where types differ."""
    return np.array(labels, None if len({type(label) for label in labels}) == 1 else object)


def labels_of(column: Column) -> Labels:
    """The levels' labels for users: the schema's values with their types."""
    values: list[Any] = [False, True]
    if isinstance(column, Category):
        values = [*column.values, *column.labels[len(column.values) :]]
    elif isinstance(column, Integer):
        values = [column.lower, column.upper]
    labels = np.empty(len(values), object)
    labels[:] = values
    return labels


def _feature_names(column: Column) -> list[str]:
    if isinstance(column, Category):
        return [f"{column.name}={label}" for label in column.labels]
    return [column.name]


def _features(column: Column, frame: Frame) -> Floats:
    if isinstance(column, Category):
        return (frame.levels(column.name)[:, None] == np.arange(column.levels)).astype(np.float64)
    return column.scaled(numbers_of(column, frame))[:, None]
