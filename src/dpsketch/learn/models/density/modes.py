"""Modes of a release's kernel density."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.control_variate import control_of
from dpsketch.learn.estimators.radial_kernels import Bandwidth, Radial, euclidean
from dpsketch.learn.models.density.full_table import FullTable, full_table, places_of, units_at
from dpsketch.learn.models.density.hashed import Hashed, made_up_records
from dpsketch.learn.models.density.kernel_density import KernelDensity
from dpsketch.maps.hashed.hashes import Euclidean, HashFamily, SignedProjection
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.recipe.tasks.density_task import default_bandwidth
from dpsketch.schema.columns import IdSet
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

METHODS = ("restart", "cells")
MOST_MODES = 1000
_CANDIDATES: Annotated[int, UNRECORDED] = 1000  # of which the best are starts
_FIRST_STEP: Annotated[float, UNRECORDED] = 0.125  # in widths of the bounds
_LAST_STEP: Annotated[float, UNRECORDED] = 0.002  # in widths of the bounds
_ROUNDS = 60


@dataclass(frozen=True)
class Modes:
    """Points in users' units by decreasing density: `points` has an array for each column."""

    columns: tuple[str, ...]
    points: dict[str, Any]
    densities: Floats
    stderrs: Floats
    how: str

    def __len__(self) -> int:
        return len(self.densities)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row per mode."""
        return [
            {name: self.points[name][place] for name in self.columns}
            | {"density": float(self.densities[place]), "stderr": float(self.stderrs[place])}
            for place in range(len(self))
        ]


def find_modes(
    view: View,
    k: int = 1,
    columns: Sequence[str] | None = None,
    method: str = "restart",
    random_state: int = 0,
    kernel: HashFamily | str | None = None,
    bandwidth: Bandwidth | None = None,
) -> Modes:
    """Up to `k` points of the highest density, no two within a bandwidth, with densities and standard errors.

    `kernel` and `bandwidth` are those of `KernelDensity`, by default the release's own.

    A derivative-free ascent from many starts uses coordinates and random directions, and halves its steps where none
    ascends. "restart" ascends the density itself. "cells" searches for the intersection of the heaviest hash cells: it
    ascends the number of rows of the table in which a point falls into one of the k heaviest counters, and the density
    only to break ties; with a table of counts it starts from the heaviest cells. Errors cover noise and hashes at the
    point, not the location of the point itself. The maximum of many noisy values is biased upwards. Simulated records
    correct the densities of the results, not the ascent. Where rows of a joint distribution answer, both methods ascend
    the density of 4,096 of them.
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST_MODES:
        raise QueryError(f"k must be a whole number from 1 to {MOST_MODES}, got {k!r} instead")
    if method not in METHODS:
        raise QueryError(f"method must be one of {', '.join(METHODS)}, got {method!r} instead")
    model = KernelDensity(kernel, bandwidth, columns).fit(view)
    names = tuple(model.feature_names_in_)
    if any(isinstance(view.schema.column(name), IdSet) for name in names):
        raise QueryError("modes of sets of ids are not supported", "ask KernelDensity at sets that you know")
    generator = np.random.default_rng(random_state)

    def density(places: Floats) -> Floats:
        return model.plain_values(units_at(view.schema, names, places))

    table, hashed = full_table(view.released, names), model.counters
    starts = _starts(view, names, table, hashed, model.drawn(_CANDIDATES), method, generator)
    objective = density
    if method == "cells" and table is None and hashed is not None:
        counts = np.asarray(hashed.sums).reshape(hashed.race.rows, hashed.race.width)
        heavy = np.partition(counts, -min(k, counts.shape[1]), axis=1)[:, -min(k, counts.shape[1])]

        def objective(places: Floats) -> Floats:
            assert hashed is not None
            records = hashed.records(units_at(view.schema, names, places))
            index, _ = hashed.race.entries(records, hashed.race.rows)
            return (np.asarray(hashed.sums)[index] >= heavy).mean(axis=1) + 1e-6 * density(places)

    scaled, bandwidth = _in_bandwidths(model, view.schema, names)
    spread = starts[_apart(scaled(starts), objective(starts), 2.0, min(4 * k + 12, 200))]
    # Long steps leave regions without records, but also leap from one mode to a denser one; short steps do not.
    short = min(bandwidth, _FIRST_STEP)
    climbed = [
        _climbed(spread, objective, first, min(short / 5, _LAST_STEP), generator) for first in (_FIRST_STEP, short)
    ]
    found = np.concatenate(climbed)
    final = model.density(units_at(view.schema, names, found))
    chosen = _apart(scaled(found), np.asarray(final.value), 1.0, k)
    points = units_at(view.schema, names, found[chosen])
    return Modes(names, points, final.value[chosen], final.stderr[chosen], f"{method}: {model.how_}")


