"""Every statistic works from a release of any single map, with an honest error, or is refused by name of what lacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED, mixed_table
from dpsketch.errors import QueryError
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.maps.base import FeatureMap
from map_examples import EXAMPLES, SCHEMA

ROWS = 3000
FACTOR = 5  # standard errors
# In widths of a column's bounds, or shares. Tables spread values evenly inside a bin; theirs have four to eight.
TOLERANCE, TABLE_TOLERANCE = 0.02, 0.13


def people() -> pandas.DataFrame:
    frame = mixed_table(ROWS).to_pandas()
    rng = np.random.default_rng(SEED)
    frame["friends"] = [rng.choice(30, 3, replace=False).tolist() for _ in range(ROWS)]
    return frame


FRAME = people()
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)
AGE, HEIGHT = FRAME.age.clip(0, 120), FRAME.height.clip(1.0, 2.5)
KNOWN = AGE.notna()
Question = tuple[str, Callable[[dps.View], dps.Answer], float, float]  # name, question, truth, width of its values


def sql(view: dps.View) -> dps.Answer:
    return view.sql("select avg(height) as it from sketch where member").rows[0][0]


QUESTIONS: list[Question] = [
    ("mean", lambda view: view.mean("height"), HEIGHT.mean(), 1.5),
    ("mean of integers", lambda view: view.mean("age"), AGE.mean(), 120),
    ("var", lambda view: view.var("height"), HEIGHT.var(ddof=0), 1.5**2),
    ("moment", lambda view: view.moment("height", 3), (HEIGHT**3).mean(), 2.5**3),
    ("central moment", lambda view: view.moment("age", 4, central=True), ((AGE - AGE.mean()) ** 4).mean(), 120.0**4),
    ("quantile", lambda view: view.quantile("height", 0.5), HEIGHT.median(), 1.5),
    ("fraction", lambda view: view.fraction("height > 1.8"), (HEIGHT > 1.8).mean(), 1),
    ("label", lambda view: view.fraction("sex = 'Male'"), (FRAME.sex == "Male").mean(), 1),
    ("missing", lambda view: view.fraction("age is null"), AGE.isna().mean(), 1),
    ("two columns", lambda view: view.fraction("age > 60 and member"), ((AGE > 60) & FRAME.member).mean(), 1),
    ("cov", lambda view: entry(view.cov(["height", "age"])), np.cov(HEIGHT[KNOWN], AGE[KNOWN], ddof=0)[0, 1], 180),
    ("sql", sql, HEIGHT[FRAME.member].mean(), 1.5),
]


def entry(answer: dps.Answer) -> dps.Answer:
    reason = answer.reason if np.isnan(answer.value[0, 1]) else ""
    return dps.Answer(answer.value[0, 1], answer.stderr[0, 1], answer.how, possible=answer.possible, reason=reason)


def view_of(example: FeatureMap, budget: dps.Budget, method: str = "auto") -> dps.View:
    """Of a release of this map with a count if it cannot tell the number of rows, or the marginals that it is for."""
    if isinstance(example, dps.AdaptivePairs) or (isinstance(example, dps.Triples) and example.pool):
        parts = [dps.Part(example, 0.5), dps.Part(dps.Marginals(bins=example.bins), 0.5)]
    elif isinstance(example, dps.Levels):
        beside = [dps.Part(replace(example, runs=None), 0.1)] if example.runs else []
        parts = [dps.Part(example, 0.4), *beside, dps.Part(dps.AdaptiveMarginals(example.columns, example.bins), 0.5)]
    else:
        parts = [dps.Part(example, 1.0)]

    def release(*parts: dps.Part) -> dps.ReleasedSketch:
        raw = dps.accumulate(TABLE, SCHEMA, dps.Recipe(parts))
        private = () if budget.epsilon == math.inf else (dps.Ledger("sqlite://"), "people")
        return dps.release(raw, budget, *private)

    released = release(*parts)
    if "Part(Count()" in refused(lambda: ReleaseNoise(released).rows()):
        released = release(dps.Part(example, 0.9), dps.Part(dps.Count(), 0.1))
    return dps.View(released, method=method)


def refused(ask: Callable[[], object]) -> str:
    """The hint of the refusal, if any."""
    found = answered(ask)
    return found if isinstance(found, str) else ""


def answered(ask: Callable[[], Any]) -> Any:
    """The answer, or the hint of the refusal."""
    try:
        return ask()
    except QueryError as refusal:
        return refusal.hint


FIRST_OF_A_KIND = list({type(example): example for example in reversed(EXAMPLES)}.values())


@pytest.mark.parametrize(
    ("example", "epsilon"),
    [(example, math.inf) for example in EXAMPLES] + [(example, 1.0) for example in FIRST_OF_A_KIND],
    ids=repr,
)
def test_answers_are_honest_or_refused(example: FeatureMap, epsilon: float) -> None:
    view = view_of(example, dps.Budget(epsilon))
    tolerance = (
        TABLE_TOLERANCE if isinstance(example, dps.Histogram | dps.Marginals | dps.Pairs | dps.Triples) else TOLERANCE
    )
    for name, ask, truth, width in QUESTIONS:
        answer = answered(partial(ask, view))
        if isinstance(answer, str):
            assert any(part in answer for part in ("Marginals", "Histogram", "Fourier", "Count")), (name, answer)
            continue
        if not answer.known:
            low, high = answer.interval()
            assert low <= truth <= high, (name, answer, truth)
            continue
        assert np.isfinite(answer.value), name
        assert np.isfinite(answer.stderr), name
        assert answer.stderr >= 0, name
        assert abs(answer.value - truth) <= FACTOR * answer.stderr + tolerance * width, (name, answer, truth)


@pytest.mark.parametrize(
    "example",
    [dps.Fourier(size=100), dps.OneBitFourier(size=100), dps.Race(rows=50, width=100), dps.Marginals()],
    ids=repr,
)
def test_sketches_that_tell_much_answer_well(example: FeatureMap) -> None:
    """Errors that are honest because they are large would not do."""
    view = view_of(example, dps.Budget(math.inf))
    for name, ask, truth, width in QUESTIONS[:1] + QUESTIONS[6:7]:
        answer = ask(view)
        assert abs(answer.value - truth) <= 0.1 * width, (name, answer, truth)
        assert answer.stderr <= 0.25 * width, (name, answer)


def test_the_regression_of_the_paper_answers_and_other_methods_are_refused() -> None:
    view = view_of(dps.Fourier(size=100, columns=["height"]), dps.Budget(math.inf), "ridge-paper")
    answer = view.mean("height")
    assert "as in the paper" in answer.how
    assert answer.value == pytest.approx(HEIGHT.mean(), abs=0.02)
    assert "as in the paper" in view_of(dps.Histogram(), dps.Budget(1.0), "ridge-paper").mean("height").how
    with pytest.raises(QueryError, match="no method called 'best'\nHint: the methods are auto, ridge-paper"):
        dps.View(view.released, method="best")
