"""h₁ of the market: the library's own Fourier features of the Gaussian kernel, over all columns but the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.frames import read_codes
from dpsketch.encoding.records import Records
from dpsketch.errors import SchemaError
from dpsketch.maps.fourier.fourier import BoundFourier, Fourier
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import LOWEST, MISSING, SPAN, Boolean, Category, Column, Integer, Number
from dpsketch.schema.schema import Schema

Features = NDArray[np.float32]
_BLOCK = 1 << 13  # records hashed together


@dataclass(frozen=True)
class FeatureHash:
    """Features φ(x) of norm 1 with ⟨φ(x), φ(y)⟩ ≈ exp(−r²/(2·width²)), r the distance of x and y with every column
    scaled to [0, 1] by its declared bounds. `size` is their number d: a cosine and a sine for each of size/2
    frequencies, instead of the paper's cos(·+b).

    The label never enters. Where columns that share a unit declare different bounds, the kernel is another one than in
    that unit: `unequal_bounds` names them.
    Source: summary, algorithm 1; maps.fourier for the exact integer sums that a release holds.
    """

    schema: Schema
    width: float
    size: int = 512
    seed: int = 0
    label: str | None = None

    def __post_init__(self) -> None:
        if self.size < 2 or self.size % 2:
            raise SchemaError(f"the number of features must be even and at least 2, got {self.size} instead")
        if self.label is not None and not isinstance(self.schema.column(self.label), Category | Boolean):
            raise SchemaError(f"the label '{self.label}' is not a category or boolean column", "declare its values")
        for name in self.columns:
            if not measurable(self.schema.column(name)):
                raise SchemaError(
                    f"column '{name}' has no distances between its values",
                    "declare one boolean column for each of its labels, or leave it out of the market's schema",
                )
        if not self.columns:
            raise SchemaError("the schema has no columns beside the label")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema.scalars if column.name != self.label)

    @property
    def feature_map(self) -> Fourier:
        """The map whose exact sums a release holds."""
        return Fourier(self.columns, self.size // 2, self.seed, kernel="gaussian", width=self.width)

    @cached_property
    def bound(self) -> BoundFourier:
        return self.feature_map.bind(self.schema)

    @property
    def scale(self) -> float:
        """What exact integer sums are divided by."""
        return self.bound.grid * float(np.sqrt(self.size // 2))

    def unlabelled(self) -> Schema:
        """The schema of a table without labels, such as a validation set."""
        kept = tuple(column for column in self.schema.columns if column.name != self.label)
        return replace(self.schema, columns=kept, constant_per_unit=())

    @property
    def unequal_bounds(self) -> bool:
        """Whether columns declare different bounds, so that distances depend on how each is scaled."""
        found = [self.schema.column(name) for name in self.columns]
        return len({(float(each.lower), float(each.upper)) for each in found if isinstance(each, Number | Integer)}) > 1

    def codes(self, table: Any) -> Codes:
        """Codes of the columns of a user's table, one matrix row for each column."""
        found = read_codes(self.schema, self.columns, table)
        return np.stack([found[name] for name in self.columns])

    def points(self, table: Any) -> Floats:
        """Records as points in [0, 1]^columns, one matrix row each; NaN where a cell is missing."""
        return code_points(self.codes(table))

    def of_codes(self, codes: Codes) -> Features:
        """Features of records given by their codes; refuses missing cells."""
        if (codes == MISSING).any():
            raise SchemaError("a record lacks a cell", "leave out records with missing cells, or declare missing = …")
        every = np.full((len(self.schema.scalars), codes.shape[1]), LOWEST, np.int16)
        for row, name in enumerate(self.columns):
            every[self.schema.index(name)] = codes[row]
        found = np.empty((codes.shape[1], self.size), np.float32)
        for start in range(0, codes.shape[1], _BLOCK):
            block = slice(start, start + _BLOCK)
            found[block] = self.bound.features(Records(np.ascontiguousarray(every[:, block])))
        found *= np.float32(1 / np.sqrt(self.size // 2))
        return found

    def __call__(self, points: Floats) -> Features:
        """Features of points in [0, 1]^columns."""
        if not np.isfinite(points).all():
            raise SchemaError("a record lacks a cell", "leave out records with missing cells, or declare missing = …")
        steps = np.rint(np.clip(points, 0, 1) * SPAN).astype(np.int64)
        return self.of_codes((steps + LOWEST).astype(np.int16).T)

    def mean(self, a: Floats, b: Floats) -> float:
        """Mean of ⟨φ(x), φ(y)⟩ over pairs of points of a and b."""
        return float(feature_mean(self(a)) @ feature_mean(self(b)))


def measurable(column: Column) -> bool:
    """Whether distances between a column's codes mean something."""
    return column.numeric or isinstance(column, Boolean)


def code_points(codes: Codes) -> Floats:
    """Points in [0, 1]^columns of codes, one matrix row a record; NaN where a cell is missing."""
    return np.where(codes == MISSING, np.nan, (codes.astype(np.float64) - LOWEST) / SPAN).T


def feature_mean(features: Features) -> Floats:
    return features.mean(axis=0, dtype=np.float64)


def whole_rows(codes: Codes) -> NDArray[np.bool_]:
    """Which records have all their cells."""
    return np.asarray((codes != MISSING).all(axis=0))


def names_of(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]
