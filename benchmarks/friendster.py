"""`make bench-friendster`: a power-law graph of Friendster's size from the edge list to answers, by one command.

The graph has 65 million nodes and 1.8 billion edges; 2000 rows of 500,000 counters make 10^9 counters of four bytes.
The race paper takes 18.1 minutes on 90 threads for Friendster: 27 core-hours. `--scale 0.01` takes a hundredth of the
nodes and edges, `--repetitions` fewer rows of counters. A part of the time does not depend on the number of edges
(start, noise, file): a run with a tenth of the edges tells the two apart, and both are multiplied to the full size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import dpsketch as dps
from benchmarks.power_law import write_graph
from benchmarks.timing import line

NODES, EDGES, REPETITIONS, WIDTH = 65_000_000, 1_800_000_000, 2000, 500_000
PAPER = 18.1 / 60 * 90  # core-hours
QUERIES, NEIGHBOURS = 300, 30


def released(edges: Path, folder: Path, nodes: int, repetitions: int) -> tuple[float, float, Path]:
    """CPU seconds and peak GiB of the command, and the file that it writes."""
    path = folder / "graph.sketch"
    words = ["graph", str(edges), "--nodes", str(nodes), "--repetitions", str(repetitions), "--width", str(WIDTH)]
    words += ["--epsilon", "1", "--ledger", str(folder / "ledger.db"), "--create-ledger", "--dataset", "graph"]
    command = [sys.executable, "-m", "dpsketch", *words, "-o", str(path), "--json"]
    environment = os.environ | {"TMPDIR": str(folder)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit("the command failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20, path


def questions(path: Path, nodes: int) -> float:
    """The median of the microseconds of a question about one set of neighbours to the open file."""
    view, rng = dps.open(path), np.random.default_rng(0)
    sets = [rng.integers(0, nodes, NEIGHBOURS) for _ in range(QUERIES)]
    view.kernel_sum([sets[0]])
    taken = []
    for each in sets:
        start = time.perf_counter()
        view.kernel_sum([each])
        taken.append(time.perf_counter() - start)
    return 1e6 * float(np.median(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description="A power-law graph of Friendster's size through the command line.")
    parser.add_argument("--scale", type=float, default=1.0, help="the fraction of nodes and edges")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="rows of counters")
    parser.add_argument("--folder", help="where the graph and scratch files go, about 35 GB at full size")
    options = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for scale in (options.scale, *([options.scale / 10] if options.scale < 1 else [])):
            folder = Path(name, str(scale))
            folder.mkdir()
            nodes, edges = round(NODES * scale), round(EDGES * scale)
            write_graph(folder / "edges.parquet", nodes, edges)
            measured.append(released(folder / "edges.parquet", folder, nodes, options.repetitions))
            seconds, peak, _ = measured[-1]
            print(
                f"{nodes:,} nodes, {edges:,} edges, {options.repetitions} x {WIDTH:,} counters: "
                f"{seconds:.1f} CPU seconds from the edge list to the released file, peak {peak:.2f} GiB"
            )
        (seconds, peak, path), (less, _, _) = measured[0], measured[-1]
        each = (seconds - less) / 0.9 / options.scale if options.scale < 1 else seconds
        fixed = max(less - each * options.scale / 10, 0.0) if options.scale < 1 else 0.0
        hours = (fixed + each) / 3600 * REPETITIONS / options.repetitions
        line("core-hours at full size", hours, "h", PAPER / 10, at_most=True)
        line("peak memory", peak, "GiB", 12, at_most=True)
        line("a question to the open file", questions(path, round(NODES * options.scale)), "µs", 200, at_most=True)


if __name__ == "__main__":
    main()
