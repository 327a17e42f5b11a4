"""A released table of cells over few columns: denoised, as Fourier sums, and with new noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.fourier_sums import LEAST_SPREAD, TURN, Complex, FourierSums
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.estimators.small_table import small_tables
from dpsketch.maps.fourier.fourier import Fourier
from dpsketch.maps.tables.cells import EVERY_CODE, Cells
from dpsketch.maps.tables.histogram import BoundHistogram
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.simplex import project_groups
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.recipe.tasks.clusters_task import MOST_FREQUENCIES, RADII
from dpsketch.recipe.tasks.task import MOST_TABLE_COLUMNS
from dpsketch.schema.columns import SPAN
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch

# Standard deviations above 0 at which a block of cells is significant.
STANDING_OUT: Annotated[float, UNRECORDED] = 3.0
DRAWN: Annotated[int, UNRECORDED] = 4  # times the frequencies of a release, before similar ones are dropped
MOST_DRAWN = 4000
Indices = NDArray[np.int64]
Number = TypeVar("Number", np.float64, np.complex128)


@dataclass(frozen=True)
class Axis:
    """Cells of one column: their midpoints, from −½ to ½, and their widths, 0 for a single value."""

    middles: Floats
    widths: Floats


@dataclass(frozen=True)
class Blocks:
    """Wider cells of a coarser table of the same columns.

    For each column there is the wider cell of each cell, in their order; and the variances of the coarser table's
    noise.
    """

    owners: tuple[Indices, ...]
    variances: Floats

    def summed(self, numbers: Floats) -> Floats:
        """Sums of the cells in each wider one."""
        return _grouped(numbers, self.owners)

    def given(self, numbers: Floats) -> Floats:
        """The number of the wider cell, for each cell."""
        return numbers[np.ix_(*self.owners)]


@dataclass(frozen=True)
class CellTable:
    """Noisy `counts` of all cells, with the `variances` of their noise.

    A missing value counts as the lower bound, as it does for Fourier sums. With `blocks`, the counts already agree with
    the mean of both tables in the wider cells.
    """

    schema: Schema
    columns: tuple[str, ...]
    axes: tuple[Axis, ...]
    counts: Floats
    variances: Floats
    blocks: Blocks | None = None

    @cached_property
    def places(self) -> Floats:
        """The midpoint of every cell, one per matrix row."""
        mesh = np.meshgrid(*(axis.middles for axis in self.axes), indexing="ij")
        return np.stack([each.ravel() for each in mesh], axis=1)

    @cached_property
    def cleared(self) -> Floats:
        """Non-negative counts without most of the noise."""
        return cleared(self)

    def redrawn(self, generator: np.random.Generator) -> Floats:
        """Counts of another draw of the records and of the noise, after `cleared`."""
        records = generator.poisson(self.cleared).astype(np.float64)
        again = replace(self, counts=records + _laplace(self.variances, generator))
        if self.blocks is not None:
            coarse = self.blocks.summed(records) + _laplace(self.blocks.variances, generator)
            again = agreeing(again, coarse, self.blocks)
        return cleared(again)


def _laplace(variances: Floats, generator: np.random.Generator) -> Floats:
    return generator.laplace(0.0, 1.0, variances.shape) * np.sqrt(variances / 2)


def agreeing(table: CellTable, coarse: Floats, blocks: Blocks) -> CellTable:
    """The table with its wider cells at the inverse-variance weighted mean of both tables.

    The adjustment of a wider cell is spread evenly over its cells. Source: Hay et al. 2010, for two levels.
    """
    own, sums = blocks.summed(table.variances), blocks.summed(table.counts)
    share = own / np.maximum(own + blocks.variances, 1e-300)
    cells = blocks.summed(np.ones(table.counts.shape))
    return replace(table, counts=table.counts + blocks.given(share * (coarse - sums) / cells), blocks=blocks)


def released_table(released: ReleasedSketch, columns: Sequence[str] | None = None) -> CellTable | None:
    """The first histogram part that is a single table of up to three number columns: those named, if any are.

    If a later part is a coarser table of the same columns whose cells are unions of its cells, both are combined.
    """
    found: CellTable | None = None
    fine: tuple[Cells, ...] = ()
    for part, _ in released.parts_with(BoundHistogram):
        table, *others = small_tables(part)
        if others or len(table.columns) > MOST_TABLE_COLUMNS or not table.numeric:
            continue
        if columns is not None and set(columns) != set(table.columns):
            continue
        counts, variances = map(_without_missing, (table.counts, np.full(table.shape, table.variance)))
        if found is None:
            axes = tuple(_axis(cells) for cells in table.cells)
            found, fine = CellTable(released.schema, table.columns, axes, counts, variances), table.cells
        elif table.columns == found.columns:
            owners = [_owners(*each) for each in zip(fine, table.cells, strict=True)]
            nested = tuple(each for each in owners if each is not None)
            if len(nested) == len(owners):
                return agreeing(found, counts, Blocks(nested, variances))
    return found


def _owners(fine: Cells, coarse: Cells) -> Indices | None:
    """The wider cell of each cell, if no cell has codes of two."""
    own = np.stack([cells.cells(EVERY_CODE[1:]) for cells in (fine, coarse)])
    pairs = np.unique(own, axis=1)
    return pairs[1] if pairs.shape[1] == int(own[0].max()) + 1 else None


def _axis(cells: Cells) -> Axis:
    """A cell of m values is as wide as evenly spread records with their variance."""
    codes, firsts = cells.column.codes_of(np.arange(cells.column.levels)).astype(np.float64), cells.first_levels
    first, last, values = codes[firsts[:-1]], codes[firsts[1:] - 1], np.diff(firsts)
    widths = (last - first) * np.sqrt((values + 1) / np.maximum(values - 1, 1))
    return Axis((first + last) / 2 / SPAN, widths / SPAN)


def _without_missing(numbers: Floats) -> Floats:
    """The numbers with the last cell of every column, that of missing values, added to the first."""
    for axis in range(numbers.ndim):
        missing = np.take(numbers, -1, axis)
        numbers = np.delete(numbers, -1, axis)
        first = tuple(0 if each == axis else slice(None) for each in range(numbers.ndim))
        numbers[first] += missing
    return numbers


@dataclass(frozen=True)
class _Level:
    """Blocks of cells: their counts, the variances of these, and the number of cells in each."""

    counts: Floats
    variances: Floats
    cells: Floats

    def grouped(self, groups: tuple[Indices, ...]) -> _Level:
        return _Level(*(_grouped(each, groups) for each in (self.counts, self.variances, self.cells)))


def cleared(table: CellTable) -> Floats:
    """Non-negative counts with the same total, from coarse to fine.

    Of the up to 2^d parts of a block of cells, those with significant counts share its count in proportion to theirs.
    If none is significant, all share it in proportion to their numbers of cells. Noise in empty space thus vanishes,
    and cells are resolved where possible. Source: docs/clusters.md. Lloyd's algorithm on signed counts is unbiased but
    less accurate, because it finds clusters in the noise.
    """
    levels, parents = [_Level(table.counts, table.variances, np.ones(table.counts.shape))], []
    blocks = table.blocks
    while levels[-1].counts.size > 1:
        shape = levels[-1].counts.shape
        owners = tuple(np.zeros(length, np.int64) for length in shape) if blocks is None else blocks.owners
        parents.append(tuple(_halves(own) for own in owners))
        levels.append(levels[-1].grouped(parents[-1]))
        if blocks is None:
            continue
        firsts = [np.unique(each, return_index=True)[1] for each in parents[-1]]
        blocks = replace(blocks, owners=tuple(own[first] for own, first in zip(owners, firsts, strict=True)))
        if levels[-1].counts.shape == blocks.variances.shape:
            levels[-1] = replace(levels[-1], variances=_together(levels[-1].variances, blocks.variances))
            blocks = None
    found = np.maximum(levels[-1].counts, 1.0)
    for level, parent in zip(levels[-2::-1], parents[::-1], strict=True):
        block = np.ravel_multi_index(np.ix_(*parent), found.shape).ravel()
        totals, values, sizes = found.ravel(), level.counts.ravel(), level.cells.ravel()
        standing = (values > STANDING_OUT * np.sqrt(level.variances.ravel())) & (totals[block] > 0)
        split = np.bincount(block, standing, len(totals)) > 0
        shared = totals[block] * sizes / np.bincount(block, sizes)[block]
        shared[split[block]] = 0.0
        if split.any():
            number = np.cumsum(split) - 1
            shared[standing] = project_groups(values[standing], number[block[standing]], totals[split])
        found = shared.reshape(level.counts.shape)
    return found


def _together(one: Floats, other: Floats) -> Floats:
    """Variances of the best weighted means of two numbers."""
    return one * other / np.maximum(one + other, 1e-300)


def _halves(owners: Indices) -> Indices:
    """Group indices: pairs of neighbours with the same owner form a group."""
    first = np.searchsorted(owners, owners)
    return np.cumsum((np.arange(len(owners)) - first) % 2 == 0) - 1


def _grouped(numbers: Floats, groups: tuple[Indices, ...]) -> Floats:
    """Sums over groups of neighbours along each axis."""
    for axis, own in enumerate(groups):
        numbers = np.add.reduceat(numbers, np.unique(own, return_index=True)[1], axis)
    return numbers


def table_sums(released: ReleasedSketch, table: CellTable, clusters: int) -> FourierSums:
    """Fourier sums of the signed counts, as if records were uniform in each cell, with their noise.

    Lengths of frequencies are those of `Recipe.clusters`. Any frequency closer than 2π to a shorter one is dropped,
    because the noise of their sums would be strongly correlated.
    """
    dimension = len(table.columns)
    size = min(DRAWN * MOST_FREQUENCIES * clusters * dimension, MOST_DRAWN)
    fourier = Fourier(table.columns, size, radii=RADII[dimension], structure="dense").bind(table.schema)
    frequencies = _apart(fourier.frequencies.astype(np.float64) * (2 * np.pi * SPAN / TURN))
    rows = ReleaseNoise(released).rows()
    counted = float(rows.value)
    waves = [_waves(axis, frequencies[:, place]) for place, axis in enumerate(table.axes)]
    values = _summed(table.counts, waves) / counted
    noise = _noise(table, waves) / (2 * counted**2)
    spread = np.maximum(1 - np.abs(values) ** 2, LEAST_SPREAD) / (2 * counted)
    harmonics = ((1, np.ones(len(values), np.complex128)),)
    relative = float(rows.stderr) / counted
    return FourierSums(table.columns, frequencies, values, np.sqrt(noise + spread), relative, harmonics)


def _noise(table: CellTable, waves: list[Complex]) -> Floats:
    """Mean squared noise of sums over cells times their waves.

    With blocks, the deviation of a wave from its mean over the block has the noise of the cells; the mean has that of
    the block.
    """
    squares = _summed(table.variances, [np.abs(wave) ** 2 for wave in waves])
    blocks = table.blocks
    if blocks is None:
        return squares
    means = []
    for wave, own in zip(waves, blocks.owners, strict=True):
        first = np.unique(own, return_index=True)[1]
        means.append(np.abs(np.add.reduceat(wave, first, 0) / np.diff(first, append=len(own))[:, None]) ** 2)
    alone = blocks.summed(table.variances)
    inside = squares - _summed(alone, means)
    return np.maximum(inside, 0.0) + _summed(_together(alone, blocks.variances), means)


def _apart(frequencies: Floats) -> Floats:
    """Frequencies from the shortest on that are at least 2π from all kept ones and their negatives."""
    kept = np.empty((0, frequencies.shape[1]))
    for each in frequencies[np.argsort(np.linalg.norm(frequencies, axis=1), kind="stable")]:
        squares = np.minimum(((kept - each) ** 2).sum(1), ((kept + each) ** 2).sum(1))
        if not (squares < (2 * np.pi) ** 2).any():
            kept = np.vstack([kept, each])
    return kept


def _waves(axis: Axis, frequencies: Floats) -> Complex:
    """Mean of the wave over each cell, by cell and frequency."""
    inside = np.sinc(np.outer(axis.widths, frequencies) / (2 * np.pi))
    return inside * np.exp(1j * np.outer(axis.middles, frequencies))


def _summed(numbers: Floats, waves: Sequence[NDArray[Number]]) -> NDArray[Number]:
    """Σ over cells of a number times the product of its columns' waves, for each frequency."""
    first = np.tensordot(numbers, waves[-1], axes=(-1, 0))
    return reduce(lambda left, wave: np.einsum("...cf,cf->...f", left, wave), waves[-2::-1], first)
