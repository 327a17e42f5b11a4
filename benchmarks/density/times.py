"""Tables 3 and 4 of the race paper beside ours. The paper's times are from another machine: compare magnitudes only."""

from __future__ import annotations

import time

import numpy as np

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.data import slashdot
from benchmarks.density.graphs import ROWS, SLASHDOT_NODES, WIDTH
from benchmarks.density.tables import schema_of, table_of
from dpsketch.engines.graph import graph_schema, neighbour_sets
from dpsketch.schema.schema import Schema

SKIN_ROWS = 1000
TABLE_3 = {"PFDA": "> 3 days / -", "Bernstein": "2.3 days / 6.2 ms", "KME": "6 hr / 1.2 ms", "RACE": "15 s / 0.4 ms"}
TABLE_3 |= {"PrivBayes": "12 s / 0.5 s"}
TABLE_4 = {"Friendster, 65M nodes, 1.8B edges": "18.1 min / 164 µs", "Google Plus, 13M edges": "31 s / 238 µs"}
TABLE_4 |= {"Slashdot, 948K edges": "25 s / 157 µs"}
# Times of the authors' code on the same work as our kernels; shared notes on kernels, "Peers on the same work".
PEERS = "their C++ (RACEKernels) 159,000 rows/s and 5.7 µs a query, their Python (PrivateRACE) 3,300 rows/s"


def run(options: Options, say: Say) -> None:
    say("== times: sketch / query")
    say("race paper, table 3 (skin): " + "; ".join(f"{name} {text}" for name, text in TABLE_3.items()))
    columns = ("blue", "green", "red")
    schema, table = schema_of("skin", columns), table_of("skin").select(list(columns))
    race = dps.Race(columns, rows=SKIN_ROWS, width=1000, hash=dps.Euclidean(5.0, scaled=False))
    points = np.stack([table[name].to_numpy().astype(float) for name in columns], axis=1)[::100]
    _timed(f"  ours, skin, R={SKIN_ROWS}, W=1000", table, len(table), schema, race, points, say)
    say(f"  measured on such work (d=3, R=1000, one core): {PEERS}")
    say("race paper, table 4 (graphs): " + "; ".join(f"{name} {text}" for name, text in TABLE_4.items()))
    rows = 200 if options.quick else ROWS
    batches = list(neighbour_sets(slashdot(), SLASHDOT_NODES))
    facts = Schema.from_dict(graph_schema(SLASHDOT_NODES, False))
    sets = [ids.as_py() for batch in batches[:1] for ids in batch.column(0)[:500]]
    sizes = sum(batch.num_rows for batch in batches)
    table_race = dps.Race(rows=rows, width=WIDTH, hash=dps.MinHash())
    _timed(f"  ours, Slashdot, R={rows}, W={WIDTH}", batches, sizes, facts, table_race, sets, say)


def _timed(name: str, source: object, count: int, schema: Schema, race: dps.Race, points: object, say: Say) -> None:
    """Time the second of two passes: the first compiles or loads kernels."""
    recipe = dps.Recipe([dps.Part(race, 1.0)])
    passes, spent = [], []
    for _ in range(2):
        start, clock = time.perf_counter(), time.process_time()
        raw = dps.accumulate(source, schema, recipe)
        passes.append(time.perf_counter() - start)
        spent.append(time.process_time() - clock)
    start = time.perf_counter()
    view = dps.View(dps.release(raw, dps.Budget(1.0, 1e-6), dps.Ledger("sqlite://"), "times"))
    released = time.perf_counter() - start
    view.kernel_sum(points)
    start = time.perf_counter()
    answer = view.kernel_sum(points)
    query = (time.perf_counter() - start) / len(np.asarray(answer.value))
    say(
        f"{name}: pass {min(passes):.2f} s on all cores ({count / min(spent):,.0f} rows per CPU second), "
        f"noise {released:.2f} s, {query * 1e6:.1f} µs a query"
    )
