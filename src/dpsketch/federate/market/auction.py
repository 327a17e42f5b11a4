"""The paper's auction, repaired: bids on noisy broadcasts, a two-sided ask curve, a pool that is scored again.

Between neighbouring tables the summary changes by one swap at most, as the best bid is always asked for (up to
`never`), pooled points compete again by their present scores, ties go by a public order, and scores depend on
broadcasts alone. An owner's rank counts the best present score of every other owner, pooled points included, so it
moves by one at most. Source: summary, algorithm 3; docs/market.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from dpsketch.errors import FederationError
from dpsketch.federate.market.ask_curve import ask_curve
from dpsketch.federate.market.auction_cost import AuctionPlan
from dpsketch.federate.market.feature_hash import Features
from dpsketch.federate.market.hidden_sum import HiddenSum
from dpsketch.numerics.arrays import Floats
from dpsketch.sketch.auction_draws import AuctionDraws

_TOLERANCE = 1e-9  # of a bid against its point


def score_of(features: Features, target: Floats, broadcast: Floats, count: int) -> float:
    """A point's score, the same number wherever it is computed."""
    return float(features.astype(np.float64) @ (target - broadcast / (count + 1)))


@dataclass
class Bidder:
    """An owner in an auction: its points, those it has sent, and how often its present best was its bid."""

    features: Features
    target: Floats
    patience: int
    sent: set[int] = field(default_factory=set)
    bids: dict[int, int] = field(default_factory=dict)

    def bid(self, broadcast: Floats, count: int) -> tuple[int, float] | None:
        """The best point not sent yet and its score ⟨g_v, φ⟩ − ⟨g, φ⟩/(q+1); None if all are sent."""
        scores = self.features @ (self.target - broadcast / (count + 1)).astype(np.float32)
        scores[list(self.sent)] = -np.inf
        best = int(np.argmax(scores))
        if len(self.sent) == len(self.features):
            return None
        self.bids[best] = self.bids.get(best, 0) + 1
        return best, score_of(self.features[best], self.target, broadcast, count)

    def must_send(self, point: int) -> bool:
        """The τ rule: a point that was the bid `patience` times is asked for. Its owner can tell by itself."""
        return self.bids[point] >= self.patience


@dataclass(frozen=True, eq=False)
class Outcome:
    """Points chosen as (owner, row), in order; how many were accessed; and who was asked in every round."""

    chosen: Sequence[tuple[str, int]]
    accessed: int
    asked: Sequence[Mapping[str, bool]]


@dataclass
class Auctioneer:
    """The aggregator of an auction. `curve` is the probability that the owner of each rank is asked."""

    target: Floats
    curve: Sequence[Fraction]
    draws: AuctionDraws
    order: Sequence[str]
    pool: dict[tuple[str, int], Features] = field(default_factory=dict)
    rescored: bool = True
    old_scores: dict[tuple[str, int], float] = field(default_factory=dict)

    def round(
        self, bids: Mapping[str, tuple[int, float]], bidders: Mapping[str, Bidder], broadcast: Floats, count: int
    ) -> tuple[tuple[str, int] | None, dict[str, bool]]:
        """One round: rank the bids, ask, verify what comes, and take the best point of the pool."""
        present = {key: self._score(key, broadcast, count) for key in self.pool}
        best = {name: bids[name][1] if name in bids else -np.inf for name in self.order}
        for (name, _), score in present.items():
            if self.rescored:
                best[name] = max(best[name], score)
        asked: dict[str, bool] = {}
        for name in self.order:
            if name not in bids:
                continue
            point, score = bids[name]
            rank = sum(best[other] > score for other in self.order if other != name)
            asked[name] = self.draws.asked(self.curve[rank]) or bidders[name].must_send(point)
            if asked[name]:
                self._take(name, point, score, bidders[name].features[point], broadcast, count)
                bidders[name].sent.add(point)
                present[name, point] = score
        if not present:
            return None, asked
        places = {name: place for place, name in enumerate(self.order)}
        winner = max(present, key=lambda key: (present[key], -places[key[0]], -key[1]))
        del self.pool[winner]
        return winner, asked

    def _score(self, key: tuple[str, int], broadcast: Floats, count: int) -> float:
        if not self.rescored:
            return self.old_scores[key]
        return score_of(self.pool[key], self.target, broadcast, count)

    def _take(self, name: str, point: int, bid: float, features: Features, broadcast: Floats, count: int) -> None:
        """Verify a point against its bid and put it into the pool."""
        score = score_of(features, self.target, broadcast, count)
        if abs(score - bid) > _TOLERANCE:
            raise FederationError(f"the point of owner {name} does not have the score of its bid", "exclude this owner")
        self.pool[name, point] = features
        self.old_scores[name, point] = bid


def auction(
    owners: Mapping[str, Features],
    target: Floats,
    seeds: Features,
    plan: AuctionPlan,
    draws: AuctionDraws,
    patience: int = 10**9,
    grid: int = 20,
    published: Sequence[Fraction] | None = None,
    epsilons: tuple[Fraction, Fraction] | None = None,
) -> Outcome:
    """A whole auction in one process: `plan.rounds` points from the owners' features, towards a noisy target mean.

    `seeds` are public points at which the sums start; they never leave with the summary. With `published`, a curve, the
    paper's own form is run: neither calibrated nor scored again, with `epsilons` of the first and of later rounds.
    """
    hidden = HiddenSum(target.size, grid)
    hidden.start_at(seeds)
    names = sorted(owners)
    curve = published or ask_curve(len(names), plan.ask_epsilon, plan.never)
    bidders = {name: Bidder(owners[name], target, patience) for name in names}
    auctioneer = Auctioneer(target, curve, draws, names, rescored=published is None)
    chosen: list[tuple[str, int]] = []
    asked: list[dict[str, bool]] = []
    first, later = epsilons or (plan.step_epsilon, plan.step_epsilon)
    for number in range(plan.rounds):
        steps, epsilon = (plan.later, later) if number else (plan.first, first)
        broadcast = hidden.broadcast(steps, epsilon, draws, calibrated=published is None)
        bids = {name: bid for name in names if (bid := bidders[name].bid(broadcast, hidden.count)) is not None}
        winner, round_asked = auctioneer.round(bids, bidders, broadcast, hidden.count)
        asked.append(round_asked)
        if winner is not None:
            chosen.append(winner)
            hidden.add(owners[winner[0]][winner[1] : winner[1] + 1])
    return Outcome(chosen, sum(len(bidder.sent) for bidder in bidders.values()), asked)
