import numpy as np
import pytest

from dpsketch.learn.estimators.joint.denoised_pairs import (
    common_dependence,
    contrast_of,
    contrasts,
    find_dependence,
    find_missed,
    shrink_smooth,
)
from dpsketch.learn.estimators.joint.table_matrix import Blocks

SIZE = 8
SHARES = list(np.random.default_rng(0).dirichlet(np.full(SIZE, 5.0), 6))
BLOCKS = Blocks([SIZE] * 6)
EVERY = np.concatenate(SHARES)
PAIRS = [(i, j) for i in range(6) for j in range(i + 1, 6)]


def slope(shares: np.ndarray) -> np.ndarray:
    ranks = np.cumsum(shares) - shares / 2
    ranks = ranks - shares @ ranks
    return shares * ranks / np.sqrt(shares @ ranks**2)


def one_cause(strength: float) -> dict[tuple[int, int], np.ndarray]:
    """Dependence of six columns on each other through one hidden coin."""
    return {(i, j): strength**2 * np.outer(slope(SHARES[i]), slope(SHARES[j])) for i, j in PAIRS}


def joint(dependence: dict, sd: float, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    return {
        (i, j): np.outer(SHARES[i], SHARES[j]) + table + rng.laplace(0, sd / 2**0.5, table.shape)
        for (i, j), table in dependence.items()
    }


def error(found: np.ndarray, truth: dict) -> float:
    return sum(((found[BLOCKS.of(i), BLOCKS.of(j)] - table) ** 2).sum() for (i, j), table in truth.items())


def found_in(tables: dict, sd: float, shares: list, ordered: list) -> np.ndarray:
    return find_dependence(tables, sd, shares, ordered).found


@pytest.mark.parametrize("sd", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("ordered", [True, False])
def test_denoising_beats_the_raw_tables(sd, ordered):
    truth = one_cause(0.6)
    found = found_in(joint(truth, sd, 1), sd, SHARES, [ordered] * 6)
    assert error(found, truth) < sd**2 * len(PAIRS) * SIZE**2 / 4
    assert found == pytest.approx(found.T)
    assert found @ BLOCKS.member == pytest.approx(0.0, abs=1e-12)


def test_order_helps():
    truth = one_cause(0.6)
    noisy = joint(truth, 0.01, 2)
    with_order, without = (error(found_in(noisy, 0.01, SHARES, [known] * 6), truth) for known in (True, False))
    assert with_order < 0.8 * without


def test_pure_noise_is_independence():
    truth = one_cause(0.0)
    found = found_in(joint(truth, 0.01, 3), 0.01, SHARES, [True] * 6)
    assert error(found, truth) < 0.01**2 * len(PAIRS) * SIZE**2 / 20


def test_exact_tables_stay():
    truth = one_cause(0.6)
    assert error(found_in(joint(truth, 0.0, 4), 1e-7, SHARES, [False] * 6), truth) < 1e-9


def test_pairs_that_are_not_there_stay_unknown():
    truth = one_cause(0.6)
    some = {pair: table for pair, table in joint(truth, 0.001, 5).items() if pair != (0, 1)}
    found = found_in(some, 0.001, SHARES, [True] * 6)
    assert (found[BLOCKS.of(0), BLOCKS.of(1)] == 0).all()
    assert error(found, {pair: truth[pair] for pair in some}) < 0.001**2 * len(PAIRS) * SIZE**2 / 4


def test_no_pairs_and_columns_of_one_group():
    assert (found_in({}, 0.1, [np.ones(1), np.ones(1)], [True, False]) == 0).all()
    one = {(0, 1): np.array([[0.3, 0.7]])}
    assert found_in(one, 0.01, [np.ones(1), np.array([0.3, 0.7])], [True, True]) == pytest.approx(0.0)


def test_contrasts_are_orthonormal_and_go_by_degree():
    axes = contrasts(SHARES[0], True)
    assert axes.T @ axes == pytest.approx(np.eye(SIZE - 1), abs=1e-12)
    assert axes.sum(0) == pytest.approx(0.0, abs=1e-12)
    assert (np.diff(axes[:, 0] * np.sign(axes[-1, 0])) > 0).all()


def test_a_common_cause_shows_where_single_pairs_hide_it():
    turn = BLOCKS.diagonal([contrasts(share, True) for share in SHARES])
    truth = turn.T @ BLOCKS.matrix(one_cause(0.8)) @ turn
    known = Blocks([SIZE - 1] * 6).known(PAIRS)
    sd = np.median([np.linalg.norm(table, 2) for table in one_cause(0.8).values()]) / (2 * np.sqrt(SIZE - 1))
    noise = np.triu(np.random.default_rng(6).normal(0, sd, truth.shape))
    found = common_dependence(np.where(known, truth + noise + noise.T, 0.0), known, sd)
    assert (((found - truth) * known) ** 2).sum() < 0.7 * (truth**2).sum()


def test_shrinking_keeps_what_stands_out_and_drops_the_rest():
    blocks = Blocks([4, 4])
    known = blocks.known([(0, 1)])
    noisy = np.zeros((8, 8))
    noisy[0, 4] = noisy[4, 0] = 1.0
    noisy[:4, 4:] += 0.01 * np.random.default_rng(7).normal(size=(4, 4))
    noisy[4:, :4] = noisy[:4, 4:].T
    found = shrink_smooth(noisy, known, blocks, np.tile(np.arange(4), 2), 0.01)
    assert found[0, 4] == pytest.approx(noisy[0, 4], rel=0.01)
    assert (found[1:4, 5:] ** 2).sum() < (noisy[1:4, 5:] ** 2).sum() / 4


def test_a_start_from_similar_tables_finds_the_same():
    truth = one_cause(0.6)
    first, second = (joint(truth, 0.005, seed) for seed in (5, 6))
    start = find_dependence(first, 0.005, SHARES, [True] * 6)
    cold, warm = (find_dependence(second, 0.005, SHARES, [True] * 6, each).found for each in (None, start.common))
    assert np.abs(warm - cold).max() < 0.1 * np.abs(cold - start.found).max()


def test_one_noise_for_all_pairs_may_be_given_as_a_matrix():
    noisy, every = joint(one_cause(0.6), 0.005, 5), np.full((6, 6), 0.005)
    one, same = (find_dependence(noisy, sd, SHARES, [True] * 6) for sd in (0.005, every))
    assert (one.found == same.found).all()
    assert (one.common == same.common).all()
    first, second = (find_missed(noisy, sd, SHARES, [True] * 6).sd for sd in (0.005, every))
    assert (first == second).all()


def test_a_pair_with_less_noise_keeps_more_of_its_table():
    """As if it were by itself, and more than if all pairs were taken to be as noisy as the others."""
    truth, sds = one_cause(0.6), np.full((6, 6), 0.03)
    sds[0, 1] = sds[1, 0] = 0.001
    rng = np.random.default_rng(9)
    alone = {pair: np.outer(SHARES[pair[0]], SHARES[pair[1]]) for pair in PAIRS}
    noisy = {pair: alone[pair] + truth[pair] + rng.normal(0, sds[pair], truth[pair].shape) for pair in PAIRS}
    left = {}
    for name, sd in (("own", sds), ("alike", np.full((6, 6), 0.03))):
        found = find_dependence(noisy, sd, SHARES, [True] * 6).found
        left[name] = ((found[BLOCKS.of(0), BLOCKS.of(1)] - truth[0, 1]) ** 2).sum()
    assert left["own"] < 0.25 * left["alike"]
    missed = find_missed(noisy, sds, SHARES, [True] * 6).draw(rng)
    own, other = (np.std(missed[BLOCKS.of(i), BLOCKS.of(j)]) for i, j in ((0, 1), (2, 3)))
    assert own < 0.25 * other


def test_a_contrast_is_the_diagonal_less_the_rest():
    assert contrast_of(np.array([[0.4, 0.1], [0.2, 0.3]])) == pytest.approx(np.array([[0.4]]))


def _bayes_errors(sd: float, seeds: range, drawn: bool) -> np.ndarray:
    """Squared errors of denoised tables over those that refits would state, with and without what noise may hide."""
    ratios = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        axes = [contrasts(shares, True) for shares in SHARES]
        truth = {(i, j): axes[i] @ rng.normal(0, sd / 2, (SIZE - 1, SIZE - 1)) @ axes[j].T for i, j in PAIRS}
        noisy = joint(truth, sd, seed)
        found = found_in(noisy, sd, SHARES, [True] * 6)
        missed = find_missed(noisy, sd, SHARES, [True] * 6).draw(rng) if drawn else np.zeros_like(found)
        again = {
            (i, j): np.outer(SHARES[i], SHARES[j])
            + (found + missed)[BLOCKS.of(i), BLOCKS.of(j)]
            + rng.laplace(0, sd / 2**0.5, (SIZE, SIZE))
            for i, j in PAIRS
        }
        refit = found_in(again, sd, SHARES, [True] * 6) - missed
        stated = error(refit, {(i, j): found[BLOCKS.of(i), BLOCKS.of(j)] for i, j in PAIRS})
        ratios.append(error(found, truth) / stated)
    return np.array(ratios)


def test_refits_show_what_noise_hides():
    """Noise twice as large as a dependence of its own in every pair: refits of the fit alone state too small errors."""
    without, now = (np.median(_bayes_errors(0.01, range(20), drawn)) for drawn in (False, True))
    assert without > 1.5
    assert 0.5 < now < 1.5


def test_what_noise_hides_adds_up_to_zero_and_vanishes_with_the_noise():
    truth = one_cause(0.6)
    for sd in (1e-2, 1e-7):
        missed = find_missed(joint(truth, sd, 4), sd, SHARES, [True] * 6).draw(np.random.default_rng(1))
        assert missed @ BLOCKS.member == pytest.approx(0.0, abs=1e-12)
        assert missed == pytest.approx(missed.T)
        assert np.abs(missed).max() < 5 * sd
