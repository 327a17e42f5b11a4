"""The only place where sensitivity, noise and ledger meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np

from dpsketch.errors import BudgetError, RecipeError
from dpsketch.maps.base import LARGE, BoundMap, Sums
from dpsketch.privacy.budget import NOT_IN_LEDGER, Budget
from dpsketch.privacy.keystream import Keystream, Stream
from dpsketch.privacy.ledger import Ledger
from dpsketch.privacy.noise import MOST_NOISE_SCALE, discrete_laplace
from dpsketch.recipe import Recipe, declared_rows
from dpsketch.schema import Schema
from dpsketch.sketch import counters
from dpsketch.sketch.raw import RawSketch, sums_dtype
from dpsketch.sketch.released import (
    MECHANISM,
    ReleasedSketch,
    fits,
    library_version,
    part_noise_scale,
    part_sensitivity,
)

_CHUNK = 1 << 20  # sums


def release(raw: RawSketch, budget: Budget, ledger: Ledger | None = None, dataset: str | None = None) -> ReleasedSketch:
    """Reserve the spend, add noise, commit. A crash can cost budget, never privacy; a rerun is a new spend.

    Guarantee: ε-differential privacy for one unit (a row, or all rows of a unit column's value) more or less.
    Source: docs/proofs/release.md. A release marked NOT PRIVATE shows the raw sums: large ones as read-only views.
    """
    types = [part.sums.dtype.type for part in raw.parts]
    _check_room(raw.schema, raw.recipe, [part.map for part in raw.parts], types, budget)
    if not budget.private:
        if ledger is not None:
            raise BudgetError(NOT_IN_LEDGER, "leave out the ledger (--ledger)")
        return _released(raw, budget, tuple(_exact(part.sums) for part in raw.parts))
    if ledger is None or not dataset:
        raise BudgetError(
            "a private release needs a ledger and the dataset's name",
            "pass ledger=Ledger('ledger.db') and dataset='name'",
        )
    spend = ledger.reserve(dataset, budget.exact_epsilon, *raw.schema.accounted, _event(raw))
    sums = noisy_sums(raw, budget, Keystream())
    ledger.commit(spend)
    return _released(raw, budget, sums)


def noisy_sums(raw: RawSketch, budget: Budget, stream: Stream) -> tuple[Sums, ...]:
    """Every part's sums plus its noise, modulo 2^64, or 2^32 for sums of four bytes. Public only through `release`;
    audits call it directly.
    """
    noisy = []
    for part, entry in zip(raw.parts, raw.recipe.parts, strict=True):
        scale = part_noise_scale(raw.schema, entry, part.map, budget.exact_epsilon, raw.recipe.sampling)
        sums = np.empty_like(part.sums)
        for start in range(0, sums.size, _CHUNK):
            chunk = slice(start, min(start + _CHUNK, sums.size))
            noise = discrete_laplace(chunk.stop - start, scale, stream)
            np.add(part.sums[chunk], noise.astype(sums.dtype, copy=False), out=sums[chunk])
        noisy.append(sums)
    return tuple(noisy)


def check_fit(schema: Schema, recipe: Recipe, budget: Budget) -> None:
    """Refuse before reading a table what its release would refuse: all of it follows from public numbers."""
    schema = replace(schema, rows=declared_rows(schema, recipe.rows))
    maps = recipe.bind(schema)
    _check_room(schema, recipe, maps, [sums_dtype(bound, declared_rows(schema)) for bound in maps], budget)


def _check_room(
    schema: Schema, recipe: Recipe, maps: Sequence[BoundMap], types: Sequence[type], budget: Budget
) -> None:
    """Declared rows and noise must fit the sums' 63 bits, or 31; both are public, so the error may say so."""
    rows = declared_rows(schema)
    for bound, entry, kind in zip(maps, recipe.parts, types, strict=True):
        scale = Fraction(0)
        if budget.private:
            scale = part_noise_scale(schema, entry, bound, budget.exact_epsilon, recipe.sampling)
        if scale > MOST_NOISE_SCALE or not fits(schema, bound, (scale,), counters.room(kind)):
            fact = f"map {bound.description.name}: {rows} declared rows and the noise do not fit"
            if kind is np.int32:
                raise RecipeError(f"{fact} 31 bits", "raise epsilon or the part's share, or use fewer repetitions")
            raise RecipeError(f"{fact} 63 bits", "raise epsilon or the part's share, or declare fewer rows")


def _exact(sums: Sums) -> Sums:
    """The sums themselves: a copy, or for large ones a view that cannot be written to."""
    if sums.size < LARGE:
        return sums.copy()
    view = sums.view()
    view.flags.writeable = False
    return view


def _event(raw: RawSketch) -> str:
    """What was done, for the ledger; nothing in it depends on the data."""
    bounds = [part_sensitivity(raw.schema, part.map, raw.recipe.sampling).l1 for part in raw.parts]
    parts = [f"{part.map.description.name} (L1 {l1})" for part, l1 in zip(raw.parts, bounds, strict=True)]
    return f"{MECHANISM}: " + ", ".join(parts)


def _released(raw: RawSketch, budget: Budget, sums: tuple[Sums, ...]) -> ReleasedSketch:
    return ReleasedSketch(
        raw.schema,
        raw.recipe,
        tuple(part.map for part in raw.parts),
        sums,
        (budget.exact_epsilon,) if budget.private else (),
        raw.lineage,
        datetime.now(UTC).date().isoformat(),
        library_version(),
    )
