"""Sketch once, then choose: one process, from tables to a summary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsketch.auditing import audit
from dpsketch.errors import FileError
from dpsketch.federate.market import market_roles as roles
from dpsketch.federate.market.kernel_distance import GaussianKernel, gain_kept, mmd2
from dpsketch.federate.market.market_plan import market_plan
from dpsketch.federate.market.sold_rows import Rows
from dpsketch.federate.market.stratum_sums import consumer_recipe, noisy_means, owner_recipe
from dpsketch.federate.market.stratum_weights import NoisyMeans, Residual, filtered, mixture_weights
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.budget import Budget
from market_parties import owners, records, terms, validation


@pytest.fixture(scope="module")
def releases():
    market = terms()
    book = Ledger("sqlite://")
    found = {name: roles.owner_release(table, market, book, name) for name, table in owners().items()}
    return market, found, roles.consumer_release(validation(), market, book, "buyer"), book


@pytest.fixture(scope="module")
def rows():
    market = terms()
    return {name: Rows.read(market, table) for name, table in owners().items()}


def test_the_summary_is_much_closer_than_a_uniform_one(releases, rows) -> None:
    market, found, target, _ = releases
    wanted = Rows.read(market, validation(), labelled=False)
    summary = roles.market_of(market, found, target, rows, wanted)
    assert summary.table.column_names == ["x", "y", "kind", "weight", "owner"]
    assert summary.table.num_rows == 40
    assert summary.pool == 50
    assert sum(summary.table["weight"].to_pylist()) == pytest.approx(1)
    kernel = GaussianKernel(market.width)
    pool = np.concatenate([each.points for each in rows.values()])
    chosen = Rows.read(market, summary.table)
    uniform = mmd2(pool[:: len(pool) // 40][:40], wanted.points, kernel)
    greedy = mmd2(
        pool[roles.greedy(np.concatenate([r.features for r in rows.values()]), wanted.features.mean(0), 40)],
        wanted.points,
        kernel,
    )
    assert gain_kept(uniform, mmd2(chosen.points, wanted.points, kernel), greedy) > 0.9
    values = roles.attribution(summary, wanted.features)
    assert max(values, key=values.__getitem__) == "south"
    # Marginal gains add up to J by features.
    mean = chosen.features.mean(axis=0, dtype=float)
    expected = 2 * mean @ wanted.features.mean(axis=0, dtype=float) - mean @ mean
    assert sum(values.values()) == pytest.approx(expected, abs=1e-3)
    assert roles.parsimony(summary.pool, 40, 300) == pytest.approx(350 / 340)


def test_cells_come_back_in_the_schemas_units(rows) -> None:
    market = terms()
    message = rows["south"].message(np.arange(7))
    back = pq.read_table(pa.BufferReader(message))
    original = owners()["south"].slice(0, 7)
    assert np.abs(back["x"].to_numpy() - original["x"].to_numpy()).max() < 8 / 65534
    assert back["kind"].to_pylist() == original["kind"].to_pylist()
    assert np.array_equal(Rows.read(market, back).codes, rows["south"].codes[:, :7])


def test_releases_are_ordinary_entries_that_later_consumers_reuse(releases, rows) -> None:
    market, found, target, book = releases
    before = [(account.dataset, account.spent) for account in book.accounts()]
    assert {name for name, _ in before} == {"north", "south", "west", "buyer"}
    for size in (10, 30):
        roles.allocate(roles.for_size(market, size, 1.5), found, target)
    assert [(account.dataset, account.spent) for account in book.accounts()] == before
    for released in found.values():
        assert released.releases[0].budget == market.owner_budget


def test_allocations_follow_from_releases_alone(releases) -> None:
    market, found, target, _ = releases
    one, two = (roles.allocate(market, found, target).to_bytes() for _ in range(2))
    assert one == two
    read = roles.Allocation.from_bytes(one, market)
    assert sum(read.quotas.values()) == market.shipped
    with pytest.raises(FileError, match="do not fit"):
        roles.Allocation.from_bytes(one, terms(features=32))
    with pytest.raises(FileError, match="not a message"):
        roles.Allocation.from_bytes(b"{}", market)


def test_strata_without_records_are_noised_like_all_others() -> None:
    market = terms()
    table = records((0, 0), 50, 3)
    alone = pa.table({"x": table["x"], "y": table["y"], "kind": ["a"] * 50})
    released = roles.owner_release(alone, market, Ledger("sqlite://"), "alone")
    sums = released.parts[0].sums.reshape(len(market.strata), -1)
    deviations = sums[1:].std(axis=1) / np.sqrt(released.parts[0].noise_variance)
    assert deviations == pytest.approx(1, abs=0.5)
    assert (released.parts[1].sums[1:] != 0).any()
    means = noisy_means(released, market.hashed, len(market.strata))
    assert means.counts[1:].tolist() == [0, 0, 0]  # too few to take part


def test_an_owner_with_few_rows_fills_its_quota(releases) -> None:
    market, found, target, _ = releases
    allocation = roles.allocate(market, found, target)
    few = Rows.read(market, owners()["south"].slice(0, 5))
    chosen = roles.choose_rows(few, "south", allocation)
    assert len(chosen) == allocation.quotas["south"] > 5
    assert set(chosen.tolist()) == set(range(5))


def test_averaged_weights_are_steadier_where_the_target_is_small() -> None:
    rng = np.random.default_rng(4)
    means = np.eye(3, 40)
    strata = NoisyMeans(means, np.full(3, 1000.0), np.full(3, 1e-3), np.full(3, 1e-3))
    truth = np.array([0.5, 0.3, 0.2])
    errors: dict[int, list[float]] = {0: [], 50: []}
    for draw in range(10):
        target = NoisyMeans(
            (truth @ means + 0.4 * rng.standard_normal(40))[None], np.array([50.0]), np.array([0.4]), np.array([0.05])
        )
        for draws, found in errors.items():
            found.append(float(((mixture_weights(strata, target, draws, draw) - truth) ** 2).sum()))
    assert np.mean(errors[50]) < 0.8 * np.mean(errors[0])


def test_the_filter_keeps_a_shift_and_drops_noise() -> None:
    rng = np.random.default_rng(6)
    spread = np.diag([1.0, 0.5, *[0.001] * 38])
    mixture = np.ones(40)
    shift = np.zeros(40)
    shift[0] = 0.6
    noise = 0.05 * rng.standard_normal(40)
    found = filtered(Residual(shift + noise + 0.1 * mixture, mixture, 0.05, 0.1, 1000.0), spread)
    assert np.linalg.norm(found - shift) < 0.5 * np.linalg.norm(noise + 0.1 * mixture)
    nothing = filtered(Residual(noise, mixture, 0.05, 0.1, 1000.0), spread)
    assert np.linalg.norm(nothing) < 0.5 * np.linalg.norm(noise)


def test_the_count_of_a_validation_set_may_be_public() -> None:
    noised, public = terms(), terms(count="public")
    free = roles.consumer_release(validation(), public, Ledger("sqlite://"), "buyer")
    assert noisy_means(free, public.hashed).counts.tolist() == [300]
    # Its features then get twice the noise, as a replaced record moves them by twice as much.
    plain = roles.consumer_release(validation(), noised, Ledger("sqlite://"), "buyer")
    assert free.parts[0].noise_variance > 3.5 * plain.parts[0].noise_variance


def test_audits_of_both_recipes_find_no_violation() -> None:
    """What another owner sees follows from these releases: neighbouring owner tables, and validation sets."""
    market = terms(features=4)
    budget = Budget(4.0, 1e-5)
    for recipe, schema in (
        (owner_recipe(market.hashed), market.schema),
        (consumer_recipe(market.hashed), market.consumer_schema),
        (consumer_recipe(market.hashed), terms(features=4, count="public").consumer_schema),
    ):
        found = audit(recipe, schema, budget, 6000, "gaussian")
        assert found.lower_bound > 0.5  # so much less noise would be caught
        assert not found.violated


def test_a_plan_says_whether_sizes_are_enough() -> None:
    small, large = market_plan(terms(validation_rows=100)), market_plan(terms(validation_rows=300))
    assert not small.enough
    assert "too few: at least" in small.lines()[0]
    assert large.target_noise < small.target_noise
    assert large.least_validation == small.least_validation
    # The noise is that of the release.
    released = roles.consumer_release(validation(), terms(), Ledger("sqlite://"), "buyer")
    deviation = np.sqrt(released.parts[0].noise_variance) / terms().hashed.scale
    assert large.target_noise == pytest.approx(deviation / 300, rel=1e-3)
