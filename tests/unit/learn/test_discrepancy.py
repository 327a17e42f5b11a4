"""The maximum mean discrepancy of two releases against that of the records themselves."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError
from dpsketch.learn.discrepancy import Side, estimated
from dpsketch.numerics.arrays import Floats

ROWS, SEEDS, WIDTH = 800, 25, 0.15
COLUMNS = {name: {"kind": "number", "lower": 0, "upper": 1} for name in ("a", "b")}
SCHEMA = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": COLUMNS})


def drawn(seed: int, shift: float = 0.0) -> Floats:
    """Records on the grid of codes, so that sums are of exactly these."""
    points = np.clip(0.4 + shift + 0.1 * np.random.default_rng(seed).normal(size=(ROWS, 2)), 0, 1)
    return np.asarray(np.rint(points * 65534) / 65534)


def released(
    points: Floats,
    *maps: dps.FeatureMap,
    epsilon: float = 1.0,
    delta: float = 0.0,
    schema: dps.Schema = SCHEMA,
    sampling: dps.RowSampling | None = None,
) -> dps.View:
    parts = [dps.Part(dps.Count(), 0.1), *(dps.Part(each, 0.9 / len(maps)) for each in maps)]
    table, budget = pa.table({"a": points[:, 0], "b": points[:, 1]}), dps.Budget(epsilon, delta)
    raw = dps.accumulate(table, schema, dps.Recipe(parts, sampling=sampling))
    return dps.View(dps.release(raw, budget, *((dps.Ledger("sqlite://"), "d") if budget.private else ())))


def fourier(seed: int = 0, size: int = 60, kernel: str = "gaussian", width: float = WIDTH) -> dps.Fourier:
    return dps.Fourier(("a", "b"), size=size, seed=seed, kernel=kernel, width=width)


def mean_kernel(one: Floats, other: Floats) -> float:
    squares = ((one[:, None, :] - other) ** 2).sum(axis=2)
    return float(np.exp(-squares / (2 * WIDTH**2)).mean())


@cache
def exact_of(one: int, other: int, shift: float) -> float:
    """The discrepancy of the records that `drawn` gives for two seeds, the second ones shifted."""
    return exact(drawn(one), drawn(other, shift))


def exact(one: Floats, other: Floats) -> float:
    return mean_kernel(one, one) - 2 * mean_kernel(one, other) + mean_kernel(other, other)


@pytest.mark.parametrize(("epsilon", "delta"), [(20.0, 0.0), (0.5, 0.0), (0.5, 1e-6)], ids=["little", "pure", "delta"])
@pytest.mark.parametrize("shift", [0.0, 0.2])
def test_the_error_holds_and_the_estimate_is_unbiased(epsilon: float, delta: float, shift: float) -> None:
    """Over tables, frequencies and noise of 25 seeds; errors of half the size would have a root mean square of 2."""
    scores, errors = [], []
    for seed in range(SEEDS):
        one, other = drawn(2 * seed), drawn(2 * seed + 1, shift)
        views = (released(each, fourier(seed), epsilon=epsilon, delta=delta) for each in (one, other))
        answer = dps.mmd(*views)
        errors.append(answer.raw - exact_of(2 * seed, 2 * seed + 1, shift))
        scores.append(errors[-1] / answer.stderr)
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.3
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(SEEDS)


def test_noise_does_not_look_like_a_difference() -> None:
    """Without its energy taken away, the discrepancy of equal tables would be many standard errors."""
    points = drawn(1)
    answers = [dps.mmd(released(points, fourier(seed)), released(points, fourier(seed))) for seed in range(10)]
    assert all(abs(answer.raw) < 4 * answer.stderr for answer in answers)
    assert all(answer.value == max(answer.raw, 0.0) for answer in answers)
    assert {answer.raw > 0 for answer in answers} == {True, False}
    assert answers[0].interval()[0] >= 0


@pytest.mark.parametrize("gap", [0.0, 0.3])
def test_a_wrong_number_of_records_is_no_difference(gap: float) -> None:
    """Numbers of records that are off by e turn φ into φ·(1 − e) at all frequencies, beside little noise."""
    rng, noise, counting = np.random.default_rng(1), 1e-5, 0.1
    errors, stderrs = [], []
    for _ in range(600):
        waves = 0.7 * np.exp(2j * np.pi * rng.random(300))
        sides = [
            Side(
                each * (1 - counting * rng.normal()) + np.sqrt(noise) * (rng.normal(size=(300, 2)) @ [1, 1j]),
                noise,
                0.0,
                counting,
                100.0,
            )
            for each in (waves, waves * (1 - gap))
        ]
        found, stderr = estimated(*sides)
        errors.append(found - (0.7 * gap) ** 2)
        stderrs.append(stderr)
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(600)
    assert 0.95 < np.sqrt(np.mean(np.square(stderrs))) / np.std(errors) < 1.35


def test_explain_compares_with_chance() -> None:
    one, other = drawn(1), drawn(2)
    answer = dps.mmd(*(released(each, fourier(size=2000), epsilon=float("inf")) for each in (one, other)))
    assert answer.value == pytest.approx(exact(one, other), abs=3 * answer.stderr)
    chance = 2 / ROWS * (1 - mean_kernel(one, one))
    note = "two samples of these sizes from one population would have about "
    assert float(answer.explain().partition(note)[2]) == pytest.approx(chance, rel=0.1)
    assert answer.how == "2000 Fourier frequencies, kernel 'gaussian', width 0.15"


def test_masked_features_work() -> None:
    one, other, map_ = drawn(1), drawn(2, 0.2), dps.Subsampled(fourier(size=400), size=100)
    answer = dps.mmd(released(one, map_, epsilon=5.0), released(other, map_, epsilon=5.0))
    assert abs(answer.raw - exact(one, other)) < 4 * answer.stderr


def test_releases_that_cannot_be_compared_are_refused() -> None:
    points, wider = drawn(1), {"a": COLUMNS["a"] | {"upper": 2}, "b": COLUMNS["b"]}
    one = released(points, fourier())
    bounds = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": wider})
    with pytest.raises(QueryError, match=r"this is the same release twice\nHint: compare two"):
        dps.mmd(one, one)
    for other in (
        released(points, fourier(1)),
        released(points, fourier(width=0.2)),
        released(points, fourier(), schema=bounds),
    ):
        with pytest.raises(
            QueryError, match=r"share no Fourier features \(the first has 'gaussian' of a, b\)\nHint: rel"
        ):
            dps.mmd(one, other)
    for map_ in (dps.Fourier(("a", "b")), dps.OneBitFourier(("a", "b"), kernel="gaussian", width=0.1)):
        with pytest.raises(QueryError, match=r"the first release has no Fourier sums of a kernel\nHint: release both"):
            dps.mmd(released(points, map_), one)
    with pytest.raises(QueryError, match=r"a release of a sample of the rows has no discrepancy of tables\nHint: rel"):
        dps.mmd(one, released(points, fourier(), sampling=dps.RowSampling(0.5)))
