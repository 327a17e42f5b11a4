"""Records drawn from a fitted joint distribution, as points of a frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.joint.joint_fit import Products
from dpsketch.learn.points import Frame
from dpsketch.maps.tables.cells import POSITION_GRID, Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema

PIECES = 64  # of a cell, in which a drawn value lies anywhere
STEEPEST = 200.0  # slope of the logarithm of a density across a cell
TILT_STEPS = 20


def drawn_frame(
    schema: Schema, cells: Sequence[Cells], products: Products, places: NDArray[np.int64], seed: int
) -> Frame:
    """Values in the cells `places` of rows; deterministic given the seed. They are spread as `shares_in_cells` says."""
    rows = len(places)
    generator = np.random.default_rng([seed, 1])
    codes = {}
    for own, place, marginal in zip(cells, places.T, products.marginals, strict=True):
        steps = generator.random(rows)
        if own.binned and marginal.offsets.any():
            below = np.cumsum(shares_in_cells(marginal, positions_in_cells(own, PIECES)), axis=1)
            piece = np.searchsorted((below + np.arange(own.count)[:, None]).ravel(), place + steps) - PIECES * place
            steps = (np.minimum(piece, PIECES - 1) + generator.random(rows)) / PIECES
        codes[own.column.name] = codes_in_cells(own, place, np.minimum(steps, 1 - 1e-9))
    return Frame(schema, codes)


def positions_in_cells(cells: Cells, inside: int) -> Floats:
    """Positions in their cell, in widths of it from its centre, of `inside` points spread evenly over the levels of
    each cell: one row a cell.
    """
    steps = np.tile((np.arange(inside) + 0.5) / inside, cells.count)
    codes = codes_in_cells(cells, np.repeat(np.arange(cells.count), inside), steps)
    return np.asarray(cells.positions(codes) / POSITION_GRID).reshape(cells.count, inside)


def shares_in_cells(marginal: Marginal, positions: Floats) -> Floats:
    """The share of each point of a cell, given by its position, in the cell's mass: one row a cell.

    Of all distributions over the points that have the cell's mean position, or as near to it as points are, the one of
    the largest entropy: its logarithm is a line. With two levels in a cell nothing else has that mean.
    """
    tilt = np.zeros(len(positions))
    wanted = np.clip(marginal.offsets, positions.min(1), positions.max(1))
    for _ in range(TILT_STEPS if wanted.any() else 0):
        shares = _tilted(positions, tilt)
        mean = (shares * positions).sum(1)
        variance = (shares * (positions - mean[:, None]) ** 2).sum(1)
        tilt = np.clip(tilt + np.clip((wanted - mean) / np.maximum(variance, 1e-6), -10, 10), -STEEPEST, STEEPEST)
    return _tilted(positions, tilt)


def _tilted(positions: Floats, tilt: Floats) -> Floats:
    logarithms = tilt[:, None] * positions
    weights = np.exp(logarithms - logarithms.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))
