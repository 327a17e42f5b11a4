import numpy as np
import pytest

from dpsketch.denoise.smooth_shares import (
    ACROSS,
    RIDGE,
    SquaredErrors,
    changes_inside,
    freedom,
    smooth_minimum,
)

CELLS = 40


def problem(seed: int) -> tuple[SquaredErrors, np.ndarray]:
    """Counts of cells, some divided in parts, sums of many cells, and squared second differences."""
    rng = np.random.default_rng(seed)
    parent = np.repeat(np.arange(CELLS // 2), rng.permutation([1, 3] * (CELLS // 4)))
    member = (parent == np.arange(CELLS // 2)[:, None]) / 0.01
    far = np.vstack([np.linspace(-0.5, 0.5, CELLS), np.arange(CELLS) < 11, np.arange(CELLS) >= 11]) / 0.02
    shares = rng.dirichlet(np.full(CELLS, 5.0))
    aim = member.T @ (member @ shares + rng.normal(size=len(member))) + far.T @ (far @ shares + rng.normal(size=3))
    steps = np.diff(np.eye(CELLS), 2, axis=0)
    return SquaredErrors(member.T @ member, far, aim), 10 * steps.T @ steps


@pytest.mark.parametrize("seed", range(5))
def test_no_neighbour_is_better(seed: int) -> None:
    errors, penalty = problem(seed)

    def cost(theta: np.ndarray) -> float:
        shares = np.exp(theta - np.logaddexp.reduce(theta))
        rough = penalty + RIDGE * (np.eye(CELLS) - 1 / CELLS)
        return 0.5 * shares @ errors.hessian @ shares - errors.linear @ shares + 0.5 * theta @ rough @ theta

    found = smooth_minimum(errors, penalty, np.full(CELLS, -np.log(CELLS)), np.zeros(CELLS))
    assert np.exp(found).sum() == pytest.approx(1)
    rng, least = np.random.default_rng(seed), cost(found)
    for size in (1.0, 0.1, 0.01):
        moved = [cost(found + size * rng.normal(size=CELLS)) for _ in range(200)]
        assert min(moved) > least - 0.01, "χ²/2 at which steps stop"


def test_counts_far_above_their_noise_leave_a_distribution() -> None:
    """Parts of cells with a billion records and hardly any noise."""
    member = (np.repeat(np.arange(10), 4) == np.arange(10)[:, None]) * 1e9
    aim = member.T @ (member @ np.full(CELLS, 1 / CELLS))
    steps = np.diff(np.eye(CELLS), 2, axis=0)
    errors = SquaredErrors(member.T @ member, np.zeros((0, CELLS)), aim)
    start = np.log(np.random.default_rng(1).dirichlet(np.ones(CELLS)))
    found = smooth_minimum(errors, 0.1 * steps.T @ steps, start, np.zeros(CELLS))
    assert np.exp(found).sum() == pytest.approx(1)
    assert np.exp(found).reshape(10, 4).sum(1) == pytest.approx(0.1, abs=1e-3)


def test_density_inside_a_counted_cell_changes_with_distance() -> None:
    """Parts of a half, a quarter, … of the first of two cells: a factor from part to part costs more the closer they
    lie, and nothing between cells.
    """
    parent, smooth = np.array([0, 0, 0, 0, 1, 1]), np.array([True] * 5 + [False])
    places = np.array([0.05, 0.15, 0.35, 0.75, 1.5, 2.0])
    form = changes_inside(parent, places, smooth)
    for step, apart in ((0, 0.1), (1, 0.2), (2, 0.4)):
        risen = np.where(np.arange(6) > step, 1.0, 0.0)
        assert risen @ form @ risen == pytest.approx(1 / (ACROSS**2 * apart))
    assert form[4:].sum() == form[:, 4:].sum() == 0.0
    np.testing.assert_array_equal(form, form.T)


def test_freedom_is_how_far_counts_move_the_fit() -> None:
    """Against differences of fits to counts that are moved one by one."""
    shares, slopes = np.random.default_rng(2).dirichlet(np.full(12, 5.0)), np.eye(12) / 0.01
    steps = np.diff(np.eye(12), 2, axis=0)
    penalty = 10 * steps.T @ steps

    def fitted(aim: np.ndarray) -> np.ndarray:
        errors = SquaredErrors(slopes.T @ slopes, np.zeros((0, 12)), slopes.T @ aim)
        theta = np.zeros(12) - np.log(12)
        for _ in range(10):
            theta = smooth_minimum(errors, penalty, theta, np.zeros(12))
        return slopes @ np.exp(theta)

    aim = slopes @ shares
    for _ in range(5):
        aim = fitted(aim)  # counts that a fit explains
    moves = [(fitted(aim + each)[i] - fitted(aim - each)[i]) / 2 for i, each in enumerate(np.eye(12))]
    errors = SquaredErrors(slopes.T @ slopes, np.zeros((0, 12)), slopes.T @ aim)
    found = freedom(errors, penalty, fitted(aim) / 100, slopes)
    assert 2 < found < 11
    assert found == pytest.approx(sum(moves), rel=0.1)
