"""Plain functions of the market: discrepancies, greedy choices, features, and what the theorems say."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsketch.engines.engine import accumulate
from dpsketch.errors import SchemaError
from dpsketch.federate.market import greedy as choosing
from dpsketch.federate.market.feature_hash import FeatureHash
from dpsketch.federate.market.guarantees import hidden_sum_bound, loss_bound, submodularity
from dpsketch.federate.market.hidden_sum import HiddenSum
from dpsketch.federate.market.kernel_distance import GaussianKernel, gain_kept, mmd2, objective, percent_above
from dpsketch.federate.market.sold_rows import Rows
from dpsketch.federate.market.stratum_sums import owner_recipe
from dpsketch.noise.keystream import Keystream
from dpsketch.schema.schema import Schema
from dpsketch.sketch.auction_draws import AuctionDraws
from market_parties import SCHEMA, owners, terms

RNG = np.random.default_rng(5)


def test_the_discrepancy_is_that_of_the_definition() -> None:
    a, b, kernel = RNG.random((30, 2)), RNG.random((20, 2)), GaussianKernel(0.3)

    def mean(x, y):
        return np.mean([np.exp(-((p - q) ** 2).sum() / (2 * 0.09)) for p in x for q in y])

    assert mmd2(a, b, kernel) == pytest.approx(mean(a, a) - 2 * mean(a, b) + mean(b, b), abs=1e-12)
    assert objective(b, a, kernel) == pytest.approx(mean(b, b) - mmd2(a, b, kernel), abs=1e-12)
    assert mmd2(a, a, kernel) == pytest.approx(0, abs=1e-12)
    assert gain_kept(0.5, 0.2, 0.1) == pytest.approx(0.75)
    assert percent_above(0.2, 0.1) == pytest.approx(100)


def test_features_approximate_the_kernel_of_the_scaled_columns() -> None:
    hashed = FeatureHash(SCHEMA, 0.3, 4096, 1, "kind")
    a, b = RNG.random((50, 2)), RNG.random((40, 2)) * 0.5
    assert mmd2(a, b, hashed) == pytest.approx(mmd2(a, b, GaussianKernel(0.3)), abs=0.03)
    assert np.linalg.norm(hashed(a), axis=1) == pytest.approx(1, abs=1e-5)


def test_features_are_those_of_the_exact_sums_of_a_release() -> None:
    market = terms()
    table = owners()["north"]
    rows = Rows.read(market, table)
    raw = accumulate(table, market.schema, owner_recipe(market.hashed))
    sums = raw.parts[0].sums.reshape(len(market.strata), -1) / market.hashed.scale
    for stratum in range(len(market.strata)):
        mine = rows.features[rows.strata == stratum].sum(axis=0, dtype=float)
        assert sums[stratum] == pytest.approx(mine, abs=0.02)
    assert raw.parts[1].sums.tolist() == np.bincount(rows.strata, minlength=len(market.strata)).tolist()


def test_the_label_stays_out_of_the_features_and_of_the_consumers_schema() -> None:
    market = terms()
    assert market.hashed.columns == ("x", "y")
    assert [column.name for column in market.consumer_schema.columns] == ["x", "y"]
    with pytest.raises(SchemaError, match="no distances between its values"):
        FeatureHash(SCHEMA, 0.3)


def test_columns_with_different_bounds_are_named() -> None:
    assert not terms().hashed.unequal_bounds
    facts = SCHEMA.to_dict()
    facts["columns"]["y"] |= {"lower": -40.0, "upper": 40.0}
    assert terms(schema=Schema.from_dict(facts)).hashed.unequal_bounds


def naive(pool, target, size):
    chosen, total = [], np.zeros(pool.shape[1])
    for count in range(size):
        scores = pool @ target - pool @ total / (count + 1)
        scores[chosen] = -np.inf
        chosen.append(int(np.argmax(scores)))
        total += pool[chosen[-1]]
    return chosen


def test_greedy_is_the_plain_algorithm() -> None:
    hashed = FeatureHash(SCHEMA, 0.2, 64, 1, "kind")
    pool, target = hashed(RNG.random((600, 2))), hashed(RNG.random((50, 2)) * 0.4).mean(axis=0)
    expected = naive(pool.astype(float), target.astype(float), 60)
    assert choosing.greedy(pool, target, 60).tolist() == expected
    first = choosing.greedy(pool, target, 20)
    start = pool[first].sum(axis=0, dtype=float)
    assert choosing.greedy(pool[np.setdiff1d(np.arange(600), first)], target, 1, start, 20).size == 1
    assert sorted(choosing.greedy(pool[:9], target, 60).tolist()) == list(range(9))


def test_uniform_takes_equally_many_of_every_owner() -> None:
    labels = np.repeat([0, 1, 2], [500, 50, 90])
    chosen = choosing.uniform(labels, 100, 1)
    assert sorted(np.bincount(labels[chosen]).tolist()) == [33, 33, 34]
    assert len(set(chosen.tolist())) == 100


def test_the_guarantee_holds_for_a_nearly_diagonal_kernel_only() -> None:
    points = np.random.default_rng(1).random((6, 3))
    for width, holds in ((0.02, True), (0.3, False)):
        said = submodularity(points, GaussianKernel(width))
        assert said.holds is holds
        assert ("void" in str(said)) is not holds
    # Where it holds, marginal gains do not grow: all nested sets of six points against a target far away.
    kernel, target = GaussianKernel(0.02), points[:1] + 5
    every = range(6)

    def value(some):
        return objective(target, points[list(some)], kernel)

    for size in (1, 2, 3):
        for small in combinations(every, size):
            for more in combinations(sorted(set(every) - set(small)), 2):
                one, two = more
                gain = value((*small, one)) - value(small)
                assert value((*small, one, two)) - value((*small, two)) <= gain + 1e-12


def test_the_loss_bound_grows_with_noise_and_size() -> None:
    assert loss_bound(1000, 0.001) == pytest.approx(7 * 0.001 * np.log(1000))
    assert loss_bound(8000, 0.001) > loss_bound(1000, 0.001)


def test_the_hidden_sum_keeps_theorem_3() -> None:
    """The largest error of a coordinate of h₂/q, mean of runs, against the bound; a broken update exceeds it."""
    hashed = FeatureHash(SCHEMA, 0.2, 16, 1, "kind")
    vectors = hashed(np.random.default_rng(2).random((4000, 2)) * 0.3)
    epsilon, steps = Fraction(1, 5), 256
    errors = []
    with Keystream() as stream:
        for _ in range(3):
            hidden = HiddenSum(16, 20)
            hidden.add(vectors)
            found = hidden.broadcast(steps, epsilon, AuctionDraws(stream, hidden.sensitivity))
            errors.append(np.abs(found - vectors.sum(axis=0)).max() / len(vectors))
    bound = hidden_sum_bound(len(vectors), 16, float(epsilon), steps, 1 / 20)
    assert np.mean(errors) < bound
    start = np.abs(vectors.mean(axis=0)).max()
    assert np.mean(errors) < 0.6 * start, "no better than no answer"


def test_a_warm_start_follows_added_points_with_few_steps() -> None:
    hashed = FeatureHash(SCHEMA, 0.2, 16, 1, "kind")
    vectors = hashed(np.random.default_rng(3).random((400, 2)) * 0.3)
    with Keystream() as stream:
        hidden = HiddenSum(16)
        hidden.start_at(vectors)
        draws = AuctionDraws(stream, hidden.sensitivity)
        for _ in range(20):
            hidden.add(vectors[:5])
            found = hidden.broadcast(5, Fraction(2), draws)
    exact = vectors.sum(axis=0) + 20 * vectors[:5].sum(axis=0)
    assert np.linalg.norm(found - exact) < 0.1 * np.linalg.norm(exact)


def test_neighbouring_hidden_sums_differ_by_one_vector_whatever_the_order() -> None:
    """A point that is replaced early shifts all later ones by a round: each must count the same in any round."""
    hashed = FeatureHash(SCHEMA, 0.2, 16, 1, "kind")
    vectors = hashed(np.random.default_rng(4).random((30, 2)))
    one, two, swapped = HiddenSum(16), HiddenSum(16), HiddenSum(16)
    one.add(vectors[:-1])
    two.add(vectors[:-1][::-1])
    swapped.add(np.concatenate([vectors[-1:], vectors[:-2]]))
    assert np.array_equal(one._sums, two._sums)
    assert 0 < np.abs(one._sums - swapped._sums).max() <= one.sensitivity
    # Rounding has the right mean.
    many = hashed(np.random.default_rng(5).random((3000, 2)))
    total = HiddenSum(16)
    total.add(many)
    expected = many.sum(axis=0) * np.sqrt(8) * 20
    assert np.abs(total._sums - expected).max() < 5 * 0.5 * np.sqrt(3000)
