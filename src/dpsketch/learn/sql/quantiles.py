"""Where a distribution function reaches a share, and how far off that is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.answer import Estimate
from dpsketch.learn.cell_places import BESIDE, levels_to_try, places_to_try
from dpsketch.learn.error_shape import error_quantiles, shares_below
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, LOWEST

_TRIED = 97  # levels at a time
_SURELY = 4.0  # standard errors of a share
_NOISES = 256  # values of the noise, all equally likely


def quantile_of_levels(shares: Callable[[Floats], Estimate], cells: Cells, q: float) -> Estimate:
    """From the shares of records at or below given values: on a coarse grid of levels first, then on a fine one where
    the quantile may be.
    """
    column = cells.column
    levels, jumps = levels_to_try(cells)
    values = column.values_of(column.codes_of(levels))
    some = _thinned(np.arange(len(levels)))
    cdf = shares(values[some])
    if np.isnan(cdf.value).any():
        return _unknown(cdf)
    if len(some) < len(levels):
        some = _where_it_may_be(cdf, some, len(levels), q, _SURELY)
        cdf = shares(values[some])
    step = (column.values_of(column.codes_of(np.minimum(levels[some] + 1, column.levels - 1))) - values[some]) / 2
    return _where_reached(cdf, values[some], jumps[some], step, q)


def quantile_between(shares: Callable[[Floats, tuple[float, ...]], Estimate], cells: Cells, q: float) -> Estimate:
    """The same of a column with values between its levels: on finer grids, then at all places around the quantile.
    `shares` are also told which single values there may be. A value that many records share may be anywhere in its
    level, which is part of the error.
    """
    column, first = cells.column, cells.first_levels
    places, single = places_to_try(cells), first[:-1][np.diff(first) == 1]
    values = column.values_of(column.codes_of(single))

    def at(grid: Floats) -> Estimate:
        low, high = np.searchsorted(values, grid[[0, -1]])
        return shares(grid, tuple(values[max(low - 1, 0) : high + 1].tolist()))

    some = _thinned(np.arange(len(places)))
    cdf = at(places[some])
    if np.isnan(cdf.value).any():
        return _unknown(cdf)
    for surely in (_SURELY, _SURELY, 0.0):
        finer = _where_it_may_be(cdf, some, len(places), q, surely)
        some = finer if surely else np.union1d(some, finer)
        cdf = at(places[some])
    value = np.clip(_reached(cdf, places[some], q), *column.values_of(np.array([LOWEST, HIGHEST])))
    here = at(np.array([value]))
    spread = _spread(cdf, places[some], here, float(value), q)
    nearest = single[np.argmin(np.abs(values - value))]
    around = column.values_of(column.codes_of(np.clip(nearest + np.arange(-1, 2), 0, column.levels - 1)))
    level = (around[2] - around[0]) / 2
    if abs(value - around[1]) <= 2 * BESIDE * level:
        spread = np.sqrt(spread**2 + level**2 / 12)
    size = norm(here.influence)
    if size == 0:
        return Estimate(np.array([value]), np.append(np.zeros(here.influence.shape[-1] - 1), spread)[None], here.rough)
    return Estimate(np.array([value]), here.influence * (spread / size), here.rough)


def _unknown(cdf: Estimate) -> Estimate:
    return Estimate(np.full(1, np.nan), np.full((1, cdf.influence.shape[-1]), np.nan))


def _where_it_may_be(cdf: Estimate, some: NDArray[np.int64], count: int, q: float, surely: float) -> NDArray[np.int64]:
    """Indices among `count` values between those of `some` that are surely below and above a quantile."""
    margin = surely * cdf.stderr
    below, above = np.flatnonzero(cdf.value + margin < q), np.flatnonzero(cdf.value - margin > q)
    first = some[below[-1]] if len(below) else 0
    last = some[above[0]] if len(above) else count - 1
    return _thinned(np.arange(min(first, last), max(first, last) + 1))


def _thinned(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """About _TRIED of them, with the first and the last."""
    return indices[np.unique(np.linspace(0, len(indices) - 1, _TRIED).round().astype(np.int64))]


def _where_reached(cdf: Estimate, grid: Floats, jumps: NDArray[np.bool_], step: Floats, q: float) -> Estimate:
    """Where a distribution function, given on a rising grid of values, reaches q: at the value itself where it jumps,
    else between two values. `step` is half the distance to the next value that a record can have.
    """
    rising = _rising(cdf)
    above = min(int(np.searchsorted(rising, q, side="left")), len(grid) - 1)
    under = max(above - 1, 0)
    value, width = grid[above], 0.0
    if not jumps[above] and above > under:
        width = grid[above] - grid[under]
        value = grid[under] + np.clip((q - rising[under]) / max(rising[above] - rising[under], 1e-12), 0, 1) * width
    influence = level_influence(grid, rising, cdf.influence, q, above, cdf.rough)
    size = norm(influence)
    if size == 0:
        influence = np.zeros_like(influence)
        influence[-1] = size = 1e-300
    least = np.sqrt(size**2 + width**2 / 12 + step[above] ** 2 / 3)
    return Estimate(np.array([value]), (influence * (least / size))[None], cdf.rough)


def _reached(cdf: Estimate, grid: Floats, q: float) -> float:
    """Where a distribution function that is straight between the values of a rising grid reaches q."""
    rising = _rising(cdf)
    return float(np.interp(q, rising, grid) if q < rising[-1] else grid[np.searchsorted(rising, rising[-1])])


def _spread(cdf: Estimate, grid: Floats, here: Estimate, value: float, q: float) -> float:
    """The spread of where it would reach q with other noise, around the value where it does, and where the standard
    error of the share is that of `here`.
    """
    rising, error = _rising(cdf), float(here.stderr[0])
    near = np.interp(q + error * np.linspace(-_SURELY, _SURELY, _TRIED), rising, grid)
    every = np.unique(np.concatenate([grid, near, [value]]))
    stderr = np.interp(every, *_with(grid, cdf.stderr, value, error))
    shares = np.interp(every, *_with(grid, rising, value, q))
    away = np.maximum.accumulate((shares - q) / np.maximum(stderr, 1e-300))
    noises = error_quantiles((np.arange(_NOISES) + 0.5) / _NOISES, cdf.rough)
    others = np.interp(noises, away, every)
    return max(float(np.sqrt(np.mean((others - value) ** 2))), 1e-300)


def _with(grid: Floats, known: Floats, value: float, here: float) -> tuple[Floats, Floats]:
    """A rising grid and what is known on it, with one more value."""
    place = int(np.searchsorted(grid, value))
    return np.insert(grid, place, value), np.insert(known, place, here)


def _rising(cdf: Estimate) -> Floats:
    from scipy.optimize import isotonic_regression

    rising: Floats = np.clip(isotonic_regression(cdf.value).x, 0, 1)
    return rising


def level_influence(grid: Floats, shares: Floats, influence: Floats, q: float, level: int, rough: bool) -> Floats:
    """The quantile of a discrete column jumps between levels: its standard error is the spread of the level that
    noise would choose, P(quantile <= level k) = P(noisy share of k >= q); the direction is that of the share's noise,
    or of the level's before, as the last one's share has none.
    """
    stderr = np.sqrt((influence**2).sum(axis=1))
    reached = shares_below((shares - q) / np.maximum(stderr, 1e-300), rough)
    reached[-1] = 1.0
    chance = np.diff(np.maximum.accumulate(reached), prepend=0.0)
    distance = grid - grid[level]
    spread = float(np.sqrt(max(float(chance @ distance**2 - (chance @ distance) ** 2), 0.0)))
    noisy = level if stderr[level] >= stderr[max(level - 1, 0)] else max(level - 1, 0)
    return influence[noisy] * (spread / max(stderr[noisy], 1e-300))


def norm(influence: Floats) -> float:
    return float(np.sqrt((influence**2).sum()))
