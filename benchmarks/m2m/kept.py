"""Stored measurements for later runs of the study: baselines do not change when our estimator does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from benchmarks.m2m.environments import ROOT
from benchmarks.m2m.goals import Key
from benchmarks.m2m.methods import Task
from benchmarks.m2m.study import FIGURES

ALSO = ("rounds", "cut")


@dataclass(frozen=True)
class Entry:
    """One method on one table with one budget. Without figures, it exceeded its time."""

    figures: dict[str, list[float]]
    runs: int
    seed: int
    seconds: float  # AIM's cap
    date: str
    commit: str


def entry(task: Task, runs: list[dict[str, float]]) -> Entry:
    figures = {key: [run[key] for run in runs] for key in (*FIGURES, *ALSO) if runs and key in runs[0]}
    return Entry(figures, task.runs, task.seed, task.limits.seconds, date.today().isoformat(), _commit())


def read(path: Path) -> dict[Key, Entry]:
    """The stored entries; none if there is no such file yet."""
    entries: dict[Key, Entry] = {}
    for each in json.loads(path.read_text()) if path.exists() else []:
        key = (each.pop("table"), each.pop("method"), float(each.pop("epsilon")), float(each.pop("delta")))
        entries[key] = Entry(**each)
    return entries


def write(path: Path, entries: Mapping[Key, Entry]) -> None:
    """Replace the file atomically."""
    rows = [
        {"table": table, "method": method, "epsilon": str(epsilon), "delta": str(delta)} | asdict(each)
        for (table, method, epsilon, delta), each in entries.items()
    ]
    new = path.with_suffix(".new")
    new.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    new.replace(path)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
