"""The truth study's own arithmetic: coverage, clusters by question, and questions whose truths are counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from benchmarks.truth import plans
from benchmarks.truth.measure import Measured, Outcome, Task
from benchmarks.truth.questions import questions
from benchmarks.truth.report import _mean, lines
from benchmarks.truth.tables import Table, rounded

import dpsketch as dps


def table(rows: int = 500) -> Table:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.integers(0, 40, rows) / 4.0, "y": rng.normal(5, 1, rows).clip(0, 10)})
    frame["label"] = rng.choice(["a", "b"], rows)
    columns = {
        "x": {"kind": "number", "lower": 0, "upper": 10},
        "y": {"kind": "number", "lower": 0, "upper": 10},
        "label": {"kind": "category", "values": ["a", "b"]},
    }
    schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})
    return Table("simulated", schema, frame, frame)


def outcome(question: str, off: float, kind: str = "1-way") -> Outcome:
    inside = (abs(off) <= 0.9945, abs(off) <= 1.96)
    return Outcome(kind, question, off, 1.0, inside, 0.0, off)


def measured(outcomes: list[Outcome]) -> Measured:
    return Measured(Task("adult", 1.0, 0.0, 0, 1), outcomes, {"pass": 1.0}, 1000)


def coverage_line(outcomes: list[Outcome]) -> str:
    return next(line for line in lines([measured(outcomes)]) if line.startswith("all") and "1-way" in line)


def test_normal_errors_pass_and_narrow_or_wide_intervals_fall_short() -> None:
    off = np.random.default_rng(1).normal(size=4000)
    for scale, verdict in ((1.0, "PASS"), (1.5, "SHORT"), (0.5, "SHORT")):
        line = coverage_line([outcome(f"q{i}", scale * each) for i, each in enumerate(off)])
        assert line.endswith(verdict), line


def test_answers_that_say_nothing_count_as_not_known() -> None:
    unknown = Outcome("1-way", "q", float("nan"), float("nan"), None, 0.0, float("nan"))
    line = coverage_line([*(outcome(f"q{i}", 0.5) for i in range(3)), unknown])
    assert " 25.0% " in line


def test_releases_of_one_question_are_one_cluster() -> None:
    apart = _mean([np.array([value]) for value in (0.0, 1.0) * 50])
    together = _mean([np.zeros(50), np.ones(50)])
    assert apart[0] == together[0] == 0.5
    assert together[1] == pytest.approx(apart[1] * np.sqrt(50))


def test_truths_are_those_of_the_rows() -> None:
    own = table()
    for question in questions(own, seed=1, each=40):
        if question.kind in ("1-way", "2-way", "3-way"):
            condition = question.sql.split(" where ", 1)[1].replace(" = ", " == ").replace("\n", " ")
            assert len(own.train.query(condition)) == question.truths[None], question.sql
        if question.kind == "median" and "where" not in question.sql:
            name = question.sql.split("(")[1].split(")")[0]
            below = (own.train[name] <= question.truths[None]).mean()
            assert below >= 0.5 > (own.train[name] < question.truths[None]).mean()


def test_declared_rows_have_two_digits() -> None:
    assert [rounded(rows) for rows in (40_000, 14_454, 2_000, 123)] == [40_000, 14_000, 2_000, 120]


def planned(planned: float, released: float, again: float = 1.0) -> plans.Compared:
    return plans.Compared("adult", (1.0, 0.0), "1-way", planned, planned / 2, planned * 2, released, again)


def test_plans_are_near_within_a_factor() -> None:
    assert [planned(*both).near for both in ((1.0, 1.4), (1.4, 1.0), (1.0, 1.6), (1.6, 1.0))] == [True] * 2 + [
        False
    ] * 2
    assert [planned(*both).in_range for both in ((1.0, 1.9), (1.0, 2.5), (1.0, 0.4))] == [True, False, False]
    assert planned(np.inf, np.inf).near
    assert not planned(1.0, np.inf).near
    assert not planned(np.inf, 1.0).near
    assert planned(0.0, 0.0).ratio == 1
    found = [planned(1.0, 1.0), planned(2.0, 1.0, 3.0), planned(4.0, 1.0), planned(1.2, 1.0)]
    head, *rest = plans.lines(found)
    assert "in 1.5" in head
    assert rest[0].split()[:3] == ["adult", "ε=1", "all"]
    assert rest[0].split()[3:] == ["50%", "75%", "75%", "2", "1", "4", "4"]
    assert {line.split()[0] for line in rest} == {"adult", "chosen"}
