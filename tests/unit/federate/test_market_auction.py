"""The auction: exact coins, two-sided asks, summaries that differ by a swap, and the published form, caught."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from dpsketch.errors import FederationError
from dpsketch.federate.market.ask_curve import ask_curve, published_curve, worst_ratio
from dpsketch.federate.market.auction import Auctioneer, Bidder, auction
from dpsketch.federate.market.auction_cost import as_published, auction_plan, largest_rho, rho_epsilon
from dpsketch.noise.exact_choices import Bits, coin, coin_of_exponential, exponential_choice
from dpsketch.noise.keystream import Keystream
from dpsketch.sketch.auction_draws import AuctionDraws

ROUNDS = 4


def test_coins_have_their_probability() -> None:
    with Keystream() as stream:
        bits = Bits(stream)
        for probability, throw in (
            (0.3, lambda: coin(Fraction(3, 10), bits)),
            (exp(-0.7), lambda: coin_of_exponential(Fraction(7, 10), bits)),
            (exp(-2.4), lambda: coin_of_exponential(Fraction(12, 5), bits)),
        ):
            heads = sum(throw() for _ in range(8000))
            assert abs(heads / 8000 - probability) < 5 * np.sqrt(probability * (1 - probability) / 8000)
        assert not coin(Fraction(0), bits)
        assert coin(Fraction(1), bits)


def test_choices_are_those_of_the_exponential_mechanism() -> None:
    scores, rate = [0, 3, 5], Fraction(1, 4)
    expected = np.exp(np.array(scores) / 4)
    expected /= expected.sum()
    with Keystream() as stream:
        bits = Bits(stream)
        found = np.bincount([exponential_choice(scores, rate, bits) for _ in range(8000)], minlength=3) / 8000
    assert np.abs(found - expected).max() < 0.03


def test_words_are_uniform_below_a_bound() -> None:
    class Counted:
        """Words 0, 1, 2, …, spread over 32 bits."""

        def __init__(self) -> None:
            self.at = 0

        def words(self, count: int) -> np.ndarray:
            found = (np.arange(self.at, self.at + count) * 4294967 % 2**32).astype(np.uint32)
            self.at += count
            return found

    bits = Bits(Counted())
    assert np.bincount([bits.below(10) for _ in range(10_000)]).min() > 900


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_ranks_one_apart_look_alike(epsilon: float) -> None:
    for never in (0.1, 1e-6):
        assert worst_ratio(ask_curve(30, epsilon, never)) <= exp(epsilon) * (1 + 1e-12)
    curve = ask_curve(200, 1.0, 0.01)
    assert float(sum(curve)) < 8  # few are asked where ε is large


def test_the_published_curve_is_not_private_at_any_epsilon() -> None:
    assert worst_ratio(published_curve(5, 0.5)) == float("inf")
    assert as_published(1000, 0.5).shifted_round_delta == pytest.approx(1 - exp(-0.5))


def first_ask(curve, better: bool, stream: Keystream) -> bool:
    """Whether owner "a", with a bid of 0.5, is asked beside an owner with a bid of 0.9 or 0.1: neighbouring tables."""
    direction = np.array([1.0, 0.0])
    bids_of = {"a": 0.5, "b": 0.9 if better else 0.1}
    bidders = {name: Bidder(np.array([[bid, 0.1]], np.float32), direction, 10**9) for name, bid in bids_of.items()}
    auctioneer = Auctioneer(direction, curve, AuctionDraws(stream, 40), ["a", "b"])
    silent = np.zeros(2)
    bids = {name: bid for name, bidder in bidders.items() if (bid := bidder.bid(silent, 0))}
    return auctioneer.round(bids, bidders, silent, 0)[1]["a"]


def proven_epsilon(curve, draws: int = 1500) -> float:
    """A lower bound on ε with confidence 0.9999, from whether another owner's neighbouring table shows in one ask."""
    from scipy.stats import beta

    with Keystream() as stream:
        asked = [sum(first_ask(curve, better, stream) for _ in range(draws)) for better in (True, False)]
    best = 0.0
    for one, two in ((asked[0], asked[1]), (asked[1], asked[0])):
        for a, b in ((one, two), (draws - one, draws - two)):
            low = beta.ppf(2.5e-5, a, draws - a + 1) if a else 0.0
            high = beta.ppf(1 - 2.5e-5, b + 1, draws - b) if b < draws else 1.0
            best = max(best, float(np.log(max(low, 1e-12) / high)))
    return best


def test_the_audit_passes_the_repaired_asks_and_catches_the_published_ones() -> None:
    epsilon = 0.5
    assert proven_epsilon(ask_curve(2, epsilon, 0.1)) <= epsilon
    assert proven_epsilon(published_curve(2, epsilon)) > 3 * epsilon


