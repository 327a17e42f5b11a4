"""The fuzzers find nothing in a few cases, and find a bug that is planted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.fuzz import __main__ as driver

from dpsketch.encoding import layouts
from dpsketch.engines import csv
from dpsketch.engines.sources import files as sources
from dpsketch.schema import schema

CASES, SEED = 60, 20260101


def first_finding(name: str, cases: int = CASES) -> int | None:
    return driver.finding(driver.fuzzer(name), name, SEED, iter(range(cases)))


@pytest.mark.parametrize("name", driver.FUZZERS[:3])  # the others: test_fuzz_files.py
def test_a_few_cases_find_nothing(name: str) -> None:
    assert first_finding(name, CASES // 2) is None


def views_without_sizes(values: Any) -> Any:
    """The lists of a view end where the next begins, as if it had no gaps."""
    found = STORED(values)
    if found is None or "view" not in str(values.type):
        return found
    starts, lengths, items = found
    return starts, np.diff(starts, append=len(items)) if len(starts) else lengths, items


STORED = layouts._stored_lists
BUGS = {
    "arrow_layouts": (layouts, "_stored_lists", views_without_sizes),
    "csv_bytes": (csv, "_line_breaks", csv._quoted_breaks(ord(","))),
    "toml_schema": (
        schema,
        "whole_of",
        lambda facts, path, key, *limits: int(facts[key]),
    ),  # without a check of its type
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[name])
    assert first_finding(name, 20 * CASES) is not None


def test_a_hint_that_quotes_the_first_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_FIRST_LINE", None)
    assert first_finding("csv_bytes") is not None


def test_a_finding_ends_the_run_and_can_be_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_one(rng: np.random.Generator, folder: Path) -> None:
        assert rng.random() < 0.9, "unlucky"

    monkeypatch.setattr(driver, "fuzzer", lambda name: SimpleNamespace(run_one=run_one))
    monkeypatch.setattr("sys.argv", ["fuzz", "--seconds", "60", "--only", "csv_bytes"])
    assert driver.main() == 1
    said = capsys.readouterr()
    assert "unlucky" in said.err
    again = said.out.split("FINDING: ")[1].split()
    monkeypatch.setattr("sys.argv", ["fuzz", *again[again.index("--only") : again.index("--case") + 2]])
    assert driver.main() == 1
    assert "csv_bytes      1 cases, FINDING" in capsys.readouterr().out
