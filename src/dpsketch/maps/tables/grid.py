"""Density sketch: a count sketch with signs over the cells of a grid, at one or several resolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import (
    MOST_COUNTERS,
    FeatureMap,
    Sensitivity,
    Sums,
    check_columns,
    check_whole,
    chosen_columns,
)
from dpsketch.maps.counter_table import BoundTable
from dpsketch.maps.draw import PublicStream
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

FINEST = 16  # level at which every code has a cell
_SEED, _M1, _M2, _M3 = (
    np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x9FB21C651E98DF25)
)


@dataclass(frozen=True)
class Grid(FeatureMap):
    """`rows` signed tables of `width` counters for each resolution in `levels`.

    At level l every column's bounds are cut into 2^l equal cells, and missing cells have one of their own. A single
    level is a regular grid; (1, 2, …, l) is a dyadic one, to search heavy cells from coarse to fine.

    `cells` names columns that have another number of cells at the finest level, a power of two, such as
    {"lat": 64, "lon": 16}; at coarser levels they have as many times fewer as the others, and at least one.
    """

    columns: tuple[str, ...] | None = None
    rows: int = 5
    width: int = 65536
    levels: tuple[int, ...] = (5,)
    seed: int = 0
    cells: tuple[tuple[str, int], ...] | None = None

    name: ClassVar[str] = "grid"
    good_for: ClassVar[str] = "densities and synthetic rows of all columns together"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = {"cells": None}

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", check_columns("Grid", self.columns))
        check_whole("Grid", "rows", self.rows, 1, 10_000)
        check_whole("Grid", "width", self.width, 2, 2**31)
        check_whole("Grid", "seed", self.seed, 0, 2**64 - 1)
        if self.width & (self.width - 1):
            raise RecipeError(f"Grid: width must be a power of two, got {self.width} instead")
        levels = self.levels
        if (
            not isinstance(levels, list | tuple)
            or not 1 <= len(levels) <= 16
            or not all(isinstance(level, int) and not isinstance(level, bool) and 1 <= level <= 16 for level in levels)
            or list(levels) != sorted(set(levels))
        ):
            raise RecipeError(f"Grid: levels must be rising whole numbers from 1 to 16, got {levels!r} instead")
        object.__setattr__(self, "levels", tuple(levels))
        object.__setattr__(self, "cells", _checked_cells(self.cells, self.columns))

    def offsets(self, columns: Sequence[str]) -> tuple[int, ...]:
        """By how much the level of each column is above the grid's."""
        own = dict(self.cells or ())
        return tuple(own[name].bit_length() - 1 - self.levels[-1] if name in own else 0 for name in columns)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | ({} if self.cells is None else {"cells": dict(self.cells)})

    def length(self, schema: Schema) -> int:
        names = chosen_columns(schema, self.columns)
        for name, _ in self.cells or ():
            if name not in names:
                schema.column(name)
                raise _without_cells(name)
        counters = len(self.levels) * self.rows * self.width
        if counters > MOST_COUNTERS:
            raise RecipeError(f"Grid: {counters} counters are more than {MOST_COUNTERS}", "lower rows, width or levels")
        return counters

    def bind(self, schema: Schema) -> BoundGrid:
        return BoundGrid(self, schema)


def level_along(level: int, offset: int) -> int:
    """The level of a column whose level is `offset` above the grid's."""
    return min(max(level + offset, 0), FINEST)


def cells_along(codes: Codes, level: int, offsets: Sequence[int]) -> NDArray[np.int64]:
    """Cells of codes along columns with these offsets, one matrix row a column; at a column's own level l, 2^l stands
    for missing.
    """
    places, own = codes.astype(np.int64) - MISSING, np.array([[level_along(level, each)] for each in offsets])
    return np.where(places == 0, 1 << own, places >> (16 - own))


