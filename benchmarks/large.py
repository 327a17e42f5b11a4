"""Time and memory of a table of 10^8 counters from records to an answer, and one of 2·10^8 from records
to a release.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

import dpsketch as dps
from benchmarks.timing import line

RECORDS, COLUMNS, ROWS = 1_000_000, 5, 3
MOST = 2.5  # GiB
T = TypeVar("T")


def make(width: int, path: str) -> None:
    """Accumulate and release in this process, and save unless `path` is empty. A million records touch every page."""
    rng = np.random.default_rng(5)
    table = pa.table({f"c{j}": rng.random(RECORDS, np.float32) for j in range(COLUMNS)})
    columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in table.column_names}
    schema = dps.Schema.from_dict({"privacy": {"rows": RECORDS}, "columns": columns})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(rows=ROWS, width=width), 0.9)])
    raw = _timed("accumulate", lambda: dps.accumulate(table, schema, recipe))
    assert raw.parts[1].sums.dtype == np.int32
    released = _timed("release", lambda: dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "large"))
    if path:
        _timed("save", lambda: released.save(path))
    _peak()


def ask(path: str) -> None:
    """Open a file and query it."""
    view = _timed("open", lambda: dps.open(path))
    _timed("count", view.count)
    _timed("read every counter", lambda: int(view.released.parts[1].sums.sum(dtype=np.int64)))
    _peak()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.sketch"
        for width, target in ((1 << 25, str(path)), (1 << 26, "")):
            name = f"table of {ROWS * width:,} counters"
            line(
                f"{name}: peak to {'file' if target else 'release'}",
                _child("make", str(width), target),
                "GiB",
                MOST,
                True,
            )
        line(f"table of {ROWS << 25:,} counters: peak of questions", _child("ask", str(path)), "GiB", MOST, True)


def _child(*arguments: str) -> float:
    """Run a step in a separate process, print its times and return its peak memory in GiB."""
    command = [sys.executable, "-m", "benchmarks.large", *arguments]
    *times, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
    print("large table: " + ", ".join(times))
    return float(peak)


def _timed(name: str, work: Callable[[], T]) -> T:
    start = time.perf_counter()
    result = work()
    print(f"{name} {time.perf_counter() - start:.2f} s")
    return result


def _peak() -> None:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(int(sys.argv[2]), sys.argv[3])
    else:
        ask(sys.argv[2])
