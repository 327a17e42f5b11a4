"""Hashed counters of real tables and graphs through the command line, and queries of them through Python."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.data import DATA, slashdot
from benchmarks.jaccard import compare
from benchmarks.power_law import EDGES, NODES, write_graph
from benchmarks.timing import line

TABLES = {"covtype": (500, 20.0, 5.0), "skin": (1000, 5.0, 2.0)}  # rows of the table, bandwidth, time limit in seconds
LABELS = ("cover_type", "label")


def run(folder: Path, *words: str | Path) -> tuple[float, float]:
    """Seconds and peak GiB of a command."""
    command = [Path(sys.executable).with_name("dpsketch"), *words]
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(map(str, words))} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


def tables(folder: Path) -> None:
    for name, (rows, bandwidth, goal) in TABLES.items():
        schema = DATA / "schemas" / f"{name}.toml"
        columns = [column for column in tomllib.loads(schema.read_text())["columns"] if column not in LABELS]
        (folder / f"{name}.toml").write_text(
            f'[[parts]]\nmap = "race"\nshare = 1.0\nrows = {rows}\nwidth = 1000\ncolumns = {columns}\n'
            f'hash = {{family = "euclidean", bandwidth = {bandwidth}, scaled = false}}\n'
        )
        words: list[str | Path] = ["release", DATA / f"{name}.parquet", "--schema", schema, "--recipe", f"{name}.toml"]
        words += ["--epsilon", "1", "--ledger", "ledger.db", "--create-ledger", "-o", f"{name}.sketch", "--force"]
        words += ["--dataset", name]
        dps.Ledger(folder / "ledger.db").grant(name, dps.Budget(100.0))
        seconds = min(run(folder, *words)[0] for _ in range(3))
        title = f"{name} d={len(columns)} R={rows} W=1000"
        line(f"{title}: release through the command line", seconds, "s", goal, at_most=True)
        questions(title, dps.open(folder / f"{name}.sketch"), name, columns)


def questions(title: str, view: dps.View, name: str, columns: list[str]) -> None:
    table = pq.read_table(DATA / f"{name}.parquet", columns=columns)
    points = np.stack([table[column].to_numpy() for column in columns], axis=1)[:1000].astype(np.float64)
    view.kernel_sum(points)
    single, batch = [], []
    for _ in range(5):
        start = time.perf_counter()
        for point in points[:200]:
            view.kernel_sum(point)
        single.append((time.perf_counter() - start) / 200)
        start = time.perf_counter()
        view.kernel_sum(points)
        batch.append((time.perf_counter() - start) / len(points))
    line(f"{title}: a single query", 1e6 * min(single), "µs", 100, at_most=True)
    line(f"{title}: a query of a batch of 1000", 1e6 * min(batch), "µs", 10, at_most=True)


def graphs(folder: Path) -> None:
    words: list[str | Path] = ["graph", slashdot(), "--nodes", "82168", "--repetitions", "2000", "--epsilon", "inf"]
    seconds, peak = run(folder, *words, "--not-private", "-o", "slashdot.sketch")
    title = "Slashdot R=2000 W=100k"
    print(f"{title}: {seconds:.1f} s from the edge list to the file")
    line(f"{title}: peak memory", peak, "GiB", 2.5, at_most=True)
    results = [compare(slashdot(), 82_168, folder / "slashdot.sketch", seed) for seed in range(3)]
    line(f"{title}: error over 500 nodes, worst of 3", 100 * max(f[0] for f in results), "%", 3, at_most=True)
    line(f"{title}: a single query", 1e6 * min(f[1] for f in results), "µs", 200, at_most=True)
    write_graph(folder / "edges.parquet")
    words = ["graph", "edges.parquet", "--nodes", str(NODES), "--repetitions", "200", "--epsilon", "1"]
    seconds, peak = run(
        folder, *words, "--ledger", "ledger.db", "--create-ledger", "--dataset", "edges", "-o", "edges.sketch"
    )
    title = f"power-law graph, {NODES / 1e6:g}M nodes, {EDGES / 1e6:g}M edges, R=200"
    line(f"{title}: minutes", seconds / 60, "min", 10, at_most=True)
    line(f"{title}: peak memory", peak, "GiB", 8, at_most=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        tables(Path(name))
        graphs(Path(name))


if __name__ == "__main__":
    main()
