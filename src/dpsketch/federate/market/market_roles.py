"""The market's roles as functions of messages, without network or files: sketch once, then choose.

1. consumer → all: an ordinary release of the validation set's features. 2. owner → aggregator: an ordinary release by
stratum, once, for every consumer. 3. aggregator → owners: weights of the strata, the residual and its noise level.
4. owner → aggregator: its quota of rows. 5. The aggregator keeps p of c·p rows and tells nobody which.
Whatever owners see follows from releases: no rounds to compose, no auction. Source: docs/market.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch.engines.engine import accumulate
from dpsketch.errors import FileError
from dpsketch.federate.market.feature_hash import Features, feature_mean
from dpsketch.federate.market.greedy import Chosen, greedy, shares_of
from dpsketch.federate.market.sold_rows import Rows, joined_codes, rows_table
from dpsketch.federate.market.stratum_sums import consumer_recipe, noisy_means, owner_recipe
from dpsketch.federate.market.stratum_weights import (
    UNSURE,
    NoisyMeans,
    Residual,
    filtered,
    mixture_weights,
    residual_of,
)
from dpsketch.federate.market.terms import Terms
from dpsketch.ledger.ledger import Ledger
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.sketch.release import release
from dpsketch.sketch.released import ReleasedSketch


@dataclass(frozen=True, eq=False)
class Allocation:
    """What the aggregator tells all owners: the weight of every stratum of every owner, the residual of the target
    against that mixture with the noise in it, and every owner's quota. A function of releases alone.
    """

    weights: Mapping[str, Floats]
    residual: Residual
    quotas: Mapping[str, int]

    def to_bytes(self) -> bytes:
        facts = {
            "weights": {name: each.tolist() for name, each in self.weights.items()},
            "shift": self.residual.shift.tolist(),
            "mixture": self.residual.mixture.tolist(),
            "noise": self.residual.noise,
            "relative": self.residual.relative,
            "records": self.residual.records,
            "quotas": dict(self.quotas),
        }
        return json.dumps(facts).encode()

    @classmethod
    def from_bytes(cls, message: bytes, terms: Terms) -> Allocation:
        try:
            facts = json.loads(message)
            weights = {str(name): np.array(each, np.float64) for name, each in facts["weights"].items()}
            shift, mixture = (np.array(facts[name], np.float64) for name in ("shift", "mixture"))
            quotas = {str(name): int(each) for name, each in facts["quotas"].items()}
            noise, relative, records = (float(facts[name]) for name in ("noise", "relative", "records"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FileError(
                "the weights are not a message of this market", "the aggregator must send it again"
            ) from None
        shapes = {each.shape for each in weights.values()}
        sound = (
            shapes == {(len(terms.strata),)}
            and shift.shape == mixture.shape == (terms.features,)
            and set(quotas) == set(weights)
        )
        numbers = [shift, mixture, np.array([noise, relative, records]), *weights.values()]
        if not sound or not all(np.isfinite(each).all() for each in numbers) or min(quotas.values()) < 0:
            raise FileError("the weights do not fit the market's terms", "compare the parties' terms")
        return cls(weights, Residual(shift, mixture, noise, relative, records), quotas)


@dataclass(frozen=True, eq=False)
class Summary:
    """The points bought, in the schema's units, and which owner each came from; `pool` are all that were accessed."""

    table: pa.Table
    features: Features
    owners: Sequence[str]
    pool: int


def owner_release(table: Any, terms: Terms, ledger: Ledger, dataset: str) -> ReleasedSketch:
    """An owner's ordinary release, one entry of its own ledger. Later consumers reuse it."""
    return release(
        accumulate(table, terms.schema, owner_recipe(terms.hashed)), terms.owner_budget, ledger, dataset, "gaussian"
    )


def consumer_release(table: Any, terms: Terms, ledger: Ledger, dataset: str) -> ReleasedSketch:
    """The consumer's ordinary release of its validation set, without labels."""
    raw = accumulate(table, terms.consumer_schema, consumer_recipe(terms.hashed))
    return release(raw, terms.consumer_budget, ledger, dataset, "gaussian")


def allocate(terms: Terms, releases: Mapping[str, ReleasedSketch], target: ReleasedSketch) -> Allocation:
    """Weights, residual and quotas, from releases alone."""
    names = sorted(releases)
    means = [noisy_means(releases[name], terms.hashed, len(terms.strata)) for name in names]
    strata = NoisyMeans(*(np.concatenate([getattr(each, field) for each in means]) for field in _FIELDS))
    wanted = noisy_means(target, terms.hashed)
    if wanted.counts[0] <= 0:
        raise FileError("the validation set is too small for its budget", "raise its budget, or bring more records")
    draws = terms.redraws if float(wanted.deviation[0]) > UNSURE else 0
    weights = mixture_weights(strata, wanted, draws)
    by_owner = dict(zip(names, weights.reshape(len(names), -1), strict=True))
    quotas = shares_of(terms.shipped, np.array([by_owner[name].sum() for name in names]))
    return Allocation(by_owner, residual_of(strata, wanted, weights), dict(zip(names, quotas.tolist(), strict=True)))


_FIELDS = ("means", "counts", "deviation", "relative")


