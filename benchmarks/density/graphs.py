"""Jaccard densities of neighbour sets: Σ|estimate − exact| / Σ exact over 500 random nodes with neighbours.

One neighbour list is protected, not a node.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.data import slashdot
from benchmarks.density.goals import at_most, budget_text
from benchmarks.density.runs import DELTA
from benchmarks.jaccard import adjacency, exact_sums
from benchmarks.power_law import EDGES, NODES, write_graph
from dpsketch.engines.graph import graph_schema, neighbour_sets
from dpsketch.schema.schema import Schema

SLASHDOT_NODES = 82_168
ROWS, WIDTH = 2000, 100_000
PURE_ROWS = 50
QUERIES = 500
GOAL = 0.085  # at ε=1, δ


def run(options: Options, say: Say) -> None:
    say("== graphs: Σ|estimate − exact| / Σ exact of Jaccard sums, mean (worst)")
    rows = 200 if options.quick else ROWS
    cases = ((1.0, DELTA, rows), (0.1, DELTA, rows), (1.0, 0.0, PURE_ROWS))
    edges = pq.read_table(slashdot())
    apart = edges.filter(pc.not_equal(edges["src"], edges["dst"]))
    _graph("Slashdot", apart, SLASHDOT_NODES, cases[:1] if options.quick else cases, options, say)
    if not options.quick:
        say("with self-loops, which are 78,303 of the file's edges:")
        _graph("Slashdot as it is", edges, SLASHDOT_NODES, cases[:1], options, say)


def run_large(options: Options, say: Say) -> None:
    """Run the large graph. It takes minutes and gigabytes, so it is not run by default.

    `python -m benchmarks.power_law FILE` writes the same graph.
    """
    nodes, edges = (50_000, 1_000_000) if options.quick else (NODES, EDGES)
    say(f"== a large graph: seeded power law, {nodes:,} nodes, {edges:,} edges")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.parquet"
        write_graph(path, nodes, edges)
        _graph("power law", path, nodes, ((1.0, DELTA, 200),), options, say)


def _graph(
    name: str,
    edges: Path | pa.Table,
    nodes: int,
    cases: tuple[tuple[float, float, int], ...],
    options: Options,
    say: Say,
) -> None:
    schema = Schema.from_dict(graph_schema(nodes, False))
    matrix = adjacency(edges, nodes)
    active = np.flatnonzero(np.diff(matrix.indptr))
    queries = [np.random.default_rng([options.seed, run]).choice(active, QUERIES, False) for run in range(options.runs)]
    exact = [exact_sums(matrix, each) for each in queries]
    sketched = None
    for epsilon, delta, rows in cases:
        recipe = dps.Recipe([dps.Part(dps.Race(rows=rows, width=WIDTH, hash=dps.MinHash()), 1.0)])
        if sketched is None or sketched[0] != rows:
            sketched = None  # one large table at a time
            start, clock = time.process_time(), time.perf_counter()
            raw = dps.accumulate(neighbour_sets(edges, nodes), schema, recipe)
            sketched = rows, raw
            spent, passed = time.process_time() - start, time.perf_counter() - clock
            say(f"{name}: {len(active)} neighbour sets, R={rows}, W={WIDTH}: {passed:.1f} s, {spent:.1f} CPU s")
        errors, seconds = [], []
        for run, (asked, truth) in enumerate(zip(queries, exact, strict=True)):
            view = dps.View(dps.release(sketched[1], dps.Budget(epsilon, delta), dps.Ledger("sqlite://"), f"g{run}"))
            sets = [matrix.indices[matrix.indptr[q] : matrix.indptr[q + 1]] for q in asked]
            view.kernel_sum([sets[0]])
            start = time.process_time()
            estimate = np.asarray(view.kernel_sum(sets).value)
            seconds.append((time.process_time() - start) / len(sets))
            errors.append(float(np.abs(estimate - truth).sum() / truth.sum()))
            del view
        goal = GOAL if (name, epsilon, delta, rows) == ("Slashdot", 1.0, DELTA, ROWS) else None
        say(at_most(f"  ours R={rows} {budget_text(epsilon, delta)}", errors, goal))
        say(f"    {np.mean(seconds) * 1e6:.0f} µs a query")