def _checked_cells(cells: object, columns: tuple[str, ...] | None) -> tuple[tuple[str, int], ...] | None:
    """Numbers of cells by column in one form, None where there are none. Pairs, as this returns, are accepted too."""
    if isinstance(cells, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in cells):
        cells = dict(cells)
    if not cells:
        return None
    if not isinstance(cells, Mapping) or not all(isinstance(name, str) for name in cells):
        raise RecipeError(
            f"Grid: cells must be a number for each of some columns, got {cells!r} instead",
            'write cells = {lat = 64, lon = 16} (cells={"lat": 64, "lon": 16})',
        )
    for name, count in cells.items():
        check_whole("Grid", f"cells of column '{name}'", count, 1, 1 << FINEST)
        if count & (count - 1):
            raise RecipeError(f"Grid: cells of column '{name}' must be a power of two, got {count} instead")
        if columns is not None and name not in columns:
            raise _without_cells(name)
    return tuple(sorted(cells.items()))


def _without_cells(name: str) -> RecipeError:
    return RecipeError(f"Grid: column '{name}' has a number of cells but is not in the grid", "name it among columns")


class BoundGrid(BoundTable):
    """Guarantee: a record adds −1 or 1 to one counter of each of K rows at each of l levels, so L1 = L2² = K·l for a
    row more or less; for a row replaced 2K·l and 4K·l (same counter, opposite signs).
    Source: density Thm 2; docs/proofs/grid.md.
    """

    largest = 1
    separates_points = True

    def __init__(self, description: Grid, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = description.length(schema)
        self.levels = np.array(description.levels, np.int64)
        self.offsets = description.offsets(self.columns)
        self._levels = np.array([[level_along(level, each) for each in self.offsets] for level in description.levels])
        self.rows, self.width = len(self.levels) * description.rows, description.width
        self.salts = PublicStream("grid salts", description.seed).words(self.rows).reshape(len(self.levels), -1)
        self._shift = np.uint64(64 - (self.width.bit_length() - 1))
        self._columns = np.array([schema.index(name) for name in self.columns])

    def prepare(self, records: Records) -> Codes:
        return records.codes

    def accumulate_rows(self, prepared: Codes, sums: Sums, first: int, last: int) -> None:
        from dpsketch.maps.kernels import grid_sums

        grid_sums(prepared, self._columns, self._levels, self.salts, self._shift, sums, first, last)

    def cells(self, codes: Codes, level: int) -> NDArray[np.int64]:
        """Cell of each record along each column at a level, one matrix row a column."""
        return cells_along(codes[self._columns], level, self.offsets)

    def counters(self, cells: NDArray[np.int64], position: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Index into the sums and sign of given cells at levels[position]: one matrix row a row of the level."""
        with np.errstate(over="ignore"):
            key = np.full(cells.shape[1], _SEED)
            for cell in cells:
                key = (key ^ cell.astype(np.uint64)) * _M1
                key ^= key >> np.uint64(32)
            hashed = (key[None, :] ^ self.salts[position][:, None]) * _M2
            hashed ^= hashed >> np.uint64(29)
            hashed = hashed * _M3
        slots = (hashed >> self._shift).astype(np.int64)
        signs = 1 - 2 * ((hashed >> np.uint64(7)) & np.uint64(1)).astype(np.int64)
        each = self.salts.shape[1]
        first = (position * each + np.arange(each)) * self.width
        return slots + first[:, None], signs

    def entries(self, records: Records, rows: int) -> tuple[NDArray[np.int64], Floats]:
        each = self.salts.shape[1]
        by_level = [
            self.counters(self.cells(records.codes, level), position)
            for position, level in enumerate(self.levels.tolist()[: -(-rows // each)])
        ]
        index, sign = (np.concatenate(parts)[:rows].T for parts in zip(*by_level, strict=True))
        return index, sign.astype(np.float64)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        if relation is Relation.ADD_REMOVE:
            return Sensitivity(self.rows, self.rows)
        return Sensitivity(2 * self.rows, 4 * self.rows)

    def parameters(self) -> bytes:
        return self.salts.astype("<u8").tobytes()
