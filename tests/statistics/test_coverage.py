"""Intervals of the answers hold the truth as often as they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

import dpsketch as dps
from conftest import SEED, TestStream
from dpsketch.sketch.release import noisy_sums, release

ALPHA = 1e-6
RELEASES = 2000
OTHERS = 150  # releases for answers that take longer
ROWS = 10_000
FACTS = {
    "privacy": {"rows": ROWS},
    "columns": {
        "x": {"kind": "number", "lower": 0, "upper": 1},
        "y": {"kind": "number", "lower": -5, "upper": 5},
        "z": {"kind": "category", "values": ["a", "b", "c"]},
    },
}


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    return {"x": rng.random(ROWS), "y": rng.uniform(-5, 5, ROWS), "z": rng.choice(["a", "b", "c"], ROWS)}


@pytest.fixture(scope="module")
def raw(table: dict[str, np.ndarray]) -> dps.RawSketch:
    schema = dps.Schema.from_dict(FACTS)
    parts = [dps.Part(dps.Count(), 0.05), dps.Part(dps.Histogram(bins=64), 0.95)]
    return dps.accumulate(pa.table(table), schema, dps.Recipe(parts))


def views(raw: dps.RawSketch, releases: int) -> list[dps.View]:
    """Releases with noise of their own, each as `release` draws it; the ledger, which adds them up, is asked once."""
    first = release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "uniform")
    exact = [part.sums for part in raw.parts]
    with TestStream() as stream:
        drawn = [noisy_sums(first.releases[0], first.maps, exact, stream) for _ in range(releases)]
    return [dps.View(replace(first, sums=sums)) for sums in drawn]


def hits(answers: list[dps.Answer], truth: float) -> float:
    return float(np.mean([abs(answer.value - truth) <= 1.96 * answer.stderr for answer in answers]))


def test_coverage_of_the_mean(raw: dps.RawSketch, table: dict[str, np.ndarray]) -> None:
    """2,000 releases at ε = 1: between 93.5 % and 96.5 % of the 95 % intervals hold the true mean."""
    answers = [view.mean("x") for view in views(raw, RELEASES)]
    found = hits(answers, table["x"].mean())
    print(f"coverage of the mean over {RELEASES} releases: {found:.4f}")
    assert 0.935 <= found <= 0.965
    halved = [dps.Answer(answer.value, answer.stderr / 2) for answer in answers]
    assert hits(halved, table["x"].mean()) < 0.935, "half the standard error would be noticed"


def test_coverage_of_other_answers(raw: dps.RawSketch, table: dict[str, np.ndarray]) -> None:
    """150 releases: each kind of answer is within what chance allows around 95 %; the tail begins at a bin's edge."""
    x, y, z = table["x"], table["y"], table["z"]
    truths = {
        "count": (lambda view: view.count(), float(ROWS)),
        "tail": (lambda view: view.count("x > 0.90625"), float((x > 0.90625).sum())),
        "share": (lambda view: view.fraction("z = 'a'"), float((z == "a").mean())),
        "std": (lambda view: view.std("y"), float(y.std())),
        "sum": (lambda view: view.sum("x"), float(x.sum())),
        "median": (lambda view: view.quantile("x", 0.5), float(np.median(x))),
    }
    drawn = views(raw, OTHERS)
    low = scipy.stats.binom.ppf(ALPHA / 2, OTHERS, 0.935) / OTHERS  # a single Laplace sum: 93.75 %
    high = scipy.stats.binom.ppf(1 - ALPHA / 2, OTHERS, 0.96) / OTHERS
    for name, (ask, truth) in truths.items():
        found = hits([ask(view) for view in drawn], truth)
        assert low <= found <= high, (name, found)
