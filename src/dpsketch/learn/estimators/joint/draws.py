"""Records drawn from a fitted joint distribution, as points of a frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.joint.joint_fit import Products
from dpsketch.learn.points import Frame
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema


def drawn_frame(
    schema: Schema, cells: Sequence[Cells], products: Products, places: NDArray[np.int64], seed: int
) -> Frame:
    """Values in the cells `places` of rows; deterministic given the seed. They are spread as `Marginal` says."""
    rows = len(places)
    generator = np.random.default_rng([seed, 1])
    codes = {}
    for own, place, marginal in zip(cells, places.T, products.marginals, strict=True):
        steps = generator.random(rows)
        if own.binned:
            start, length = _stretch(marginal)
            steps = start[place] + length[place] * steps
        codes[own.column.name] = codes_in_cells(own, place, np.minimum(steps, 1 - 1e-9))
    return Frame(schema, codes)


def shares_in_cells(marginal: Marginal, inside: int) -> Floats:
    """The share of each of `inside` equal pieces of every cell in the cell's mass: one row a cell."""
    start, length = _stretch(marginal)
    edges = np.arange(inside + 1) / inside
    return np.diff(np.clip((edges - start[:, None]) / length[:, None], 0.0, 1.0), axis=1)


def _stretch(marginal: Marginal) -> tuple[Floats, Floats]:
    """The part of each cell on which it is uniform, as start and length in cell widths: it has the cell's mean."""
    length = 1 - 2 * np.abs(marginal.offsets)
    return 0.5 + marginal.offsets - length / 2, length
