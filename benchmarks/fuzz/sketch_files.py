"""Damaged and forged sketch files: refused with the library's own error, or answered."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from benchmarks.fuzz.files import attempt, damaged, distorted, lie, limits, repeatable, sealed
from dpsketch.errors import DpsketchError
from dpsketch.sketch import file
from dpsketch.sketch.privacy_statement import statement_text

ROWS = 300
COLUMNS: dict[str, Any] = {
    "x": {"kind": "number", "lower": 0, "upper": 1},
    "y": {"kind": "integer", "lower": 0, "upper": 20},
    "z": {"kind": "category", "values": ["a", "b"]},
}
NUMBERS = ("x", "y")
PARTS: tuple[tuple[dps.FeatureMap, ...], ...] = (
    (dps.Marginals(bins=4), dps.AdaptivePairs(bins=4), dps.Totals()),
    (dps.Marginals(bins=4), dps.AdaptivePairs(bins=4, contrasts=True)),
    (dps.Histogram(bins=4), dps.Histogram(ways=2, bins=3), dps.SecondMoments(NUMBERS)),
    (dps.Fourier(NUMBERS, size=12), dps.Quadratic(NUMBERS, size=6)),
    (dps.OneBitFourier(size=12), dps.Subsampled(dps.Fourier(NUMBERS, size=12), 3)),
    (dps.Grid(NUMBERS, rows=2, width=64, levels=(1, 2)), dps.Race(NUMBERS, rows=6, width=16)),
    (dps.Grouped(dps.Race(NUMBERS, rows=6, width=16, hash=dps.SignedProjection(4)), "z"),),
)
BUDGETS = (dps.Budget(8.0), dps.Budget(8.0, 1e-6), dps.Budget(rho=8.0))


def run_one(rng: np.random.Generator, folder: Path) -> None:
    """Create one file and use it as an analyst would."""
    kind, path = int(rng.integers(len(PARTS))), folder / "fuzzed.sketch"
    good = honest(kind)
    content = damaged(rng, good) if rng.random() < 0.3 else lying(rng, good, folder)
    path.write_bytes(content)
    with limits(len(content)):
        view = attempt(lambda: dps.open(path))
        if not isinstance(view, DpsketchError):
            use(view, rng)


def use(view: dps.View, rng: np.random.Generator) -> None:
    """Show and query, and occasionally fit."""
    text = attempt(lambda: statement_text(view.statement))
    if not isinstance(text, DpsketchError) and not text.replace("\n", "").isprintable():
        raise ValueError(f"a statement that a terminal obeys: {text!r}")
    questions = (
        lambda: view.count(),
        lambda: view.mean("x"),
        lambda: view.quantile("y", 0.5),
        lambda: view.fraction("x < 0.5 and y < 10"),
        lambda: view.fraction("20 * x < y"),
        lambda: view.histogram("y", 5),
        lambda: view.corr(),
        lambda: view.sql("select z, avg(x), count(*) from sketch group by z"),
        lambda: view.sample(10),
        lambda: view.kernel_sum({"x": [0.5], "y": [3]}, group="a" if rng.random() < 0.5 else None),
    )
    for index in rng.permutation(len(questions))[:3]:
        attempt(questions[index])
    models = (
        lambda: dps.KMeans(2).fit(view),
        lambda: dps.PCA(1).fit(view),
        lambda: dps.LinearRegression("y").fit(view),
        lambda: dps.LogisticRegression("z").fit(view),
        lambda: dps.DensityClassifier("z").fit(view),
        lambda: dps.KernelDensity().fit(view),
        lambda: dps.GridDensity().fit(view),
        lambda: dps.AnomalyScorer().fit(view),
    )
    if rng.random() < 0.3:
        attempt(models[rng.integers(len(models))])


@cache
def honest(kind: int) -> bytes:
    """A small sketch, as the library writes it."""
    rng = np.random.default_rng(kind)
    x = rng.random(ROWS)
    table = pa.table({"x": x, "y": (20 * x).astype(int), "z": np.where(x < 0.3, "a", "b")})
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS, "record": "visit"}, "columns": COLUMNS})
    maps = (dps.Count(), *PARTS[kind])
    recipe = dps.Recipe([dps.Part(each, round(1 / len(maps), 3)) for each in maps])
    with tempfile.TemporaryDirectory() as folder, repeatable(kind):
        path, raw = Path(folder) / "a.sketch", dps.accumulate(table, schema, recipe)
        dps.release(raw, BUDGETS[kind % len(BUDGETS)], dps.Ledger("sqlite://"), "fuzz").save(path)
        return path.read_bytes()


def lying(rng: np.random.Generator, good: bytes, folder: Path) -> bytes:
    """A forged file with a correct digest and often correct fingerprints: inner checks must detect it."""
    path = folder / "good.sketch"
    path.write_bytes(good)
    contents, header = file.read(path, "released"), file.read_header(path)
    sums = [np.array(each) for each in contents.sums]
    choice = rng.integers(4)
    if choice == 0:
        header = lie(rng, header)
    elif choice == 1:
        header["recipe"] = lie(rng, header["recipe"])
    elif choice == 2:
        header["schema"] = lie(rng, header["schema"])
    if choice == 3 or rng.random() < 0.2:
        index = rng.integers(len(sums))
        sums[index] = distorted(rng, sums[index])
    attempt(lambda: _agree(header, sums))
    try:
        return sealed(header, {f"part.{index}": each for index, each in enumerate(sums)})
    except (ValueError, TypeError):  # JSON cannot hold it
        return good


def _agree(header: Any, sums: list[np.ndarray]) -> None:
    """Correct lengths and fingerprints where a changed schema or recipe still has valid maps."""
    from dpsketch.sketch.container import INVALID

    try:
        schema, recipe = dps.Schema.from_dict(header["schema"]), dps.Recipe.from_dict(header["recipe"])
        lengths = [part.map.length(schema) for part in recipe.parts]
        if sum(lengths) > 10**6:
            return
        header["fingerprints"] = [bound.fingerprint() for bound in recipe.bind(schema).maps]
        for index, length in enumerate(lengths):
            if index >= len(sums):
                sums.append(np.zeros(length, np.int64))
            elif sums[index].ndim == 1:
                sums[index] = np.resize(sums[index], length)
        del sums[len(lengths) :]
    except INVALID:
        return
