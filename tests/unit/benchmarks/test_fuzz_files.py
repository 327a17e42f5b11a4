"""The fuzzers of files: some cases of each pass, and bugs that were planted are found."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from benchmarks.fuzz import cache_files, files, model_files, sketch_files

from conftest import SEED
from dpsketch.learn import saved
from dpsketch.learn.estimators.joint import fit_cache as cache
from dpsketch.sketch import container


def cases(fuzzer: ModuleType, count: int, folder: Path, first: int = 0) -> None:
    for case in range(first, first + count):
        fuzzer.run_one(np.random.default_rng([SEED, case]), folder)


@pytest.mark.parametrize(("fuzzer", "count"), [(sketch_files, 12), (model_files, 40), (cache_files, 8)])
def test_some_cases_pass(fuzzer: ModuleType, count: int, tmp_path: Path) -> None:
    cases(fuzzer, count, tmp_path)


ENOUGH = 5000  # about one case in 200 finds the rarest of the planted bugs: the first that does ends the test
FIRST = {"a digest of nothing": 250}  # where a search that began at 0 ended soon after, at 259
PLANTED: dict[str, tuple[ModuleType, Any, str, Any, type[Exception]]] = {
    "errors of headers escape": (sketch_files, container, "INVALID", (ZeroDivisionError,), Exception),
    "errors of facts escape": (model_files, container, "INVALID", (ZeroDivisionError,), Exception),
    "a digest of nothing": (cache_files, cache, "_sealed", lambda *_: bytes(32), ValueError),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzzer, module, name, value, error = PLANTED[bug]
    monkeypatch.setattr(module, name, value)
    with pytest.raises(error):
        cases(fuzzer, ENOUGH, tmp_path, FIRST.get(bug, 0))


def test_counters_of_one_byte_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsketch.learn.models.density import hashed

    monkeypatch.setattr(hashed, "counters", saved.integers)
    with pytest.raises(TypeError, match="No matching definition"):
        cases(model_files, 600, tmp_path)


def test_disproportionate_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1000.0])
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    with pytest.raises(files.Disproportionate, match=r"1000.0 s of a processor"), files.limits(1000):
        pass


def test_messages_that_steer_a_terminal_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsketch.errors import FileError

    def refuse() -> None:
        error = FileError("a")
        error.fact = "a\x1b[2J"
        raise error

    with pytest.raises(ValueError, match="a terminal obeys"):
        files.attempt(refuse)
