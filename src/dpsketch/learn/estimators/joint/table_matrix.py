"""Square matrices of one block for each pair of columns: all pair tables side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats


class Blocks:
    """The rows of such a matrix: `sizes[j]` of column j, one after another."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = np.array(sizes, np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        self.owner = np.repeat(np.arange(len(sizes)), self.sizes)

    def of(self, column: int) -> slice:
        return slice(self.offsets[column], self.offsets[column + 1])

    @cached_property
    def member(self) -> Floats:
        """1 where a row belongs to a column: products with it sum over blocks, and products back spread them."""
        return (self.owner[:, None] == np.arange(len(self.sizes))).astype(np.float64)

    def matrix(self, tables: Mapping[tuple[int, int], Floats]) -> Floats:
        """Symmetric, with zeros where there is no table."""
        result = np.zeros((len(self.owner), len(self.owner)))
        for (i, j), table in tables.items():
            result[self.of(i), self.of(j)] = table
            result[self.of(j), self.of(i)] = table.T
        return result

    def known(self, pairs: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
        """Where a matrix has tables of these pairs."""
        columns = np.zeros((len(self.sizes), len(self.sizes)), bool)
        for i, j in pairs:
            columns[i, j] = columns[j, i] = True
        return columns[np.ix_(self.owner, self.owner)]

    def spread(self, values: float | Floats) -> float | Floats:
        """A matrix with the value of each pair of columns in its block; a single number stands for all."""
        return values if isinstance(values, float) else values[np.ix_(self.owner, self.owner)]

    def diagonal(self, parts: Sequence[Floats]) -> Floats:
        """`parts[j]`, of as many rows as column j, along the diagonal."""
        other = Blocks([part.shape[1] for part in parts])
        result = np.zeros((len(self.owner), len(other.owner)))
        for column, part in enumerate(parts):
            result[self.of(column), other.of(column)] = part
        return result
