import numpy as np
import pytest

from dpsketch.learn.products.pairs import (
    centre_twice,
    common_dependence,
    denoise_pair,
    denoise_pairs,
    rake,
    rank_scores,
)

SIZE = 8
SHARES = np.random.default_rng(0).dirichlet(np.full(SIZE, 5.0), 6)


def one_cause(strength: float) -> dict[tuple[int, int], np.ndarray]:
    """Tables of six columns that depend on each other through one hidden coin."""
    tilts = [strength * p * rank_scores(p) for p in SHARES]
    return {
        (i, j): np.outer(SHARES[i], SHARES[j]) + np.outer(tilts[i], tilts[j]) for i in range(6) for j in range(i + 1, 6)
    }


def error(found: dict, truth: dict) -> float:
    return sum(((found[pair] - truth[pair]) ** 2).sum() for pair in truth)


@pytest.mark.parametrize("sd", [0.001, 0.005, 0.02])
def test_denoising_beats_the_raw_tables(sd):
    truth = one_cause(0.6)
    rng = np.random.default_rng(1)
    noisy = {pair: table + rng.laplace(0, sd / 2**0.5, table.shape) for pair, table in truth.items()}
    found = denoise_pairs(noisy, sd, list(SHARES), [True] * 6)
    assert error(found, truth) < error(noisy, truth) / 4
    for (i, j), table in found.items():
        assert (table > 0).all()
        assert table.sum(1) == pytest.approx(SHARES[i], abs=1e-6)
        assert table.sum(0) == pytest.approx(SHARES[j], abs=1e-6)


def test_pure_noise_is_independence():
    truth = one_cause(0.0)
    rng = np.random.default_rng(2)
    noisy = {pair: table + rng.normal(0, 0.01, table.shape) for pair, table in truth.items()}
    found = denoise_pairs(noisy, 0.01, list(SHARES), [True] * 6)
    assert error(found, truth) < error(noisy, truth) / 50
    assert denoise_pair(noisy[0, 1], 0.1, SHARES[0], SHARES[1]) == pytest.approx(truth[0, 1], abs=1e-6)


def test_exact_tables_stay():
    truth = one_cause(0.6)
    assert error(denoise_pairs(truth, 1e-7, list(SHARES), [False] * 6), truth) < 1e-9
    assert denoise_pair(truth[0, 1], 1e-7, SHARES[0], SHARES[1], 1.0) == pytest.approx(truth[0, 1], abs=1e-5)


def test_a_common_cause_shows_where_single_pairs_hide_it():
    truth = {
        pair: centre_twice(table - np.outer(SHARES[pair[0]], SHARES[pair[1]])) for pair, table in one_cause(0.8).items()
    }
    top = np.median([np.linalg.norm(table, 2) for table in truth.values()])
    sd = top / (2 * np.sqrt(SIZE - 1))  # at the edge for a pair
    rng = np.random.default_rng(3)
    noisy = {pair: table + centre_twice(rng.normal(0, sd, table.shape)) for pair, table in truth.items()}
    found = common_dependence(noisy, sd, [SIZE] * 6)
    assert error(found, truth) < 0.7 * sum((table**2).sum() for table in truth.values())


def test_raking_reaches_the_marginals():
    table = rake(np.random.default_rng(4).normal(0.02, 0.02, (SIZE, SIZE)), SHARES[0], SHARES[1])
    assert (table > 0).all()
    assert table.sum(1) == pytest.approx(SHARES[0], abs=1e-6)
    assert table.sum(0) == pytest.approx(SHARES[1], abs=1e-6)
