from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from dpsketch.denoise.column_fit import ColumnSummary
from dpsketch.learn.estimators.joint import joint_fit
from dpsketch.learn.estimators.joint.bootstrap import redrawn
from dpsketch.learn.estimators.joint.descent import fit_mixture
from dpsketch.learn.estimators.joint.joint_fit import NoisySums, fit_products
from dpsketch.learn.estimators.joint.table_matrix import Blocks

ROWS = 10_000.0
SIZES = (6, 5, 4, 3)
PAIRS = list(combinations(range(4), 2))


def known() -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(5)
    return rng.dirichlet(np.full(3, 5.0)), [rng.dirichlet(np.ones(size), 3) for size in SIZES]


def tables(scale: float = 1.0) -> dict[tuple[int, int], np.ndarray]:
    weights, shares = known()
    return {(i, j): scale * (shares[i] * weights[:, None]).T @ shares[j] for i, j in PAIRS}


def release(seed: int, sd: float) -> NoisySums:
    """Noisy counts of a known mixture over categories (and a missing cell that is one of them)."""
    rng = np.random.default_rng(seed)
    weights, shares = known()
    summaries = [ColumnSummary(ROWS * weights @ share + rng.normal(0, sd, share.shape[1]), sd) for share in shares]
    noisy = {pair: table + rng.normal(0, sd, table.shape) for pair, table in tables(ROWS).items()}
    groups = [np.arange(size) for size in SIZES]
    return NoisySums(summaries, ROWS, 1.0, groups, noisy, sd)


def test_a_known_mixture_is_reproduced():
    weights, shares = known()
    blocks = Blocks(SIZES)
    goal = blocks.matrix(tables())
    found, inside = fit_mixture(goal, blocks.known(PAIRS), [weights @ share for share in shares], 30, 1e-6)
    assert found.sum() == pytest.approx(1)
    for (i, j), table in tables().items():
        assert (inside[i] * found[:, None]).T @ inside[j] == pytest.approx(table, abs=2e-3)
    for share, part in zip(shares, inside, strict=True):
        assert found @ part == pytest.approx(weights @ share, abs=1e-9)
        assert part.sum(1) == pytest.approx(1)


def test_products_have_the_tables_of_what_was_released():
    products = fit_products(release(1, 1e-2))
    for (i, j), table in tables().items():
        assert products.mixture.pair(i, j) == pytest.approx(table, abs=2e-3)
    for column, marginal in enumerate(products.marginals):
        assert products.mixture.marginal(column) == pytest.approx(marginal.shares)


def test_pair_tables_and_refits_of_them_need_no_mixture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(joint_fit, "fit_mixture", lambda *_: pytest.fail("fitted"))
    sums = release(1, 1e-2)
    products = fit_products(sums)
    again = redrawn(sums, products, np.random.default_rng(2))
    refit = fit_products(again, products)
    for pair, table in tables().items():
        assert products.pairs[pair] == pytest.approx(table, abs=1e-4)
        assert again.tables[pair] == pytest.approx(ROWS * table, abs=1.0)
        assert refit.pairs[pair] == pytest.approx(table, abs=1e-4)
    assert not products.made


def test_sums_drawn_again_have_the_noise_of_each_table():
    """And row sums of tables with less noise count for more."""
    plain = release(1, 1.0)
    sums = replace(plain, pair_sd=50.0, weights={(0, 1): 5})
    products = fit_products(plain)
    again = [redrawn(sums, products, np.random.default_rng(seed)).tables for seed in range(100)]
    for pair, sd in (((0, 1), 10.0), ((1, 2), 50.0)):
        assert np.std([each[pair] for each in again], axis=0).mean() == pytest.approx(sd, rel=0.1)
    first = sums.totals()[0]
    assert first is not None
    precision = [(ROWS / sd) ** 2 / size for sd, size in ((10.0, SIZES[1]), (50.0, SIZES[2]), (50.0, SIZES[3]))]
    assert first.sd == pytest.approx(sum(precision) ** -0.5)
    assert sums.share_sds() == pytest.approx(
        np.where(np.isin(np.arange(16), (1, 4)).reshape(4, 4), 10.0 / ROWS, 50.0 / ROWS)
    )


def test_products_beat_the_noise():
    noisy = release(2, 100.0)
    products = fit_products(noisy)
    found = sum(((products.mixture.pair(i, j) - table) ** 2).sum() for (i, j), table in tables().items())
    raw = sum(((noisy.tables[pair] / ROWS - table) ** 2).sum() for pair, table in tables().items())
    assert found < raw / 2


def test_the_same_release_gives_the_same_mixture():
    first, second = (fit_products(release(3, 50.0)).mixture for _ in range(2))
    assert (first.weights == second.weights).all()
    assert all((a == b).all() for a, b in zip(first.shares, second.shares, strict=True))


def test_a_warm_start_finds_what_a_cold_one_does():
    start = fit_products(release(4, 50.0))
    noisy = release(5, 50.0)
    cold, warm = fit_products(noisy).mixture, fit_products(noisy, start=start).mixture
    for (i, j), table in tables().items():
        assert warm.pair(i, j) == pytest.approx(cold.pair(i, j), abs=2e-3)
        assert np.abs(warm.pair(i, j) - start.mixture.pair(i, j)).max() > 2e-3
        assert warm.pair(i, j).sum(1) == pytest.approx(table.sum(1), abs=0.02)
    for column in range(4):
        assert warm.marginal(column) == pytest.approx(cold.marginal(column), abs=1e-9)


def test_one_column_and_no_pairs():
    products = fit_products(
        NoisySums([ColumnSummary(np.array([700.0, 300.0, 2.0]), 5.0)], 1000.0, 1.0, [np.array([0, 1, 1])], {}, 1.0)
    )
    assert products.mixture.marginal(0) == pytest.approx([0.7, 0.3, 0.0], abs=0.01)
