"""Kernel densities from a noisy table of counts, convolved with the kernel.

A cell's records are placed at its midpoint. On average over a cell this is unbiased where the density is uniform. Where
values repeat and queries are at such values, it is more accurate than spreading records over the cell. For a single
column they are spread: a sum over midpoints exceeds the integral of a kernel with a cusp by 8 % of the squared width of
a cell, in bandwidths; with more columns the cusp matters too little.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.radial_kernels import Radial
from dpsketch.learn.models.density.full_table import Axis, FullTable
from dpsketch.learn.saved import Arrays, Facts, Saved, finite, real, whole
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.tasks.density_task import WIDEST_CELLS
from dpsketch.recipe.tasks.task import MOST_TABLE_COLUMNS

_SPREAD = (np.arange(8) + 0.5) / 8 - 0.5
_INNER, _LOW, _HIGH = range(3)


class Convolved:
    """Sums of a kernel over the records of a table at any point, with standard errors.

    Values are computed on the lattice of the cells' midpoints, one step beyond the bounds, and interpolated by cubic
    splines. The standard error includes the noise, exactly, and an estimate for the records' unknown positions inside
    cells: pairs of cells are pooled, and the resulting change of the density indicates the effect of finer cells.
    """

    def __init__(self, table: FullTable, kernel: Radial) -> None:
        steps = [axis.step * span for axis, span in zip(table.axes, kernel.spans, strict=True)]
        for name, axis, step in zip(table.columns, table.axes, steps, strict=True):
            if axis.binned and step > WIDEST_CELLS:
                raise QueryError(
                    f"cells of column '{name}' are {step:.3g} bandwidths wide, more than {WIDEST_CELLS:g}",
                    f"ask for a bandwidth {step / WIDEST_CELLS:.3g} times as wide, or release a table with more bins",
                )
        self.columns, self.axes, self.variance = table.columns, table.axes, table.variance
        blocks = list(_blocks(table.axes, steps, kernel))
        pooled = table.counts - _pooled(table.counts, [axis.binned for axis in table.axes], 1)
        self.value, change = _convolved(table.axes, blocks, table.counts, pooled)
        squares = [(place, weights**2) for place, weights in blocks]
        (squared,) = _convolved(table.axes, squares, table.summed)
        self.noise = np.sqrt(table.variance * np.maximum(squared, 0.0))
        self.unseen = _unseen(table, steps, blocks[0][1], change)
        self._prepare()

    def _prepare(self) -> None:
        from scipy.ndimage import spline_filter

        self._splines = spline_filter(self.value, order=3, mode="nearest")
        self._errors = np.sqrt(self.noise**2 + self.unseen**2)

    def at(self, places: Floats) -> tuple[Floats, Floats]:
        """Sums and standard errors at points between the bounds, scaled to 0 … 1, one per matrix row;
        NaN if missing.
        """
        from scipy.ndimage import map_coordinates

        known = np.where(np.isnan(places), 0.5, np.clip(places, 0.0, 1.0))
        where = np.array([axis.coordinates(known[:, j]) + 1.0 for j, axis in enumerate(self.axes)])
        value = map_coordinates(self._splines, where, order=3, mode="nearest", prefilter=False)
        error = map_coordinates(self._errors, where, order=1, mode="nearest")
        missing = np.isnan(places).any(axis=1)
        return np.where(missing, np.nan, value), np.where(missing, np.nan, error)

    @property
    def least_error(self) -> float:
        """The smallest standard error of the noise at any point."""
        return float(self.noise.min())

    def to_saved(self) -> Saved:
        axes = [[axis.cells, axis.binned] for axis in self.axes]
        facts = {"columns": list(self.columns), "axes": axes, "variance": self.variance}
        return facts, {"value": self.value, "noise": self.noise, "unseen": self.unseen}

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> Convolved:
        found = object.__new__(cls)
        found.columns = tuple(facts["columns"])
        found.axes = tuple(Axis(whole(cells, 1), bool(binned)) for cells, binned in facts["axes"])
        if not 1 <= len(found.axes) == len(found.columns) <= MOST_TABLE_COLUMNS:
            raise ValueError("axes")
        found.variance = real(facts["variance"], 0)
        shape = [axis.cells + 2 for axis in found.axes]
        found.value, found.noise, found.unseen = (finite(arrays, n, *shape) for n in ("value", "noise", "unseen"))
        if found.noise.min() < 0 or found.unseen.min() < 0:
            raise ValueError("errors")
        found._prepare()
        return found


Block = tuple[tuple[int, ...], Floats]


def _blocks(axes: tuple[Axis, ...], steps: list[float], kernel: Radial) -> Iterator[Block]:
    """Kernel weights of the cells, and of the atoms at the bounds of some columns.

    There is one entry for each choice of cells or an atom in each column, by distance in lattice steps along columns of
    cells, by lattice point along atoms.
    """
    choices = [(_INNER, _LOW, _HIGH) if axis.binned else (_INNER,) for axis in axes]
    for place in product(*choices):
        squares: Floats = np.zeros(())
        for axis, step, where in zip(axes, steps, place, strict=True):
            inner = np.arange(axis.cells + 1.0)
            offsets = inner if where == _INNER else np.append(-1.0, inner) + 0.5
            squares = squares[..., None] + (offsets * step) ** 2
        weights = kernel(squares)
        if len(axes) == 1 and axes[0].binned and place == (_INNER,):
            weights = kernel(((np.arange(axes[0].cells + 1.0) + _SPREAD[:, None]) * steps[0]) ** 2).mean(axis=0)
        for way, where in enumerate(place):
            if where == _INNER:
                weights = np.concatenate([np.delete(np.flip(weights, way), -1, way), weights], axis=way)
            elif where == _HIGH:
                weights = np.flip(weights, way)
        yield place, weights


def _convolved(axes: tuple[Axis, ...], blocks: list[Block], *tables: Floats) -> list[Floats]:
    """Convolve every table's counts with the kernel weights, on the lattice."""
    from scipy.fft import irfftn, next_fast_len, rfftn

    totals: list[Floats] = [np.zeros([axis.cells + 2 for axis in axes]) for _ in tables]
    for place, weights in blocks:
        chosen = tuple(_where(axis, where) for axis, where in zip(axes, place, strict=True))
        inner = [way for way, where in enumerate(place) if where == _INNER]
        if not inner:
            for total, counts in zip(totals, tables, strict=True):
                total += weights * counts[chosen]
            continue
        # The wrapped part of a circular convolution falls on entries before the first that is kept.
        shape = [next_fast_len(weights.shape[way], True) for way in inner]
        kept = [slice(None)] * len(axes)
        for way in inner:
            kept[way] = slice(axes[way].cells - 1, 2 * axes[way].cells + 1)
        spectrum = rfftn(weights, shape, inner)
        for total, counts in zip(totals, tables, strict=True):
            total += irfftn(spectrum * rfftn(counts[chosen], shape, inner), shape, inner)[tuple(kept)]
    return totals


