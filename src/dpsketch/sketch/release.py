"""Releases: the only module where sensitivity, noise and ledger meet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from dpsketch.calibration import keeps_budget
from dpsketch.errors import BudgetError, RecipeError
from dpsketch.ledger.ledger import Ledger
from dpsketch.maps.base import LARGE, BoundMap, NoisyPart, Sums
from dpsketch.noise import keystream
from dpsketch.noise.keystream import Keystream, Stream
from dpsketch.noise.laplace import MOST_NOISE_SCALE
from dpsketch.noise.samplers import SAMPLERS, SHARES
from dpsketch.privacy.accounting import Partition
from dpsketch.privacy.budget import NOT_IN_LEDGER, Budget
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.label_threshold import label_event
from dpsketch.privacy.mechanisms import MECHANISMS
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch import counters
from dpsketch.sketch.adaptive import noisy_in_stages
from dpsketch.sketch.agreement import agreed_maps
from dpsketch.sketch.circumstances import AuditResult, Circumstances
from dpsketch.sketch.predicted_errors import PredictedErrors
from dpsketch.sketch.raw import RawSketch, sums_dtype
from dpsketch.sketch.released import ReleasedSketch, fits, library_version
from dpsketch.sketch.reservation import account_of, finished, reported, reserve

_CHUNK = 1 << 20  # sums


def release(
    raw: RawSketch,
    budget: Budget,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    mechanism: str = "auto",
    plan: str | None = None,
    groups_from: ReleasedSketch | None = None,
    audit: AuditResult | None = None,
    predicted: PredictedErrors | None = None,
) -> ReleasedSketch:
    """Reserve the spend, add noise, commit. A crash can cost budget, never privacy; a rerun is a new spend.

    Adaptive parts are settled from the noisy sums of other parts. This happens between reservation and commit, so an
    interruption during it costs budget as well.

    `dataset` defaults to the name in the schema's [about]. `mechanism` is "auto", "laplace" or "gaussian". `plan` names
    a plan declared in the ledger, of which this release is one entry. With `groups_from`, another site's release,
    adaptive parts get its cells, groups and pairs instead of choosing their own, so that the two releases merge.
    `audit` is the result of an audit of this recipe (`sketch.circumstances.checked_audit`) and `predicted` what a plan
    of this release predicts (`sketch.predicted_errors.checked_predictions`), both for the privacy statement.

    Guarantee: the budget's differential privacy for one unit (a row, or all rows of one value of the unit column),
    under the schema's neighbouring relation.
    Source: docs/proofs/release.md. A release marked NOT PRIVATE shows the raw sums: large ones as read-only views.
    """
    bound, exact = raw.bound, [part.sums for part in raw.parts]
    types = [sums.dtype.type for sums in exact]
    agreed = {} if groups_from is None else agreed_maps(bound, groups_from)
    if not budget.private:
        check_room(bound, types, None)
        if ledger is not None:
            raise BudgetError(NOT_IN_LEDGER, "leave out the ledger (--ledger)")
        parts = noisy_in_stages(bound, exact, None, lambda place, own, sums: _exact(sums), agreed)
        return released_sketch(bound, (), parts, raw.lineage)
    event = bound.calibrated(budget, mechanism, agreed)
    check_room(bound, types, event)
    dataset = dataset or raw.schema.about.name
    if ledger is None or not dataset:
        raise BudgetError(
            "a private release needs a ledger and the dataset's name",
            "pass ledger=Ledger('ledger.db') and dataset='name', or name the data in the schema's [about]",
        )
    noised = tuple(agreed.get(index, each) for index, each in enumerate(bound.noised))
    if not keeps_budget(event) or not replace(bound, maps=noised).promised(event):
        raise RuntimeError("a bug: the noise does not keep the budget")
    try_noises(event)
    cut = partition(raw.schema, raw.recipe)
    spend = reserve(ledger, dataset, raw.schema, event, raw.lineage, cut, plan)
    with finished(ledger, dataset, event, spend) as record:
        with Keystream() as stream:

            def add_noise(place: int, own: BoundMap, sums: Sums) -> Sums:
                return _noisy(event.noises[place], own, sums, stream)

            parts = noisy_in_stages(bound, exact, event, add_noise, agreed)
        if not bound.settled([part.map for part in parts]).promised(event):
            raise RuntimeError("a bug: the noise is not that of what would be released")
    made = Circumstances(library_version(), account_of(record), audit, predicted, reported(record, raw.schema))
    return released_sketch(bound, (event,), parts, raw.lineage, (made,))


def release_labels(
    counts: Mapping[str, int], schema: Schema, event: Release, ledger: Ledger, dataset: str
) -> tuple[str, ...]:
    """Reserve the spend, add noise, commit: the sorted labels whose noisy counts exceed the threshold.

    `counts` are those of `engines.unit_labels`, `event` is that of `privacy.label_threshold`.
    Guarantee: the event's (ε, δ), for one unit under the schema's neighbouring relation. Source: docs/proofs/labels.md.
    """
    if event != label_event(event.budget, schema.rows_per_unit or 1, schema.relation):
        raise RuntimeError("a bug: the noise and the threshold are not those of the schema")
    try_noises(event)
    spend = reserve(ledger, dataset, schema, event)
    with finished(ledger, dataset, event, spend), Keystream() as stream:
        return noisy_labels(event, counts, stream)


def noisy_labels(event: Release, counts: Mapping[str, int], stream: Stream) -> tuple[str, ...]:
    """The labels whose noisy counts exceed the threshold, in alphabetical order.

    They become public only through `release_labels`; audits call this function directly.
    """
    assert event.threshold is not None
    labels, (noise,) = sorted(counts), event.noises
    noisy = _drawn(noise, len(labels), stream)
    noisy += np.array([counts[label] for label in labels], np.int64)
    shown = np.flatnonzero(noisy > event.threshold)
    noisy.fill(0)
    return tuple(labels[index] for index in shown.tolist())


def noisy_sums(event: Release, maps: Sequence[BoundMap], exact: Sequence[Sums], stream: Stream) -> tuple[Sums, ...]:
    """The sums of every part plus its noise, modulo 2^64, or 2^32 for sums of four bytes.

    They become public only through `release`; audits call this function directly.
    """
    return tuple(
        _noisy(noise, feature_map, sums, stream)
        for noise, feature_map, sums in zip(event.noises, maps, exact, strict=True)
    )


def _noisy(noise: Noise, feature_map: BoundMap, sums: Sums, stream: Stream) -> Sums:
    result = np.empty_like(sums)
    start = 0
    for drawn in _draws(noise, feature_map, stream):
        chunk = slice(start, start + drawn.size)
        np.add(sums[chunk], drawn.astype(sums.dtype, copy=False), out=result[chunk])
        drawn.fill(0)  # with the noise, one could recover the exact sums
        start = chunk.stop
    return result


class NoisyShare:
    """A part of a stage at one holder of a consortium: exact sums plus the holder's own share of the noise.

    The noise is drawn while it is read, in chunks, with a key of its own, and kept nowhere.
    """

    def __init__(self, noise: Noise, sums: Sums) -> None:
        self._noise, self._sums, self._read = noise, sums, False

    def __repr__(self) -> str:
        return f"NoisyShare({self.size} sums): NOT PRIVATE alone"

    @property
    def size(self) -> int:
        return self._sums.size

    @property
    def dtype(self) -> np.dtype[np.int64] | np.dtype[np.int32]:
        return self._sums.dtype

    def chunks(self) -> Iterator[Sums]:
        """The sums in order, once: read again, they would have other noise, and the difference of both no sums."""
        if self._read:
            raise RuntimeError("a bug: a share of a secure sum is read a second time")
        self._read = True
        return self._chunks()

    def _chunks(self) -> Iterator[Sums]:
        with Keystream() as stream:
            for start in range(0, self.size, _CHUNK):
                exact = self._sums[start : start + _CHUNK]
                drawn = _drawn_share(self._noise, exact.size, stream)
                yield np.add(exact, drawn.astype(exact.dtype, copy=False))
                drawn.fill(0)  # with the noise, one could recover the exact sums


def _drawn_share(noise: Noise, size: int, stream: Stream) -> NDArray[np.int64]:
    if noise.sensitivity == 0:
        return np.zeros(size, np.int64)
    assert noise.shares is not None, "a bug: this noise is not in shares"
    return SHARES[noise.mechanism](size, noise.scale, noise.shares.honest, stream)


def _draws(noise: Noise, feature_map: BoundMap, stream: Stream) -> Iterator[NDArray[np.int64]]:
    """The noise of a part in pieces: of any size where the noise of sums is independent, else one piece a group."""
    if noise.sensitivity == 0:
        yield np.zeros(feature_map.size, np.int64)
    elif MECHANISMS[noise.mechanism].shape is None:
        for size in _pieces(feature_map.size):
            yield _drawn(noise, size, stream)
    else:
        for _ in range(feature_map.groups):
            yield _drawn(noise, feature_map.size // feature_map.groups, stream)


def _drawn(noise: Noise, size: int, stream: Stream) -> NDArray[np.int64]:
    return SAMPLERS[noise.mechanism](size, noise.scale, stream)


def try_noises(event: Release) -> None:
    """Draw a number or two from every noise distribution, with a separate stream, and discard them.

    What can fail without a spend (the operating system's randomness, compiled code, tables of thresholds) should fail
    before it.
    """
    with keystream.Keystream() as stream:
        for noise in event.noises:
            if noise.sensitivity != 0:
                _drawn(noise, MECHANISMS[noise.mechanism].least, stream)


def _pieces(size: int) -> Iterator[int]:
    for start in range(0, size, _CHUNK):
        yield min(_CHUNK, size - start)


def partition(schema: Schema, recipe: Recipe) -> Partition | None:
    """The part of a partition that a recipe selects, if every unit of a table lies in one part only.

    The same value may select other rows where the column is declared otherwise ("other" is whatever is not listed), so
    a partition is a column with its declaration. The ledger decides by the snapshot which parts are disjoint.
    """
    only = recipe.only
    if only is None or (schema.unit_column is not None and only.column not in schema.constant_per_unit):
        return None
    declaration = json.dumps(schema.column(only.column).to_dict(), sort_keys=True)
    column = f"{only.column}#{hashlib.sha256(declaration.encode()).hexdigest()[:16]}"
    return Partition(column, only.value, only.snapshot)


def planned(
    schema: Schema, recipe: Recipe, budget: Budget, mechanism: str = "auto", consortium: Consortium | None = None
) -> Release | None:
    """The event of a release before any table is read; None for one that is not private.

    Refuses what the release would refuse: all of it follows from public numbers.
    """
    schema = replace(schema, rows=declared_rows(schema, recipe.rows))
    bound = recipe.bind(schema)
    event = bound.calibrated(budget, mechanism, consortium=consortium) if budget.private else None
    check_room(bound, [sums_dtype(own, declared_rows(schema)) for own in bound.maps], event)
    return event


def check_room(bound: BoundRecipe, types: Sequence[type], event: Release | None) -> None:
    """Check that declared rows and noise fit the sums' 63 bits, or 31. Both are public, so the error may state them."""
    rows = declared_rows(bound.schema)
    for index, (own, kind) in enumerate(zip(bound.noised, types, strict=True)):
        noises = () if event is None else (event.noises[index],)
        drawn = all(noise.scale <= MOST_NOISE_SCALE for noise in noises)
        if not drawn or not fits(bound.schema, own, noises, counters.room(kind)):
            fact = f"map {own.description.name}: {rows} declared rows and the noise do not fit"
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


def released_sketch(
    bound: BoundRecipe,
    releases: tuple[Release, ...],
    parts: Sequence[NoisyPart],
    lineage: frozenset[str],
    circumstances: tuple[Circumstances, ...] = (),
) -> ReleasedSketch:
    """The noisy parts as a sketch that can be saved and viewed."""
    maps = tuple(part.map for part in parts)
    return ReleasedSketch(
        bound.schema,
        bound.recipe.settled(maps),
        maps,
        tuple(part.sums for part in parts),
        releases,
        lineage,
        datetime.now(UTC).date().isoformat(),
        library_version(),
        circumstances,
    )
