"""`python -m benchmarks.truth.flights`: what a journalist asks of three million flights, at ε = 1.

Flights on time, the average delay at each of 50 declared airports, a single route and single days, each beside its
truth on the rows released.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import dpsketch as dps
from benchmarks.data import DATA
from benchmarks.truth.tables import HUBS

COLUMNS = {
    "date": {"kind": "datetime", "lower": "2001-01-01", "upper": "2001-07-01"},
    "delay_min": {"kind": "integer", "lower": -60, "upper": 600},
    "distance_miles": {"kind": "number", "lower": 0, "upper": 5000},
    "origin": {"kind": "category", "values": HUBS},
    "destination": {"kind": "category", "values": HUBS},
}
DAY = pd.Timedelta(days=1)
DAYS = pd.date_range("2001-01-10", "2001-06-20", freq="23D")


def counts(frame: Any) -> Iterator[tuple[str, int]]:
    """Conditions, and the number of flights that meet each."""
    delay = frame.delay_min.clip(-60, 600)
    yield "delay_min = 0", int((delay == 0).sum())
    yield "delay_min <= 0", int((delay <= 0).sum())
    route = (frame.origin == "ORD") & (frame.destination == "LGA")
    yield "origin = 'ORD' and destination = 'LGA'", int(route.sum())
    for day in DAYS:
        condition = f"date >= '{day.date()}' and date < '{(day + DAY).date()}'"
        yield condition, int(((frame.date >= day) & (frame.date < day + DAY)).sum())


def main() -> None:
    frame = pd.read_parquet(DATA / "flights_3m.parquet")[list(COLUMNS)]
    schema = dps.Schema.from_dict({"privacy": {"rows": 3_000_000}, "columns": COLUMNS})
    budget = dps.Budget(1.0)
    recipe = dps.Recipe.general(schema, rows=3_000_000, budget=budget)
    raw = dps.accumulate(pa.Table.from_pandas(frame, preserve_index=False), schema, recipe)
    with tempfile.TemporaryDirectory() as folder:
        ledger = dps.Ledger(Path(folder) / "ledger.db")
        view = dps.View(dps.release(raw, budget, ledger=ledger, dataset="flights"))
    for condition, truth in counts(frame):
        answer = view.count(condition)
        print(f"{condition:52} {answer!s:>20}  truth {truth:>9,}  {(answer.value - truth) / answer.stderr:+.1f} stderr")
    truths = frame.delay_min.clip(-60, 600).groupby(frame.origin).mean()
    rows = [row for row in view.sql("select origin, avg(delay_min) from sketch group by origin").rows if row[0] in HUBS]
    off = np.array([abs(answer.value - truths[label]) for label, answer in rows])
    beyond = sum(error > 2 * answer.stderr for error, (_, answer) in zip(off, rows, strict=True))
    print(
        f"avg(delay_min) by origin: mean error {off.mean():.2f} minutes (goal 0.5), worst {off.max():.2f} (goal 1 or 2"
    )
    print(f"stderr), {beyond} of {len(rows)} airports beyond 2 stderr")


if __name__ == "__main__":
    main()
