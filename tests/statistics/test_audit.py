"""Attack the released sums of neighbouring tables and bound ε from below.

The attacker knows everything but whether one record is in the table. From a statistic T of the release it guesses
"in" when T > c. Any ε-DP mechanism has P(T > c | in) <= e^ε P(T > c | out) and the same for the complements, so
ln(P_in / P_out) is a lower bound of ε; Clopper-Pearson limits at confidence 1 − ALPHA make it a statistical one.
The threshold c is chosen on one half of the draws and judged on the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

import dpsketch as dps
from dpsketch.privacy.keystream import Keystream
from dpsketch.records import Records
from dpsketch.sketch import release as module
from dpsketch.sketch.raw import RawPart
from dpsketch.sketch.release import noisy_sums

ALPHA = 1e-4
DRAWS = int(os.environ.get("DPSKETCH_AUDIT_DRAWS", "200000"))
EPSILON = 1.0
BUDGET = dps.Budget(EPSILON)
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 100},
        "columns": {"x": {"kind": "number", "lower": 0, "upper": 1}, "y": {"kind": "category", "values": ["a", "b"]}},
    }
)
UNITS = dps.Schema.from_dict(SCHEMA.to_dict() | {"privacy": {"rows": 100, "unit": "id", "max_rows_per_unit": 3}})
COUNT = dps.Recipe([dps.Part(dps.Count(), 1.0)])
MARGINALS = dps.Recipe([dps.Part(dps.Histogram(columns=["y"]), 1.0)])
BUNDLE = dps.Recipe(
    [dps.Part(dps.Count(), 0.2), dps.Part(dps.Histogram(bins=2), 0.4), dps.Part(dps.Fourier(size=2), 0.4)]
)


def neighbours(recipe: dps.Recipe, schema: dps.Schema) -> tuple[dps.RawSketch, dps.RawSketch]:
    """An empty table, and one with a single unit at its worst."""
    rows = 1 if schema.unit_column is None else schema.max_rows_per_unit
    full = pa.table({"x": [1.0] * rows, "y": ["a"] * rows, "id": ["person"] * rows})
    return dps.accumulate(full.slice(0, 0), schema, recipe), dps.accumulate(full, schema, recipe)


def statistics(raw: dps.RawSketch, score: Callable[[np.ndarray], float], draws: int) -> np.ndarray:
    stream = Keystream()
    return np.array([score(np.concatenate(noisy_sums(raw, BUDGET, stream))) for _ in range(draws)])


def lower_bound(inside: np.ndarray, outside: np.ndarray) -> float:
    """Largest certified ln-ratio over thresholds, both directions, chosen on the first halves."""
    half = len(inside) // 2
    best = 0.0
    for one, two in ((inside, outside), (-outside, -inside)):
        thresholds = np.unique(np.quantile(one[:half], np.linspace(0.001, 0.999, 200), method="lower"))
        train = [np.mean(one[:half] >= c) / max(np.mean(two[:half] >= c), 50 / half) for c in thresholds]
        c = thresholds[int(np.argmax(train))]
        hits, misses = int(np.sum(one[half:] >= c)), int(np.sum(two[half:] >= c))
        low = scipy.stats.beta.ppf(ALPHA / 4, hits, half - hits + 1) if hits else 0.0
        high = scipy.stats.beta.ppf(1 - ALPHA / 4, misses + 1, half - misses)
        best = max(best, float(np.log(low / high)) if low > 0 else 0.0)
    return best


def audit(recipe: dps.Recipe, schema: dps.Schema = SCHEMA, draws: int = DRAWS) -> float:
    """Lower bound of ε from the most powerful statistic: the log-likelihood ratio of the noise."""
    without, present = neighbours(recipe, schema)
    shift = np.concatenate([b.sums - a.sums for a, b in zip(without.parts, present.parts, strict=True)])
    scales = np.concatenate(
        [
            np.full(part.map.size, float(module.part_noise_scale(schema, entry, part.map, Fraction(1), None)))
            for part, entry in zip(without.parts, recipe.parts, strict=True)
        ]
    )

    def score(sums: np.ndarray) -> float:
        return float(((np.abs(sums) - np.abs(sums - shift)) / scales).sum())

    return lower_bound(statistics(present, score, draws // 2), statistics(without, score, draws // 2))


@pytest.mark.parametrize(
    ("recipe", "schema"), [(COUNT, SCHEMA), (MARGINALS, SCHEMA), (COUNT, UNITS)], ids=["count", "marginal", "units"]
)
def test_sharp_cases_come_close_to_epsilon_and_stay_below(recipe: dps.Recipe, schema: dps.Schema) -> None:
    found = audit(recipe, schema)
    print(f"audit lower bound {found:.3f} of epsilon {EPSILON}")
    assert EPSILON / 2 <= found <= EPSILON


def test_a_bundle_stays_below_epsilon() -> None:
    assert audit(BUNDLE) <= EPSILON


def test_fresh_masks_stay_below_epsilon_and_come_close() -> None:
    """One person in the table under a fresh mask each time, one feature in two: what a release tells of them."""
    recipe = dps.Recipe([dps.Part(dps.Subsampled(dps.OneBitFourier(size=2, columns=["x"]), 1), 1.0)])
    draws, stream = DRAWS // 20, Keystream()
    without, _ = neighbours(recipe, SCHEMA)
    (bound,) = recipe.bind(SCHEMA)
    full = bound.inner.features(Records(np.array([[32767], [0]], np.int16)))[0]
    scale = float(module.part_noise_scale(SCHEMA, recipe.parts[0], bound, Fraction(1), None))

    def score(sums: np.ndarray) -> float:
        """The log-likelihood ratio, averaged over the masks."""
        gains = (np.abs(sums) - np.abs(sums - full)).reshape(2, -1).sum(axis=1) / scale
        return float(np.logaddexp(*gains))

    inside = np.empty(draws)
    for i in range(draws):
        sums = np.zeros(bound.size, np.int64)
        bound.accumulate(Records(np.array([[32767], [0]], np.int16), {}, Keystream()), sums)
        masked = dps.RawSketch(without.schema, recipe, (RawPart(bound, sums),), without.lineage)
        inside[i] = score(np.concatenate(noisy_sums(masked, BUDGET, stream)))
    found = lower_bound(inside, statistics(without, score, draws))
    print(f"audit lower bound {found:.3f} of epsilon {EPSILON}")
    assert 0.1 <= found <= EPSILON


def test_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = module.part_noise_scale
    monkeypatch.setattr(module, "part_noise_scale", lambda *arguments: honest(*arguments) / 2)
    assert audit(COUNT, draws=60_000) > EPSILON


def test_forgetting_the_rows_of_a_unit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = module.part_noise_scale
    monkeypatch.setattr(module, "part_noise_scale", lambda *arguments: honest(*arguments) / UNITS.max_rows_per_unit)
    assert audit(COUNT, UNITS, draws=60_000) > EPSILON


def test_noise_on_one_side_only_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute noise: a release below the exact count is impossible, so one record shows."""
    honest = module.discrete_laplace
    monkeypatch.setattr(module, "discrete_laplace", lambda *arguments: np.abs(honest(*arguments)))
    assert audit(COUNT, draws=60_000) > EPSILON
