"""Shared by all tests: a fixed seed that is printed and can be overridden, small schemas, tables and streams."""

# ruff: noqa: E402

from __future__ import annotations

import os

# Before NumPy is loaded. Two workers on two cores with two BLAS threads each wait for one another most of the time.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings

import dpsketch as dps
from postgres_server import Server, running_server

SEED = int(os.environ.get("DPSKETCH_TEST_SEED", "20260101"))
NOISE = int(os.environ.get("DPSKETCH_TEST_NOISE", "0"))  # any other number: the same data with other noise
DATA = Path(os.environ.get("DPSKETCH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

NO_DATA = "the real datasets are missing"

settings.register_profile("repo", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("repo")


def pytest_report_header() -> str:
    return f"DPSKETCH_TEST_SEED={SEED} DPSKETCH_TEST_NOISE={NOISE}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missed = sum(NO_DATA in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
    if missed:
        line = (
            f"NOT RUN: {missed} tests, for {NO_DATA}. Set DPSKETCH_DATA to their folder; CI=true makes this an error."
        )
        terminalreporter.write_line(line, red=True, bold=True)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


class TestStream:
    """A reproducible word stream for tests; the library itself accepts no seed."""

    __test__ = False

    def __init__(self, seed: int = SEED) -> None:
        self._rng, self._left = np.random.default_rng(seed), np.empty(0, np.uint32)

    def __enter__(self) -> TestStream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def words(self, count: int) -> np.ndarray:
        """Copies from blocks: NumPy takes its time for every call."""
        if count > len(self._left):
            more = self._rng.integers(0, 2**32, max(1 << 12, count), dtype=np.uint32)
            self._left = np.concatenate([self._left, more])
        taken, self._left = self._left[:count].copy(), self._left[count:]
        return taken


class Script:
    """A stream that plays given 32-bit words, then fails."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> np.ndarray:
        taken, self._words = self._words[:count], self._words[count:]
        assert len(taken) == count, "the stream is exhausted"
        return np.array(taken, np.uint32)

    @property
    def left(self) -> int:
        return len(self._words)


@pytest.fixture
def stream() -> TestStream:
    return TestStream()


@contextmanager
def seeded_noise(first: int = 0) -> Iterator[None]:
    """Noise and samples of releases that are the same in every run: for tests alone, the library has no such door."""
    seeds = count(first + 10**12 * NOISE)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sketch.release", "engines.engine", "auditing"):
            patch.setattr(f"dpsketch.{module}.Keystream", lambda: TestStream(next(seeds)))
        yield


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """What one release says is chance: a limit that holds in 999 of 1000 runs fails once a day in so many tests."""
    with seeded_noise():
        yield


@pytest.fixture(autouse=True, scope="session")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of fits, elsewhere than in the home of whoever runs the tests."""
    folder = tmp_path_factory.mktemp("fits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpsketch.learn.estimators.joint.fit_cache.user_folder", lambda _name: folder)
        yield folder


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Any:
    """Releases that several tests share have noise of their own, whichever test comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with seeded_noise(10**6 * (1 + crc32(f"{fixturedef.baseid} {fixturedef.argname}".encode()) % 10**5)):
        return (yield)


MIXED = {
    "privacy": {"rows": 1000, "unit": "row"},
    "columns": {
        "age": {"kind": "integer", "lower": 0, "upper": 120},
        "height": {"kind": "number", "lower": 1.0, "upper": 2.5},
        "income": {"kind": "number", "lower": 0, "upper": 500000, "transform": "asinh"},
        "sex": {"kind": "category", "values": ["Female", "Male"]},
        "member": {"kind": "boolean"},
        "joined": {"kind": "datetime", "lower": "2020-01-01", "upper": "2025-01-01"},
    },
}


@pytest.fixture
def schema() -> dps.Schema:
    return dps.Schema.from_dict(MIXED)


def mixed_table(rows: int, seed: int = SEED) -> pa.Table:
    """Rows that fit MIXED, with missing and outlying cells."""
    rng = np.random.default_rng(seed)
    age = rng.integers(-5, 130, rows).astype(float)
    age[rng.random(rows) < 0.1] = np.nan
    return pa.table(
        {
            "age": age,
            "height": rng.normal(1.7, 0.2, rows),
            "income": rng.exponential(30_000, rows),
            "sex": rng.choice(["Female", "Male", "unknown"], rows),
            "member": rng.random(rows) < 0.3,
            "joined": np.datetime64("2019-06-01") + rng.integers(0, 2400, rows).astype("timedelta64[D]"),
        }
    )


@pytest.fixture
def table() -> pa.Table:
    return mixed_table(1000)


@pytest.fixture
def recipe() -> dps.Recipe:
    return dps.Recipe(
        [
            dps.Part(dps.Count(), 0.1),
            dps.Part(dps.Histogram(bins=8), 0.3),
            dps.Part(dps.Histogram(ways=2, columns=["sex", "member"]), 0.1),
            dps.Part(dps.Fourier(size=10, seed=3), 0.5),
        ]
    )


@pytest.fixture
def dataset_path() -> Path:
    """The real datasets, which are not part of the repository. Tests without them are counted in the last line of the
    run; under CI their absence is an error.
    """
    if not DATA.is_dir():
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{NO_DATA} at {DATA}: set DPSKETCH_DATA")
        pytest.skip(NO_DATA)
    return DATA


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real server, one a worker."""
    with running_server() as server:
        yield server