def _starts(
    view: View,
    names: tuple[str, ...],
    table: FullTable | None,
    hashed: Hashed | None,
    rows: Floats | None,
    method: str,
    generator: np.random.Generator,
) -> Floats:
    """Starting points between the bounds: from the release's own distribution where it has one, and uniform."""
    anywhere = generator.random((_CANDIDATES, len(names)))
    if rows is not None:
        return np.concatenate([np.nan_to_num(rows, nan=0.5), anywhere])
    if table is not None and method == "cells":
        heaviest = np.argsort(-table.counts.ravel())[:_CANDIDATES]
        index = np.stack(np.unravel_index(heaviest, table.counts.shape), axis=1).astype(np.float64)
        middles = [
            np.clip((index[:, j] - 0.5 * axis.binned) * axis.step, 0.0, 1.0) for j, axis in enumerate(table.axes)
        ]
        return np.stack(middles, axis=1)
    if table is not None:
        return np.concatenate([table.drawn(_CANDIDATES, generator), anywhere])
    control = None if hashed is None else control_of(view.released, hashed.race, float(view.rows_in_sums().value))
    drawn: Any = None if control is None else control.points(_CANDIDATES)
    if drawn is None:
        drawn = made_up_records(view, names, _CANDIDATES, int(generator.integers(2**29)))
    if drawn is not None:
        places = places_of(view.schema, names, {name: drawn[name] for name in names})
        return np.concatenate([np.nan_to_num(places, nan=0.5), anywhere])
    return anywhere


def _climbed(
    places: Floats, objective: Callable[[Floats], Floats], first: float, last: float, generator: np.random.Generator
) -> Floats:
    """Points after an ascent with steps from `first` down to `last`, in widths of the bounds."""
    places, (count, dimension) = places.copy(), places.shape
    values, steps = objective(places), np.full(count, first)
    for _ in range(_ROUNDS):
        active = np.flatnonzero(steps > last)
        if not len(active):
            break
        random = generator.normal(size=(len(active), dimension, dimension))
        random /= np.linalg.norm(random, axis=2, keepdims=True)
        axes = np.broadcast_to(np.eye(dimension), random.shape)
        moves = np.concatenate([axes, -axes, random], axis=1) * steps[active, None, None]
        tried = np.clip(places[active, None, :] + moves, 0.0, 1.0)
        found = objective(tried.reshape(-1, dimension)).reshape(len(active), -1)
        best = found.argmax(axis=1)
        every = np.arange(len(active))
        rises = found[every, best] > values[active]
        places[active[rises]] = tried[every, best][rises]
        values[active[rises]] = found[every, best][rises]
        steps[active[~rises]] /= 2
    return places


def _in_bandwidths(
    model: KernelDensity, schema: Schema, names: tuple[str, ...]
) -> tuple[Callable[[Floats], Floats], float]:
    """Coordinates in which modes are at least one apart, and the narrowest bandwidth in widths of the bounds."""
    kernel = model.kernel_
    if isinstance(kernel, SignedProjection):  # only the direction matters, and half of the kernel is one apart
        unit = np.pi * (1 - 0.5 ** (1 / kernel.bits))

        def directions(places: Floats) -> Floats:
            seen = places - 0.5
            return seen / np.maximum(np.linalg.norm(seen, axis=1, keepdims=True), 1e-9) / unit

        return directions, _FIRST_STEP
    if isinstance(kernel, Euclidean) and not (model.counters is not None and model.counters.embedded):
        kernel = euclidean(schema, names, kernel)
    default = 1 / default_bandwidth(len(names))
    spans = np.array(kernel.spans if isinstance(kernel, Radial) else [default] * len(names))
    return lambda places: places * spans, float(1 / spans.max())


def _apart(places: Floats, densities: Floats, gap: float, k: int) -> list[int]:
    """Indices of up to `k` of the densest points, no two closer than `gap`."""
    chosen: list[int] = []
    for place in np.argsort(-densities):
        if not chosen or np.linalg.norm(places[chosen] - places[place], axis=1).min() > gap:
            chosen.append(int(place))
        if len(chosen) == k:
            break
    return chosen
