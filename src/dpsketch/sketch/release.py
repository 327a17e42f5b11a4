"""The only place where sensitivity, noise and ledger meet."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import numpy as np

from dpsketch.errors import BudgetError, RecipeError
from dpsketch.maps.base import LARGE, Sums
from dpsketch.privacy.budget import NOT_IN_LEDGER, Budget
from dpsketch.privacy.keystream import Keystream, Stream
from dpsketch.privacy.ledger import Ledger
from dpsketch.privacy.noise import MOST_NOISE_SCALE, discrete_laplace
from dpsketch.recipe import declared_rows
from dpsketch.sketch import counters
from dpsketch.sketch.raw import RawSketch
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
    check_room(raw, budget)
    if not budget.private:
        if ledger is not None:
            raise BudgetError(NOT_IN_LEDGER, "leave out the ledger (--ledger)")
        return _released(raw, budget, tuple(_exact(part.sums) for part in raw.parts))
    if ledger is None or not dataset:
        raise BudgetError(
            "a private release needs a ledger and the dataset's name",
            "pass ledger=Ledger('ledger.db') and dataset='name'",
        )
    spend = ledger.reserve(dataset, budget.exact_epsilon, raw.schema.unit, raw.schema.max_rows_per_unit, _event(raw))
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


def check_room(raw: RawSketch, budget: Budget) -> None:
    """Declared rows and noise must fit the sums' 63 bits, or 31; both are public, so the error may say so."""
    rows = declared_rows(raw.schema)
    for part, entry in zip(raw.parts, raw.recipe.parts, strict=True):
        scale = Fraction(0)
        if budget.private:
            scale = part_noise_scale(raw.schema, entry, part.map, budget.exact_epsilon, raw.recipe.sampling)
        if scale > MOST_NOISE_SCALE or not fits(raw.schema, part.map, (scale,), counters.room(part.sums)):
            fact = f"map {part.map.description.name}: {rows} declared rows and the noise do not fit"
            if counters.narrow(part.sums):
                more = f"sketch again with at least {counters.NARROW_ROOM} rows declared"
                raise RecipeError(f"{fact} 31 bits", f"raise epsilon or the part's share, or {more}")
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
