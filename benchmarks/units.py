"""Five million units of two rows, of which one counts: time, and memory per kept row in a separate process."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import dpsketch as dps
from benchmarks.timing import line

UNITS, COLUMNS, BATCH = 5_000_000, 4, 1 << 16


def batches() -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(0)
    for start in range(0, 2 * UNITS, BATCH):
        ids = pa.array(np.arange(start, min(start + BATCH, 2 * UNITS)) * 7919 % UNITS)
        cells = rng.integers(0, 10, (COLUMNS, len(ids)))
        yield pa.record_batch({"id": ids, **{f"x{index}": pa.array(row) for index, row in enumerate(cells)}})


def measure() -> None:
    """Print seconds and bytes."""
    privacy = {"rows": 2 * UNITS, "unit": "id", "unit_kind": "integer", "max_rows_per_unit": 1}
    columns = {f"x{index}": {"kind": "integer", "lower": 0, "upper": 9} for index in range(COLUMNS)}
    schema = dps.Schema.from_dict({"privacy": privacy, "columns": columns})
    recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    dps.accumulate(next(batches()), schema, recipe)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    dps.accumulate(batches(), schema, recipe)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(time.perf_counter() - start, 1024 * (after - before) / UNITS)


def main() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.units"], capture_output=True, text=True, check=True)
    seconds, memory = (float(word) for word in done.stdout.split())
    line("units: 5 million, two rows each", seconds, "s", 21, at_most=True)
    line("units: memory for each kept row", memory, "bytes", 103, at_most=True)


if __name__ == "__main__":
    measure()
