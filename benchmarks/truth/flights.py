"""`python -m benchmarks.truth.flights`: what a journalist asks of three million flights, at ε = 1.

Flights on time, the average delay at each of 50 declared airports, a single route and single days, each beside its
truth on the rows released, and PASS or SHORT against its goal: the mean of the errors of several releases.
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
from dpsketch.numerics.arrays import Floats

COLUMNS = {
    "date": {"kind": "datetime", "lower": "2001-01-01", "upper": "2001-07-01"},
    "delay_min": {"kind": "integer", "lower": -60, "upper": 600},
    "distance_miles": {"kind": "number", "lower": 0, "upper": 5000},
    "origin": {"kind": "category", "values": HUBS},
    "destination": {"kind": "category", "values": HUBS},
}
ROUTE = "origin = 'ORD' and destination = 'LGA'"
ROUTE_GOALS = {ROUTE: 100.0}  # mean errors of counts
MEAN_DELAY, WORST_DELAY = 0.5, 1.0  # minutes
RELEASES = 5
DAY = pd.Timedelta(days=1)
DAYS = pd.date_range("2001-01-10", "2001-06-20", freq="23D")


def counts(frame: Any) -> Iterator[tuple[str, int]]:
    """Conditions, and the number of flights that meet each."""
    delay = frame.delay_min.clip(-60, 600)
    yield "delay_min = 0", int((delay == 0).sum())
    yield "delay_min <= 0", int((delay <= 0).sum())
    route = (frame.origin == "ORD") & (frame.destination == "LGA")
    yield ROUTE, int(route.sum())
    for day in DAYS:
        condition = f"date >= '{day.date()}' and date < '{(day + DAY).date()}'"
        yield condition, int(((frame.date >= day) & (frame.date < day + DAY)).sum())


def views(frame: Any, releases: int) -> Iterator[dps.View]:
    schema = dps.Schema.from_dict({"privacy": {"rows": 3_000_000}, "columns": COLUMNS})
    budget = dps.Budget(1.0)
    recipe = dps.Recipe.general(schema, rows=3_000_000, budget=budget)
    raw = dps.accumulate(pa.Table.from_pandas(frame, preserve_index=False), schema, recipe)
    for _ in range(releases):
        with tempfile.TemporaryDirectory() as folder:
            ledger = dps.Ledger(Path(folder) / "ledger.db")
            yield dps.View(dps.release(raw, budget, ledger=ledger, dataset="flights"))


def lines(releases: int = RELEASES) -> Iterator[str]:
    frame = pd.read_parquet(DATA / "flights_3m.parquet")[list(COLUMNS)]
    asked = dict(counts(frame))
    delays = frame.delay_min.clip(-60, 600).groupby(frame.origin).mean()[HUBS].to_numpy()
    found, averages = [], []
    for view in views(frame, releases):
        found.append([(answer.value, answer.stderr) for answer in map(view.count, asked)])
        table = view.sql("select origin, avg(delay_min) from sketch group by origin")
        answers = {row[0]: row[1] for row in table.rows}
        averages.append([(answers[label].value, answers[label].stderr) for label in HUBS])
    yield f"\nThree million flights at ε = 1, {releases} releases: mean answer ± standard error, truth, mean error"
    yield from count_lines(asked, np.array(found))
    yield from delay_lines(delays, np.array(averages))


def count_lines(asked: dict[str, int], found: Floats) -> Iterator[str]:
    """`found` has the value and the standard error of each condition's answer in each release."""
    truths = np.array(list(asked.values()), float)
    errors = np.abs(found[:, :, 0] - truths)
    for place, (condition, truth) in enumerate(asked.items()):
        value, stderr = found[:, place].mean(axis=0)
        goal = ROUTE_GOALS.get(condition)
        met = "" if goal is None else f"  goal {goal:g} {_met(errors[:, place].mean() <= goal)}"
        yield f"{condition:52} {value:11,.0f} ± {stderr:5.0f} {truth:9,} {errors[:, place].mean():7.1f}{met}"
    beyond = errors > 3 * found[:, :, 1]
    yield f"counts beyond 3 standard errors: {beyond.sum()} of {beyond.size}"


def delay_lines(truths: Floats, found: Floats) -> Iterator[str]:
    """As counts, of each airport; what is not known counts as an error of none."""
    errors, stderr = np.abs(found[:, :, 0] - truths), found[:, :, 1]
    mean = float(np.nanmean(errors))
    each = np.nanmean(errors, axis=0)
    missed = [
        f"{label} {off:.2f} ± {unsure:.2f}"
        for label, off, unsure in zip(HUBS, each, np.nanmean(stderr, axis=0), strict=True)
        if off > WORST_DELAY and off > 2 * unsure
    ]
    yield f"avg(delay_min) by origin: mean error {mean:.2f} minutes, goal {MEAN_DELAY:g} {_met(mean <= MEAN_DELAY)}"
    yield (
        f"airports off by more than {WORST_DELAY:g} minute and two standard errors, goal none {_met(not missed)}: "
        f"{len(missed)} of {len(HUBS)}{': ' if missed else ''}{', '.join(missed)}; worst {each.max():.2f}"
    )


def _met(met: bool) -> str:
    return "PASS" if met else "SHORT"


def main() -> None:
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
