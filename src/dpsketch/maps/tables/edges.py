"""Edges of one's own, at which a map divides columns: public values in the units of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.levels import levels_at
from dpsketch.errors import RecipeError
from dpsketch.maps.tables.cells import HistogramCells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import HIGHEST, LOWEST, Column, Datetime, Integer, Number, as_moment, microseconds

Edge = int | float | str
Edges = tuple[tuple[str, tuple[Edge, ...]], ...]
MOST_EDGES = 32768
_EXAMPLE = 'write edges = {age = [18, 40, 65]} (edges={"age": [18, 40, 65]})'


@dataclass(frozen=True)
class EdgeCells(HistogramCells):
    """Cells between `edges` of one's own: those below the first edge, between each edge and the next, and from the last
    edge on. A value at an edge is in the cell above it. The bounds have no cells of their own.

    `starts` are the levels of the edges, and `bins` the number of cells between two of them. Where codes round values,
    the level of an edge may lie below it: the values of its cell still start at the edge.
    """

    starts: tuple[int, ...]
    at: tuple[float, ...]

    uneven: ClassVar[bool] = True

    @property
    def binned(self) -> bool:
        return True

    @property
    def cut(self) -> Any:
        return self.column.levels, self.starts, self.at

    @cached_property
    def first_levels(self) -> NDArray[np.int64]:
        return np.array([0, *self.starts, self.column.levels], np.int64)

    @cached_property
    def single(self) -> NDArray[np.bool_]:
        return np.append(np.diff(self.first_levels) == 1, True)

    def values_of(self, codes: Codes) -> Floats:
        least = np.array([-np.inf, *self.at, -np.inf])
        values: Floats = np.maximum(super().values_of(codes), least[self.cells(codes)])
        return values


def edge_cells(column: Number | Integer | Datetime, edges: Sequence[float]) -> EdgeCells:
    """Cells between edges in the user's units (of dates: microseconds), which rise.

    The cell above an edge starts with the level of the least value at or above it: the level that an engine gives to a
    cell of a table with this value, by the same comparisons. So the cut is exact wherever codes are.
    """
    numbers = np.array(edges, np.float64)
    least = np.ceil(numbers) if isinstance(column, Integer) else numbers
    starts = levels_at(column, least).tolist()
    return EdgeCells(column, len(starts) - 1, tuple(starts), tuple(numbers.tolist()))


def checked_edges(owner: str, edges: object, columns: tuple[str, ...] | None) -> Edges | None:
    """Edges by column in one form, so that equal edges have equal descriptions; None where there are none.

    Pairs of names and edges, as this returns them, are accepted as well.
    """
    if edges is None:
        return None
    if isinstance(edges, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in edges):
        edges = dict(edges)
    if not isinstance(edges, Mapping) or not all(isinstance(name, str) for name in edges):
        raise RecipeError(f"{owner}: edges must list numbers for each of some columns, got {edges!r} instead", _EXAMPLE)
    for name in edges:
        if columns is not None and name not in columns:
            raise RecipeError(f"{owner}: column '{name}' has edges but no cells", "name it among the columns")
    return tuple((name, _checked(owner, name, edges[name])) for name in sorted(edges)) or None


def _checked(owner: str, name: str, edges: object) -> tuple[Edge, ...]:
    if not isinstance(edges, list | tuple | np.ndarray) or not 1 <= len(edges) <= MOST_EDGES:
        raise RecipeError(f"{owner}: the edges of column '{name}' must be a list of 1 to {MOST_EDGES} values", _EXAMPLE)
    plain = tuple(_plain(owner, name, edge) for edge in edges)
    if len({isinstance(edge, str) for edge in plain}) > 1 or not all(
        low < high for low, high in pairwise(map(_number, plain))
    ):
        raise RecipeError(f"{owner}: the edges of column '{name}' must rise, got {_listed(plain)} instead")
    return plain


def _plain(owner: str, name: str, edge: Any) -> Edge:
    """A number, whole where it can be, or a moment as an ISO text in UTC."""
    if isinstance(edge, np.generic):
        edge = edge.item()
    if isinstance(edge, str | date | datetime):
        moment = as_moment(edge)
        if moment is not None:
            return moment.isoformat()
    elif isinstance(edge, int | float) and not isinstance(edge, bool) and isfinite(edge):
        return int(edge) if edge == int(edge) else edge
    raise RecipeError(
        f"{owner}: an edge of column '{name}' must be a number or a date, got {edge!r} instead",
        "write dates as '2024-01-31'",
    )


def cells_between(owner: str, column: Column, edges: tuple[Edge, ...]) -> EdgeCells:
    """The cells of a column with these edges, which must lie between its bounds and be further apart than its levels.

    Depends on public numbers alone.
    """
    if not isinstance(column, Number | Integer | Datetime):
        raise RecipeError(
            f"{owner}: column '{column.name}' has labels, which are cells of their own", "leave out its edges"
        )
    if any(isinstance(edge, str) is not column.dates for edge in edges):
        kind = "dates, such as '2024-01-31'" if column.dates else "numbers"
        raise RecipeError(f"{owner}: the edges of column '{column.name}' must be {kind}, got {_listed(edges)} instead")
    numbers = [_number(edge) for edge in edges]
    low, high = column.values_of(np.array([LOWEST, HIGHEST])).tolist()
    if not low < numbers[0] <= numbers[-1] <= high:
        raise RecipeError(
            f"{owner}: the edges of column '{column.name}' must be above its lower bound and at most its upper bound, "
            f"got {_listed(edges)} instead",
            "leave out edges at or beyond the bounds, where no cell ends",
        )
    cells = edge_cells(column, numbers)
    for (low_edge, start), (high_edge, end) in pairwise(zip(edges, cells.starts, strict=True)):
        if start >= end:
            raise RecipeError(
                f"{owner}: no value of column '{column.name}' lies from {low_edge} to {high_edge}",
                "leave out one of the edges, or declare narrower bounds in the schema",
            )
    return cells


def _number(edge: Edge) -> float:
    """An edge on the scale of its column."""
    moment = as_moment(edge)
    return float(edge) if moment is None else float(microseconds(moment))


def _listed(edges: tuple[Edge, ...]) -> str:
    shown = [str(edge) for edge in edges]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:5], "…"])
