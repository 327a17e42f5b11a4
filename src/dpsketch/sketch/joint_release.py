"""Joint releases: the holders of a consortium release the sum of their sketches, and nobody sees those of one of them.

Every holder adds a share of the noise before its sums leave; whoever adds them up, behind `Exchange`, sees masked
vectors and the total. What is chosen during the release follows from totals alone. Source: docs/proofs/shares.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpsketch.calibration import keeps_budget, matches
from dpsketch.errors import BudgetError, DpsketchError, LedgerError, MergeError, RecipeError
from dpsketch.ledger.ledger import Ledger
from dpsketch.maps.base import BoundMap, NoisyPart, Sums
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch.adaptive import in_stages
from dpsketch.sketch.circumstances import Circumstances
from dpsketch.sketch.joint_terms import Awaited, Exchange, Share, SumsType, Terms
from dpsketch.sketch.raw import RawSketch, sums_dtype
from dpsketch.sketch.release import NoisyShare, check_room, partition, released_sketch, try_noises
from dpsketch.sketch.released import ReleasedSketch, library_version
from dpsketch.sketch.reservation import account_of, finished, reported, reserve


def release_jointly(
    raw: RawSketch,
    budget: Budget,
    consortium: Consortium,
    exchange: Exchange,
    ledger: Ledger,
    dataset: str | None = None,
    mechanism: str = "auto",
    disjoint_units: bool = False,
    spend: str | None = None,
    reserved: Callable[[str], None] | None = None,
) -> ReleasedSketch:
    """At a holder: agree on terms, reserve the spend in its own ledger, add a share of the noise, release the sum.

    `disjoint_units` is as in `RawSketch.merge`. `reserved` is called with the id of the spend before anything leaves;
    whoever goes on with a session after a crash passes that id as `spend`. Without it, a rerun is a new spend.

    Guarantee: the budget's differential privacy for one unit of this holder, under the schema's neighbouring relation,
    against the readers of the release, the coordinator and up to `consortium.colluders` other holders together, if
    `exchange` shows them nothing but totals with at least `consortium.least` holders. Source: docs/proofs/shares.md.
    """
    terms = joint_terms(raw.bound, budget, consortium, mechanism, disjoint_units)
    if any(part.sums.dtype != kind for part, kind in zip(raw.parts, terms.types, strict=True)):
        raise RecipeError("the raw sketch has counters of another type than the terms", "sketch the table again")
    dataset = dataset or raw.schema.about.name
    if not dataset:
        raise BudgetError("a release needs the dataset's name", "pass dataset='name', or name it in [about]")
    try_noises(terms.event)
    cut = partition(raw.schema, raw.recipe)
    if spend is None:
        ledger.check(dataset, raw.schema.accounted, terms.event, cut)
    exact = [part.sums for part in raw.parts]
    lineage = exchange.join(terms, raw.lineage)
    if not raw.lineage <= lineage:
        raise RuntimeError("a bug: the exchange lost an input")

    def share(index: int, own: BoundMap, noise: Noise) -> Share:
        return NoisyShare(noise, raw.bound.maps[index].coarsen(exact[index], own))

    if spend is None:
        spend = reserve(ledger, dataset, raw.schema, terms.event, raw.lineage, cut)
    else:
        _check_resumed(ledger, dataset, terms.event, raw.lineage, spend)
    with finished(ledger, dataset, terms.event, spend) as record:
        if reserved is not None:
            reserved(spend)
        parts, event = _summed(terms, exchange, share)
    made = Circumstances(library_version(), account_of(record), after_report=reported(record, raw.schema))
    return _sketch(terms, event, parts, lineage, made)


def joint_release(
    schema: Schema,
    recipe: Recipe,
    budget: Budget,
    consortium: Consortium,
    exchange: Exchange,
    mechanism: str = "auto",
    disjoint_units: bool = False,
) -> ReleasedSketch:
    """At the coordinator: the same terms and stages, from totals alone. Nothing is spent here: holders do.

    Guarantee: that of `release_jointly` at every holder.
    """
    bound = recipe.bind(replace(schema, rows=declared_rows(schema, recipe.rows)))
    terms = joint_terms(bound, budget, consortium, mechanism, disjoint_units)
    lineage = exchange.join(terms, frozenset())

    def share(index: int, own: BoundMap, _: Noise) -> Share:
        return Awaited(own.size, terms.types[index])

    parts, event = _summed(terms, exchange, share)
    return _sketch(terms, event, parts, lineage, Circumstances(library_version()))


def joint_terms(
    bound: BoundRecipe, budget: Budget, consortium: Consortium, mechanism: str = "auto", disjoint_units: bool = False
) -> Terms:
    """What all members must agree on, from public numbers. Refuses what no joint release can be."""
    if not budget.private:
        raise BudgetError("a joint release without privacy protects no holder", "pass a finite epsilon")
    if bound.recipe.sampling is not None and bound.recipe.sampling.count is not None:
        raise MergeError("samples of a fixed count of rows do not add up", "sample by rate")
    if bound.schema.unit_column is not None and not disjoint_units:
        raise MergeError(
            f"units of column '{bound.schema.unit_column}' may have rows at two holders",
            "if no unit does, say so: --disjoint-units (disjoint_units=True)",
        )
    bound, rows = bound.settled(bound.maps), declared_rows(bound.schema)  # what maps settled on when they were bound
    event = bound.calibrated(budget, mechanism, consortium=consortium)
    types: tuple[SumsType, ...] = tuple(np.dtype(sums_dtype(own, rows)) for own in bound.maps)  # type: ignore[misc]
    check_room(bound, [kind.type for kind in types], event)
    if not keeps_budget(event) or not replace(bound, maps=bound.noised).promised(event):
        raise RuntimeError("a bug: the noise does not keep the budget")
    return Terms(consortium, bound, event, types, disjoint_units, library_version())


def _summed(
    terms: Terms, exchange: Exchange, share: Callable[[int, BoundMap, Noise], Share]
) -> tuple[tuple[NoisyPart, ...], Release]:
    """The noisy parts, one secure sum for each stage, and the event with the number of holders in them."""
    bound, group, event = terms.bound, terms.consortium, terms.event

    def noised(stage: int, settled: Mapping[int, BoundMap]) -> Sequence[Sums]:
        nonlocal event
        for index, own in settled.items():
            _check_settled(bound, index, own, event.noises[index])
        shares = [share(index, own, event.noises[index]) for index, own in settled.items()]
        totals = exchange.sum(stage, shares, _meaning(bound, settled))
        most = group.holders if stage == 0 else _added(event, group)
        least = group.least if stage == 0 else most
        if not least <= totals.holders <= most:
            raise DpsketchError(
                f"{totals.holders} holders are in the sum of stage {stage + 1}, of at least {least} and at most {most}",
                "start a new session: the spends of this one stand",
            )
        for each, sums in zip(shares, totals.sums, strict=True):
            if sums.size != each.size or sums.dtype != each.dtype:
                raise RuntimeError("a bug: the totals are those of other sums")
        event = event.added(totals.holders)
        return totals.sums

    parts = in_stages(bound, lambda index: event.noises[index], noised, {})
    if not bound.settled([part.map for part in parts]).promised(event):
        raise RuntimeError("a bug: the noise is not that of what would be released")
    return parts, event


def _added(event: Release, group: Consortium) -> int:
    return group.holders if event.shares is None else event.shares.added


def _check_settled(bound: BoundRecipe, index: int, own: BoundMap, noise: Noise) -> None:
    """Refuse groups and cells that are no partition, or for which the noise is too small, before anything leaves.

    Binding a description checks that every cell of a column is in exactly one group. Then a record adds to one sum of
    each table, whatever the groups are.
    """
    if own is not bound.maps[index]:
        own = own.description.bind(bound.schema)
    masks = bound.masks(own)
    if not matches(noise, bound.sensitivity(own), bound.body(own), own.certified, masks, own.size):
        raise RuntimeError("a bug: the noise is not that of what would be released")


def _meaning(bound: BoundRecipe, settled: Mapping[int, BoundMap]) -> bytes:
    """Canonical bytes of what a stage's sums are: all members must have chosen the same."""
    facts = {str(index): [own.description.to_dict(), own.fingerprint(), own.size] for index, own in settled.items()}
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _check_resumed(ledger: Ledger, dataset: str, event: Release, lineage: frozenset[str], spend: str) -> None:
    """Refuse the id of a spend that is not one of this dataset for these terms."""
    known = ledger.reserved(dataset, spend)
    if known is None or known.release != event or known.lineage != lineage:
        raise LedgerError(f"dataset '{dataset}' has no such spend of this session", "start a new session")


def _sketch(
    terms: Terms, event: Release, parts: Sequence[NoisyPart], lineage: frozenset[str], circumstances: Circumstances
) -> ReleasedSketch:
    agreed = replace(circumstances, consortium=terms.consortium)
    return released_sketch(terms.bound, (event,), parts, lineage, (agreed,))