def play(owners, scores, coins, curve):
    """A run with fixed scores of points in each round, and coins: summaries and ranks in every round."""
    names = sorted(owners)
    table = {name: np.zeros((len(points), 1), np.float32) for name, points in owners.items()}
    seen = []

    class Told(AuctionDraws):
        def __init__(self) -> None:
            pass

    class Scored(Auctioneer):
        def _score(self, key, broadcast, count):
            return float(scores[count, owners[key[0]][key[1]]])

        def _take(self, name, point, bid, features, broadcast, count):
            self.pool[name, point] = features

    bidders = {name: Bidder(table[name], np.zeros(1), 10**9) for name in names}
    auctioneer = Scored(np.zeros(1), curve, Told(), names)
    chosen: list[int] = []
    for number in range(len(scores)):
        bids = {}
        for name in names:
            left = [i for i in range(len(owners[name])) if i not in bidders[name].sent]
            if left:
                best = max(left, key=lambda i: scores[number, owners[name][i]])
                bids[name] = (best, float(scores[number, owners[name][best]]))
                bidders[name].bids[best] = 1
        order = iter(name for name in names if name in bids)
        auctioneer.draws.asked = lambda p: coins[number, names.index(next(order))] < float(p)  # noqa: B023
        winner, asked = auctioneer.round(bids, bidders, np.zeros(1), number)
        if winner is not None:
            chosen.append(owners[winner[0]][winner[1]])
        seen.append((frozenset(chosen), dict(asked)))
    return seen


def test_neighbouring_runs_differ_by_one_swap() -> None:
    """As long as the other owner's asks agree, whose summaries are compared, and the best bid is always asked for."""
    rng = np.random.default_rng(0)
    curve = ask_curve(4, 0.5, 1e-9)
    worst = 0
    for _ in range(60):
        place = rng.integers(4, size=24)
        scores = rng.normal(size=24) + 0.5 * rng.normal(size=(12, 24))
        coins = rng.random((12, 4))
        everyone = {str(k): np.flatnonzero(place == k).tolist() for k in range(4)}
        gone = int(rng.integers(24))
        fewer = {name: [p for p in points if p != gone] for name, points in everyone.items()}
        watcher = next(name for name in everyone if gone not in everyone[name])
        for one, two in zip(play(everyone, scores, coins, curve), play(fewer, scores, coins, curve), strict=True):
            if one[1].get(watcher) != two[1].get(watcher):
                break
            worst = max(worst, len(one[0] ^ two[0]))
    assert 0 < worst <= 2


def test_a_point_without_the_score_of_its_bid_is_refused() -> None:
    with Keystream() as stream:
        auctioneer = Auctioneer(np.array([1.0, 0.0]), ask_curve(1, 1.0, 1e-9), AuctionDraws(stream, 40), ["a"])
        bidder = Bidder(np.array([[0.5, 0.1]], np.float32), np.array([1.0, 0.0]), 10**9)
        bidder.bids[0] = 1
        with pytest.raises(FederationError, match="score of its bid"):
            auctioneer.round({"a": (0, 0.9)}, {"a": bidder}, np.zeros(2), 0)


def test_costs_compose_over_rounds_and_coalitions() -> None:
    plan = auction_plan(100, 5, 1.0, 1e-5, 0, 5)
    assert 0.99 < plan.epsilon(1e-5) <= 1.0
    more = auction_plan(1000, 5, 1.0, 1e-5, 0, 5)
    assert more.step_epsilon < plan.step_epsilon
    assert more.ask_epsilon < plan.ask_epsilon
    alone = auction_plan(100, 2, 1.0, 1e-5, 0, 5)
    assert alone.ask_epsilon > plan.ask_epsilon  # a coalition of one sees one bit a round
    assert rho_epsilon(largest_rho(1.0, 1e-5), 1e-5) == pytest.approx(1.0)
    assert rho_epsilon(0.5, 1e-5) == pytest.approx(4.6, abs=0.4)
    published = as_published(1000, 5 ** (-1 / 3))
    assert published.broadcasts(0.01, validation=True) > 1000 > 1.4
    assert published.measurements_alone(1e-4) > 0.043


def test_an_auction_finds_points_near_the_target_and_leaves_the_seeds_out() -> None:
    rng = np.random.default_rng(8)
    centres = {"a": [1.0, 0, 0, 0], "b": [0, 1.0, 0, 0]}
    owners = {}
    for name, centre in centres.items():
        points = np.array(centre) + 0.2 * rng.normal(size=(30, 4))
        owners[name] = (points / np.linalg.norm(points, axis=1, keepdims=True) / np.sqrt(2)).astype(np.float32)
    seeds = np.full((20, 4), 0.25, np.float32)
    with Keystream() as stream:
        plan = auction_plan(10, 2, 50.0, 1e-5, 0, 5)
        outcome = auction(owners, owners["a"].mean(axis=0).astype(float), seeds, plan, AuctionDraws(stream, 40))
    assert len(outcome.chosen) == 10
    assert len(set(outcome.chosen)) == 10
    assert sum(name == "a" for name, _ in outcome.chosen) >= 8
    assert 10 <= outcome.accessed <= 20
    assert len(outcome.asked) == 10
