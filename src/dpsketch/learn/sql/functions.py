"""A user's own function of some columns, as a factor. It is called on simulated points, never on records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.literals import find_column
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema


def function_factor(schema: Schema, function: Callable[[dict[str, Any]], Any], columns: Sequence[str] | str) -> Factor:
    """The factor of a function that takes a dictionary of arrays, one a column, and returns a finite number a row."""
    if not callable(function):
        raise QueryError(f"the function must be callable, got {function!r} instead", "lambda rows: rows['age'] > 40")
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns) or not columns:
        raise QueryError("the columns must be a list of names", "view.expect(function, ['age', 'sex'])")
    checked = [find_column(schema, name) for name in dict.fromkeys(columns)]

    def at(frame: Frame) -> Floats:
        return _checked(function, {column.name: frame.cells(column.name) for column in checked}, frame.size)[None, :]

    return Factor(tuple(column.name for column in checked), at)


def _checked(function: Callable[[dict[str, Any]], Any], rows: dict[str, Any], size: int) -> Floats:
    try:
        result = np.asarray(function(rows))
    except Exception as error:
        raise QueryError(
            f"the function raised {type(error).__name__}: {error}", "it gets a dictionary of NumPy arrays, one a column"
        ) from error
    if result.shape != (size,):
        raise QueryError(
            f"the function must return one number for each row, got an array of shape {result.shape} for {size} rows",
            "use NumPy functions of whole arrays: np.where instead of if",
        )
    if result.dtype.kind not in "biuf":
        raise QueryError(f"the function must return numbers, got {result.dtype}", "return floats, integers or booleans")
    values = result.astype(np.float64)
    if not np.isfinite(values).all():
        raise QueryError(
            "the function must return a finite number for every row",
            "missing values are NaN: use np.nan_to_num",
        )
    return values