def _where(axis: Axis, where: int) -> slice:
    if not axis.binned:
        return slice(None)
    return {_INNER: slice(1, -1), _LOW: slice(0, 1), _HIGH: slice(-1, None)}[where]


def _unseen(table: FullTable, steps: list[float], weights: Floats, change: Floats) -> Floats:
    """Standard errors from the records' unknown positions inside cells.

    Half of the change from pooling pairs of cells, as root mean square over a bandwidth around, without the part from
    noise.
    """
    from scipy.ndimage import uniform_filter

    binned = [axis.binned for axis in table.axes]
    noise = table.variance * float(table.summed.mean()) * float(((weights - _pooled(weights, binned, 0)) ** 2).sum())
    around = [2 * int(np.ceil(1 / step)) + 1 for step in steps]
    return np.sqrt(np.maximum(uniform_filter(change**2, around, mode="nearest") - noise, 0.0)) / 2


def _pooled(values: Floats, ways: list[bool], first: int) -> Floats:
    """Replace pairs of entries along some axes by their mean, from `first` on, dropping the same number at the end."""
    found = values.copy()
    for way, pool in enumerate(ways):
        if pool:
            moved = np.moveaxis(found, way, 0)
            pairs = (len(moved) - 2 * first) // 2
            one, two = moved[first : first + 2 * pairs : 2], moved[first + 1 : first + 2 * pairs : 2]
            mean = (one + two) / 2
            one[...], two[...] = mean, mean
    return found
