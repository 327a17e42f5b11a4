"""`python -m benchmarks.truth.smooth`: whether ± holds for columns without shared values, and falls with rows and ε.

Simulated columns (normal, log-normal, uniform, a narrow peak between wide bounds) of up to 50 million rows, drawn and
read batch by batch. Errors are in records, that of a quantile as the records between it and the truth, times ε: what
noise alone asks for is then the same for any number of rows. `level` is the standard deviation of where in its level,
1/65,534 of the bounds, a record is, in the same units: no release shows more than that.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

import dpsketch as dps
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import SPAN

ROWS = (500_000, 5_000_000, 50_000_000)
BUDGETS = ((1.0, 0.0), (1.0, 1e-6))
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BATCH = 500_000
SURELY = 8.0  # standard deviations of a share


@dataclass(frozen=True)
class Made:
    """A simulated column: the distribution of its values, and how it is declared."""

    law: Any
    declared: dict[str, Any]

    def level_at(self, value: float) -> float:
        """The width of a level around a value."""
        low, high = self.declared["lower"], self.declared["upper"]
        if "transform" in self.declared:
            return float((np.arcsinh(high) - np.arcsinh(low)) * np.sqrt(1 + value**2) / SPAN)
        return float((high - low) / SPAN)


COLUMNS = {
    "normal": Made(stats.norm(50, 10), {"kind": "number", "lower": 0, "upper": 100}),
    "uniform": Made(stats.uniform(0, 1), {"kind": "number", "lower": 0, "upper": 1}),
    "lognormal": Made(stats.lognorm(1, scale=np.exp(10)), {"kind": "number", "lower": 0, "upper": 10_000_000}),
    "asinh": Made(
        stats.lognorm(1, scale=np.exp(10)),
        {"kind": "number", "lower": 0, "upper": 10_000_000, "transform": "asinh"},
    ),
    "peak": Made(stats.norm(12.3, 0.05), {"kind": "number", "lower": 0, "upper": 1000}),
}


@dataclass
class Truths:
    """Counts at or below thresholds, and quantiles, of values that come batch by batch. A quantile is one of the few
    values near that of the distribution.
    """

    law: Any
    rows: int
    thresholds: Floats
    at_most: Floats = field(init=False)
    near: list[list[Floats]] = field(init=False)
    below: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.at_most = np.zeros(len(self.thresholds))
        self.near, self.below = [[] for _ in QUANTILES], [0] * len(QUANTILES)
        self._ends = []
        for q in QUANTILES:
            off = SURELY * sqrt(q * (1 - q) / self.rows)
            self._ends.append(self.law.ppf(np.clip([q - off, q + off], 0, 1)))

    def add(self, values: Floats) -> None:
        values = np.sort(values)
        self.at_most += np.searchsorted(values, self.thresholds, side="right")
        for index, (low, high) in enumerate(self._ends):
            first, last = np.searchsorted(values, [low, high])
            self.below[index] += int(first)
            self.near[index].append(values[first:last])

    def quantile(self, index: int) -> float:
        place = ceil(QUANTILES[index] * self.rows) - 1 - self.below[index]
        return float(np.sort(np.concatenate(self.near[index]))[place])


def drawn(rows: int, seed: int) -> Iterator[dict[str, Floats]]:
    """Batches of all columns."""
    for number, start in enumerate(range(0, rows, BATCH)):
        count = min(BATCH, rows - start)
        yield {
            name: made.law.rvs(count, random_state=np.random.default_rng([seed, number, place]))
            for place, (name, made) in enumerate(COLUMNS.items())
        }


def sketched(rows: int, budget: dps.Budget, seed: int, asked: int) -> tuple[dps.RawSketch, dict[str, Truths]]:
    """A raw sketch of simulated rows, and the true answers."""
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": rows}, "columns": {name: made.declared for name, made in COLUMNS.items()}}
    )
    thresholds = np.random.default_rng([seed, rows])
    truths = {
        name: Truths(made.law, rows, np.sort(made.law.rvs(asked, random_state=thresholds)))
        for name, made in COLUMNS.items()
    }

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in drawn(rows, seed):
            for name, values in batch.items():
                truths[name].add(values)
            yield pa.RecordBatch.from_pydict(batch)

    reader = pa.RecordBatchReader.from_batches(pa.schema({name: pa.float64() for name in COLUMNS}), batches())
    return dps.accumulate(reader, schema, dps.Recipe.general(schema, rows=rows, budget=budget)), truths


@dataclass(frozen=True)
class Outcome:
    """An answer beside its truth, in records: how far off it is, its standard error, whether its intervals hold."""

    column: str
    kind: str
    question: str
    off: float
    stderr: float
    level: float
    inside: tuple[bool, bool]


def released(raw: dps.RawSketch, budget: dps.Budget) -> dps.View:
    with tempfile.TemporaryDirectory() as folder:
        return dps.View(dps.release(raw, budget, ledger=dps.Ledger(Path(folder) / "ledger.db"), dataset="smooth"))


def outcomes(view: dps.View, truths: dict[str, Truths]) -> Iterator[Outcome]:
    for name, known in truths.items():
        made = COLUMNS[name]

        def outcome(kind: str, question: str, answer: dps.Answer, truth: float, at: float, density: float) -> Outcome:
            level = float(made.law.pdf(at)) * known.rows * made.level_at(at) / sqrt(12)  # noqa: B023
            intervals = (answer.interval(0.68), answer.interval(0.95))
            inside = tuple(low <= truth <= high for low, high in intervals)
            off, stderr = density * (answer.value - truth), density * answer.stderr
            return Outcome(name, kind, question, off, stderr, level, inside)  # noqa: B023

        for at, truth in zip(known.thresholds, known.at_most, strict=True):
            where = f"{name} <= {float(at)!r}"
            yield outcome("count", where, view.count(where), float(truth), at, 1.0)
        for index, q in enumerate(QUANTILES):
            truth = known.quantile(index)
            density = float(made.law.pdf(truth)) * known.rows
            yield outcome("quantile", f"quantile {q}", view.quantile(name, q), truth, truth, density)


HEADER = "rows        budget     column     asked        68 %  95 %  beyond 3   |error|·ε  stderr·ε   level·ε"


def line(rows: int, budget: tuple[float, float], column: str, kind: str, found: list[Outcome]) -> str:
    off, stderr = (np.array([getattr(each, what) for each in found]) for what in ("off", "stderr"))
    inside = 100 * np.mean([each.inside for each in found], axis=0)
    beyond = 100 * np.mean(np.abs(off) > 3 * stderr)
    level = np.mean([each.level for each in found])
    epsilon, delta = budget
    sizes = " ".join(f"{epsilon * size:10,.0f}" for size in (np.abs(off).mean(), stderr.mean(), level))
    spent = f"{epsilon:g}, {delta:g}" if delta else f"{epsilon:g}"
    return (
        f"{rows:<11,} {spent:10} {column:10} {kind:8} {len(found):4} {inside[0]:7.0f} {inside[1]:5.0f} {beyond:9.1f}"
        f" {sizes}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.smooth", description=__doc__)
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--questions", type=int, default=40, help="counts of each column")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(HEADER)
    for rows in options.rows:
        for spent in BUDGETS:
            budget = dps.Budget(*spent)
            raw, truths = sketched(rows, budget, options.seed, options.questions)
            found = [each for _ in range(options.releases) for each in outcomes(released(raw, budget), truths)]
            for column in COLUMNS:
                for kind in ("count", "quantile"):
                    some = [each for each in found if each.column == column and each.kind == kind]
                    print(line(rows, spent, column, kind, some), flush=True)


if __name__ == "__main__":
    main()
