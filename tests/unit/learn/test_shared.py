"""One View, many threads: the same answers as one thread gets, and nothing is made twice."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.learn import choice as sources
from dpsketch.learn.estimators.joint import one_column
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.population import grid_estimator
from dpsketch.numerics.threads import one_thread

THREADS = 12  # two for each question
COLUMNS = ("x", "y", "z")
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 2000},
        "columns": {name: {"kind": "integer", "lower": 0, "upper": 9} for name in COLUMNS},
    }
)
PARTS = {
    "pairs": (dps.Marginals(bins=4), dps.Pairs(bins=4)),
    "fourier": (dps.Fourier(size=20),),
    "grid": (dps.Grid(width=1024, levels=(1, 2)),),
}


def released(kind: str) -> dps.ReleasedSketch:
    random = np.random.default_rng(SEED)
    table = pa.table({name: random.integers(0, 10, 2000) for name in COLUMNS})
    maps = (dps.Count(), *PARTS[kind])
    recipe = dps.Recipe([dps.Part(each, 1 / len(maps)) for each in maps])
    raw = dps.accumulate(table, SCHEMA, recipe)
    return dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), kind)


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Threads give way to each other as often as Python allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(ask: Callable[[int], Any]) -> list[Any]:
    """What each of many threads gets that start at once; an exception in one of them is raised here."""
    start, results = Barrier(THREADS), [None] * THREADS

    def run(number: int) -> None:
        try:
            start.wait()
            results[number] = ask(number)
        except BaseException as error:
            results[number] = error

    threads = [Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


QUESTIONS: tuple[Callable[[dps.View], Any], ...] = (
    lambda view: view.mean("x").value,
    lambda view: view.fraction("x < 5 and y < 5").stderr,
    lambda view: view.fraction("x < y").stderr,
    lambda view: view.quantile("z", 0.5).value,
    lambda view: view.sample(5).to_pylist(),
    lambda view: view.sql("select z, avg(x) as m from sketch group by z").to_dicts()[0]["m_stderr"],
)


@pytest.mark.parametrize("kind", PARTS)
def test_many_threads_get_what_one_thread_gets(kind: str) -> None:
    sketch = released(kind)
    expected = [question(dps.View(sketch)) for question in QUESTIONS]
    shared = dps.View(sketch)
    for number, answer in enumerate(together(lambda number: QUESTIONS[number % len(QUESTIONS)](shared))):
        place = number % len(QUESTIONS)
        assert answer == (expected[place] if isinstance(expected[place], list) else pytest.approx(expected[place]))


def test_the_memo_of_an_estimator_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_column, "MOST_KNOWN", 2)
    view = dps.View(released("pairs"))
    view.fraction("x < 5 and y < 5")
    joint = view._sources.products
    assert joint is not None

    def ask(number: int) -> list[float]:
        return [float(view.fraction(f"x < {1 + (number + i) % 9} and y < {1 + i % 9}").value) for i in range(20)]

    expected = [ask(number) for number in range(THREADS)]
    assert together(ask) == expected
    assert len(joint._single._known) <= 2


def test_estimators_are_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Any] = []
    makers = dict.fromkeys(("fit_column", "cached_fit", "MomentEstimator"), sources) | {"GridEstimator": grid_estimator}
    for name, module in makers.items():
        original = getattr(module, name)

        def counted(*args: Any, name: str = name, original: Any = original) -> Any:
            made.append(name)
            return original(*args)

        monkeypatch.setattr(module, name, counted)
    for kind in PARTS:
        view = dps.View(released(kind), tmp_path / "a.sketch")
        together(lambda number, view=view: (view.mean("x"), view.fraction("x < 5 and y < 5")))  # type: ignore[misc]
    assert sorted(made) == ["GridEstimator", "MomentEstimator", "cached_fit", "fit_column"]


@pytest.mark.parametrize("kind", ["fourier", "grid"])
def test_a_view_that_was_used_can_still_be_sent_to_another_process(kind: str) -> None:
    view = dps.View(released(kind))
    answer = view.fraction("x < 5 and y < 5")
    again = pickle.loads(pickle.dumps(view)).fraction("x < 5 and y < 5")
    assert (again.value, again.stderr) == (pytest.approx(answer.value), pytest.approx(answer.stderr))


def test_coordinates_are_reserved_once() -> None:
    noise = ReleaseNoise(released("fourier"))
    found = together(lambda number: [noise.reserve(("an error", 2)) for _ in range(500)])
    assert len({first for each in found for first in each}) == 500 * THREADS


def test_fits_that_overlap_leave_the_limit_of_linear_algebra_as_it_was() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2):
        before = threads()
        one, two = one_thread(), one_thread()
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        assert set(threads()) == {1}
        two.__exit__(None, None, None)
        assert threads() == before
    assert set(before) == {2}
