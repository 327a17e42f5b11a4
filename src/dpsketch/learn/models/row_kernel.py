"""Sums of a kernel of distance over weighted rows of numbers and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.radial_kernels import Radial
from dpsketch.learn.points import Frame
from dpsketch.learn.population.third_order import resampled
from dpsketch.learn.population.weighted_rows import Hidden, Population
from dpsketch.learn.saved import Arrays, Facts, Saved, integers, real, whole
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.schema.columns import LOWEST, MISSING, SPAN
from dpsketch.schema.schema import Schema

FIT_ROWS, REFIT_ROWS = 1 << 15, 1 << 13
_DISTANCES = 1 << 22  # held at once
_TABULATED = 1 << 15  # distances at which the kernel is tabulated


@dataclass(frozen=True)
class Located:
    """Rows as a kernel sees them: numbers in bandwidths from the middle of the bounds, and the levels of labels."""

    numbers: NDArray[np.float32]
    levels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)


class RowKernel:
    """A kernel of distance on some columns. Labels count by equality: two that differ are one width of the bounds
    apart. A missing number counts as the middle of the bounds, and missing labels equal each other, as in hashed
    counters.
    """

    def __init__(self, schema: Schema, columns: Sequence[str], kernel: Radial) -> None:
        self.schema, self.columns, self.kernel = schema, tuple(columns), kernel
        numeric = [schema.column(name).numeric for name in self.columns]
        spans = dict(zip(self.columns, kernel.spans, strict=True))
        self._numbers = {name: spans[name] for name, each in zip(self.columns, numeric, strict=True) if each}
        self._labels = {name: spans[name] for name, each in zip(self.columns, numeric, strict=True) if not each}
        farthest = float(np.linalg.norm(kernel.spans))
        self._steps = np.float32((_TABULATED - 1) / farthest)
        self._values = kernel(np.linspace(0.0, farthest, _TABULATED) ** 2).astype(np.float32)

    def located(self, frame: Frame) -> Located:
        numbers = np.zeros((frame.size, len(self._numbers)), np.float32)
        for at, (name, span) in enumerate(self._numbers.items()):
            numbers[:, at] = _from_middle(frame.codes(name)) * span
        levels = np.zeros((frame.size, len(self._labels)), np.int32)
        for at, name in enumerate(self._labels):
            levels[:, at] = frame.levels(name)
        return Located(numbers, levels)

    @one_thread()
    def means(self, rows: Located, weights: Floats, points: Located) -> tuple[Floats, Floats]:
        """Weighted sums over the rows, at each point, of the kernel and of its square: one column for each column of
        `weights`.
        """
        values, squared = (np.empty((len(points), weights.shape[1])) for _ in range(2))
        own, lengths = weights.astype(np.float32), (rows.numbers**2).sum(axis=1)
        step = max(1, _DISTANCES // len(rows))
        for start in range(0, len(points), step):
            here = slice(start, start + step)
            numbers, levels = points.numbers[here], points.levels[here]
            squares = (numbers**2).sum(axis=1)[:, None] - 2 * (numbers @ rows.numbers.T) + lengths
            for at, span in enumerate(self._labels.values()):
                squares += np.float32(span**2) * (levels[:, at, None] != rows.levels[:, at])
            distances = np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)
            index = (distances * self._steps + np.float32(0.5)).astype(np.int32)
            kernel = self._values[np.minimum(index, _TABULATED - 1)]
            values[here], squared[here] = kernel @ own, np.square(kernel, out=kernel) @ own
        return values, squared


def unseen(means: Floats, squares: Floats, hidden: Hidden) -> Floats:
    """Standard errors of densities from what a joint distribution does not show: from mean kernel values and mean
    squares of these.

    The fewer records a kernel averages over, the more its mean depends on details that are smoothed away.
    """
    return hidden.smooth * means + hidden.narrow * np.maximum(squares / np.maximum(means, 1e-300) - means, 0.0)


def drawn_rows(population: Population, columns: Sequence[str]) -> list[Codes]:
    """Codes of rows of the fit and of each refit, of equal weight in random order: one matrix row per column."""
    found = []
    for model in range(population.refits + 1):
        most = REFIT_ROWS if model else FIT_ROWS
        points = population.points(model, most)
        codes = np.stack([points.frame.codes(name) for name in columns])
        found.append(codes[:, resampled(points.weights, most, np.random.default_rng([model, 5]))])
    return found


def saved_rows(fits: Sequence[Codes], hidden: Hidden) -> Saved:
    """`drawn_rows` and what they do not show, as facts and arrays of a model."""
    facts = {"fits": [codes.shape[1] for codes in fits], "hidden": [hidden.smooth, hidden.narrow]}
    return facts, {f"rows{model}": codes for model, codes in enumerate(fits)}


def read_rows(facts: Facts, arrays: Arrays, columns: int) -> tuple[list[Codes], Hidden]:
    """What `saved_rows` described; raises for anything else."""
    fits = [integers(arrays, f"rows{model}", columns, whole(size, 1)) for model, size in enumerate(facts["fits"])]
    if not fits or any(codes.dtype != np.int16 for codes in fits):
        raise ValueError("rows")
    smooth, narrow = facts["hidden"]
    return fits, Hidden(real(smooth, 0), real(narrow, 0))


def framed(schema: Schema, columns: Sequence[str], codes: Codes) -> Frame:
    """Rows by their codes, one matrix row per column."""
    return Frame(schema, dict(zip(columns, codes, strict=True)))


def _from_middle(codes: Codes) -> Floats:
    """Positions between the bounds, from −½ to ½; 0 where missing."""
    return np.where(codes == MISSING, 0.0, (codes.astype(np.float64) - LOWEST) / SPAN - 0.5)