def choose_rows(rows: Rows, name: str, allocation: Allocation) -> Chosen:
    """An owner's quota of its own rows: herded, inside its walls, towards its exact means of the weighted strata, moved
    by the filtered residual.

    An owner with fewer rows repeats some, so that the number shipped is the quota whatever it has.
    """
    quota, weights = allocation.quotas[name], allocation.weights[name]
    if not quota:
        return np.empty(0, np.int64)
    if not len(rows):
        raise FileError("this owner has no rows that could be sold", "its quota will be missing from the summary")
    strata = rows.strata
    present = [index for index in np.flatnonzero(weights).tolist() if (strata == index).any()]
    groups = [rows.features[strata == index] for index in present] or [rows.features]
    base, spread = _mixed(groups, weights[present] if present else np.ones(1))
    target = np.asarray(base + filtered(allocation.residual, spread))
    chosen: list[Chosen] = []
    start, count = np.zeros(len(base)), 0
    while count < quota:
        chosen.append(greedy(rows.features, target, quota - count, start, count))
        start = start + rows.features[chosen[-1]].sum(axis=0, dtype=np.float64)
        count += len(chosen[-1])
    return np.concatenate(chosen)


def _mixed(groups: Sequence[Features], weights: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of a mixture of groups of rows."""
    shares = weights / weights.sum()
    mean = sum(share * feature_mean(group) for share, group in zip(shares, groups, strict=True))
    spread = np.zeros((groups[0].shape[1],) * 2)
    for share, group in zip(shares, groups, strict=True):
        centred = group - np.asarray(mean, np.float32)
        spread += share / len(group) * (centred.T @ centred)
    return np.asarray(mean), spread


def assemble(terms: Terms, shipped: Mapping[str, Codes], validation: Features | None) -> Summary:
    """The summary: all rows shipped, or the p of them that greedy prefers for the validation set's exact features.

    Only the aggregator runs this, and owners never learn its result: payment is for what was shipped.
    """
    names = [name for name in sorted(shipped) if shipped[name].shape[1]]
    if not names:
        raise FileError("no owner shipped rows", "there is no summary")
    codes = joined_codes([shipped[name] for name in names])
    owners = np.repeat(np.array(names, object), [shipped[name].shape[1] for name in names])
    rows = Rows.of_codes(terms, codes)
    chosen = np.arange(min(len(rows), terms.size))
    if len(rows) > terms.size:
        if validation is None:
            raise FileError("with over above 1, the aggregator needs the validation set", "its consumer must send it")
        chosen = greedy(rows.features, feature_mean(validation), terms.size)
    return summary_of(rows, chosen, owners[chosen].tolist())


def summary_of(rows: Rows, chosen: Chosen, owners: Sequence[str]) -> Summary:
    """Chosen rows as a table with weights and owners."""
    table = rows_table(rows.terms, rows.codes[:, chosen])
    table = table.append_column("weight", pa.array(np.full(len(chosen), 1 / len(chosen))))
    table = table.append_column("owner", pa.array(list(owners), pa.string()))
    return Summary(table, rows.features[chosen], owners, len(rows))


def attribution(summary: Summary, validation: Features) -> dict[str, float]:
    """Each owner's share of J: the sum of the marginal gains of its points in the order of the summary, for the
    aggregator's eyes alone. Owners may be told what follows from their quotas, nothing of this.
    """
    gains = marginal_gains(summary.features, feature_mean(validation))
    values = dict.fromkeys(sorted(set(summary.owners)), 0.0)
    for name, gain in zip(summary.owners, gains, strict=True):
        values[name] += float(gain)
    return values


def marginal_gains(features: Features, target: Floats) -> Floats:
    """J(x₁ … x_i) − J(x₁ … x_{i−1}) for points in their order, by features."""
    sums = np.cumsum(features, axis=0, dtype=np.float64)
    sizes = np.arange(1, len(features) + 1)
    value = 2 * (sums @ target) / sizes - (sums**2).sum(axis=1) / sizes**2
    return np.diff(value, prepend=0.0)


def parsimony(accessed: int, summary: int, validation: int) -> float:
    """ρ: points accessed over the least, |D_s| + |D_v|; the validation set is accessed too."""
    return (accessed + validation) / (summary + validation)


def in_one_process(
    terms: Terms, tables: Mapping[str, Any], validation: Any, ledgers: Mapping[str, Ledger] | None = None
) -> Summary:
    """The whole protocol in one process, for studies: the same functions as the processes', without messages."""
    books = ledgers or dict.fromkeys([*tables, "consumer"], Ledger("sqlite://"))
    releases = {name: owner_release(table, terms, books[name], name) for name, table in tables.items()}
    target = consumer_release(validation, terms, books["consumer"], "consumer")
    return market_of(
        terms,
        releases,
        target,
        {name: Rows.read(terms, table) for name, table in tables.items()},
        Rows.read(terms, validation, labelled=False),
    )


def market_of(
    terms: Terms,
    releases: Mapping[str, ReleasedSketch],
    target: ReleasedSketch,
    rows: Mapping[str, Rows],
    validation: Rows,
) -> Summary:
    """The steps after the releases, which any number of consumers and sizes may follow."""
    allocation = allocate(terms, releases, target)
    shipped = {name: rows[name].codes[:, choose_rows(rows[name], name, allocation)] for name in rows}
    return assemble(terms, shipped, validation.features)


def for_size(terms: Terms, size: int, over: float) -> Terms:
    """The same market for another summary: releases stay usable, as neither enters the recipes."""
    return replace(terms, size=size, over=over)
