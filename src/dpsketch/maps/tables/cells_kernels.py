"""Numba kernels of the maps over cells: one table of 65536 codes for all columns with the same cells."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.jit import kernel

TILE = 1 << 15  # records; a table of pairs is brought into the cache once a tile
_GRID = 1 << 16  # maps.cells.GRID


@kernel("void(int16[:,::1], int64[::1], int64[::1], uint16[:,::1], int16[:,::1], int64[:,::1], int64[::1])")
def marginal_sums(codes, rows, kinds, cells, positions, places, sums):  # type: ignore[no-untyped-def]
    """Add each record's counts, positions and codes; `places` says where the sums of a column begin: its counts, the
    positions of its bins, its codes, each -1 if it has none.
    """
    for j in range(rows.size):
        source, cell_of, position_of = codes[rows[j]], cells[kinds[j]], positions[kinds[j]]
        counts, bins, centre = places[j]
        if bins < 0:
            for i in range(source.size):
                sums[counts + cell_of[np.int64(source[i]) + 32768]] += _GRID
        else:
            for i in range(source.size):
                index = np.int64(source[i]) + 32768
                cell, position = np.int64(cell_of[index]), np.int64(position_of[index])
                sums[counts + cell] += _GRID
                if position != 0:  # cells that are not bins have no position
                    sums[bins + cell - 1] += position
        if centre >= 0:
            total = np.int64(0)
            for i in range(source.size):
                code = np.int64(source[i])
                total += code if code != -32768 else np.int64(0)
            sums[centre] += total


_CELLS = "void(int16[:,::1], int64[::1], int64[::1], uint16[:,::1], int64[::1], {}[::1])"


@kernel(_CELLS.format("int64"), _CELLS.format("int32"))
def cell_sums(codes, rows, kinds, cells, starts, sums):  # type: ignore[no-untyped-def]
    """Add one to the cell of each record in the table of each column. A negative kind has a cell for each code, in
    their order, and the one of missing codes last.
    """
    for j in range(rows.size):
        source, start = codes[rows[j]], starts[j]
        if kinds[j] < 0:
            for i in range(source.size):
                sums[start + (np.int64(source[i]) + 32767 & 65535)] += 1
        else:
            cell_of = cells[kinds[j]]
            for i in range(source.size):
                sums[start + cell_of[np.int64(source[i]) + 32768]] += 1


_PAIRS = (
    "void(int16[:,::1], int64[::1], int64[::1], uint16[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], "
    "{}[::1])"
)


@kernel(_PAIRS.format("int64"), _PAIRS.format("int32"))
def pair_sums(codes, rows, kinds, cells, members, strides, offsets, weights, sums):  # type: ignore[no-untyped-def]
    """Add a table's weight to the cell of each record in the table of each pair of columns."""
    records = codes.shape[1]
    found = np.empty((rows.size, min(TILE, records)), np.uint16)
    for start in range(0, records, TILE):
        width = min(records, start + TILE) - start
        for j in range(rows.size):
            source, cell_of, target = codes[rows[j]], cells[kinds[j]], found[j]
            for i in range(width):
                target[i] = cell_of[np.int64(source[start + i]) + 32768]
        for t in range(members.shape[0]):
            left, right = found[members[t, 0]], found[members[t, 1]]
            stride, offset, weight = strides[t], offsets[t], weights[t]
            for i in range(width):
                sums[offset + np.int64(left[i]) * stride + right[i]] += weight


_TRIPLES = "void(int16[:,::1], int64[::1], int64[::1], uint16[:,::1], int64[:,::1], int64[:,::1], int64[::1], {}[::1])"


@kernel(_TRIPLES.format("int64"), _TRIPLES.format("int32"))
def triple_sums(codes, rows, kinds, cells, members, strides, offsets, sums):  # type: ignore[no-untyped-def]
    """Add one to the cell of each record in the table of each triple of columns."""
    records = codes.shape[1]
    found = np.empty((rows.size, min(TILE, records)), np.uint16)
    for start in range(0, records, TILE):
        width = min(records, start + TILE) - start
        for j in range(rows.size):
            source, cell_of, target = codes[rows[j]], cells[kinds[j]], found[j]
            for i in range(width):
                target[i] = cell_of[np.int64(source[start + i]) + 32768]
        for t in range(members.shape[0]):
            one, two, three = found[members[t, 0]], found[members[t, 1]], found[members[t, 2]]
            large, small, offset = strides[t, 0], strides[t, 1], offsets[t]
            for i in range(width):
                sums[offset + np.int64(one[i]) * large + np.int64(two[i]) * small + three[i]] += 1
