"""The truth study's own arithmetic: coverage, clusters by question, and questions whose truths are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.truth import plans
from benchmarks.truth.flights import ROUTE, count_lines, delay_lines
from benchmarks.truth.measure import Measured, Outcome, Task, coefficients
from benchmarks.truth.models import linear, logistic
from benchmarks.truth.questions import questions
from benchmarks.truth.report import _mean, _weaker, lines
from benchmarks.truth.smooth import QUANTILES, Truths
from benchmarks.truth.tables import HUBS, TARGETS, Table, rounded
from scipy import stats

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


def measured(outcomes: list[Outcome], budget: tuple[float, float] = (1.0, 0.0), table: str = "adult") -> Measured:
    return Measured(Task(table, *budget, 0, 1), outcomes, {"pass": 1.0}, 1000)


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


def test_few_questions_that_all_hold_are_no_evidence_of_wide_intervals() -> None:
    assert coverage_line([outcome(f"q{i}", 0.1 * i) for i in range(8)]).endswith("PASS")
    assert coverage_line([outcome(f"q{i}", 0.1) for i in range(300)]).endswith("SHORT")


def error_line(found: list[Measured], table: str = "adult") -> str:
    return [line for line in lines(found) if line.startswith(f"{table} ") and "1-way" in line][-1]


def test_errors_may_rise_by_a_twentieth_or_two_standard_errors() -> None:
    sizes = np.random.default_rng(4).uniform(1, 9, 50)

    def found(factor: float, budget: tuple[float, float]) -> Measured:
        return measured([outcome(f"q{i}", factor * size) for i, size in enumerate(sizes)], budget)

    for factor, verdict in ((0.3, "PASS"), (1.04, "PASS"), (1.2, "SHORT: rises")):
        assert error_line([found(1.0, (1.0, 0.0)), found(factor, (10.0, 0.0))]).endswith(verdict)
    noisy = [outcome(f"q{i}", size) for i, size in enumerate(np.roll(sizes, 7) * 1.06)]
    assert error_line([found(1.0, (1.0, 0.0)), measured(noisy, (10.0, 0.0))]).endswith("PASS"), "by chance"


def test_questions_without_an_answer_at_one_budget_are_not_compared() -> None:
    unknown = Outcome("1-way", "hard", float("nan"), float("nan"), None, 0.0, float("nan"))
    before = measured([outcome("easy", 1.0), outcome("other", 1.1), unknown], (0.1, 0.0))
    after = measured([outcome("easy", 0.5), outcome("other", 0.6), outcome("hard", 90.0)], (1.0, 0.0))
    assert error_line([before, after]).endswith("PASS")


def test_budgets_are_compared_where_one_is_larger() -> None:
    budgets = [(0.1, 0.0), (1.0, 0.0), (1.0, 1e-6), (10.0, 0.0)]
    assert set(_weaker(budgets)) == {(budgets[0], budgets[1]), (budgets[1], budgets[2]), (budgets[1], budgets[3])}


def test_a_table_apart_has_a_goal_and_is_left_out_of_shares() -> None:
    wide = [outcome(f"q{i}", 0.02) for i in range(120)]
    found = list(lines([measured(wide, (1.0, 1e-6), "nomao")]))
    assert not any(line.startswith("all ") for line in found)
    assert error_line([measured(wide, (1.0, 1e-6), "nomao")], "nomao").endswith("goal 0.01 at ε=1, δ=1e-06 SHORT")


def test_days_count_their_records() -> None:
    rng = np.random.default_rng(5)
    moments = pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.uniform(0, 20, 400), "D")
    columns = {"when": {"kind": "datetime", "lower": "2020-03-01", "upper": "2020-04-01"}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 400}, "columns": columns})
    frame = pd.DataFrame({"when": moments})
    asked = questions(Table("flight_days", schema, frame, frame), seed=1, each=40)
    assert {question.kind for question in asked} == {"single day"}
    for question in asked:
        condition = question.sql.split(" where ", 1)[1]
        assert len(frame.query(condition)) == question.truths[None] > 0


def test_models_of_the_rows_solve_the_penalised_problem() -> None:
    rng = np.random.default_rng(6)
    features = rng.normal(size=(300, 3))
    features = (features - features.mean(0)) / features.std(0)
    target = features @ [1.0, -2.0, 0.0] + rng.normal(size=300)
    found, penalty = linear(features, target, 0.2), 0.2
    slope = features.T @ (features @ found - (target - target.mean())) / 300
    assert slope + penalty * found == pytest.approx(np.zeros(3), abs=1e-9)
    labels = np.where(target > 0, "yes", "no")
    (odds,) = logistic(features, labels, ["yes", "no"], 0.2)
    assert odds[0] < 0 < odds[1], "log odds of the second class, as the product lists them"


def test_coefficients_are_asked_with_their_truths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "simulated", "y")
    own, budget = table(2000), dps.Budget(20.0)
    raw = dps.accumulate(own.arrow, own.schema, dps.Recipe.general(own.schema, rows=2000, budget=budget))
    view = dps.View(dps.release(raw, budget, ledger=dps.Ledger(tmp_path / "ledger.db"), dataset="own"))
    found = {each.question: each for each in coefficients(own, view)}
    assert list(found)[:2] == ["y by x, line 0", "y by label=a, line 0"]
    (x, y), one = own.train[["x", "y"]].to_numpy().T, found["y by x, line 0"]
    assert one.kind == "linear model"
    assert one.truth == pytest.approx(np.cov(x, y)[0, 1] / x.var(), abs=2e-3)
    assert one.off == pytest.approx((one.value - one.truth) * x.std() / y.std())
    assert one.inside is not None


def test_goals_of_the_flights() -> None:
    found = np.array([[[4950.0, 20.0]], [[4850.0, 20.0]]])
    assert next(count_lines({ROUTE: 4992}, found)).endswith("92.0  goal 100 PASS")
    assert next(count_lines({ROUTE: 5100}, found)).endswith("SHORT")
    truths, errors = np.zeros(len(HUBS)), np.full((2, len(HUBS), 2), 0.1)
    mean, worst = delay_lines(truths, errors)
    assert mean.endswith("PASS")
    assert "none PASS: 0 of" in worst
    errors[:, 3] = [1.5, 0.2]
    mean, worst = delay_lines(truths, errors)
    assert mean.endswith("PASS")
    assert f"none SHORT: 1 of {len(HUBS)}: {HUBS[3]} 1.50 ± 0.20" in worst
    errors[:, 3, 1] = 0.9
    assert "none PASS" in list(delay_lines(truths, errors))[1], "within two standard errors"


def test_truths_of_batches_are_those_of_all_rows() -> None:
    law, rng = stats.norm(50, 10), np.random.default_rng(1)
    values = law.rvs(4000, random_state=rng)
    truths = Truths(law, len(values), np.array([30.0, 50.0, 71.0]))
    for batch in np.split(values, 8):
        truths.add(batch)
    assert truths.at_most.tolist() == [(values <= at).sum() for at in truths.thresholds]
    found = [truths.quantile(index) for index in range(len(QUANTILES))]
    assert found == np.quantile(values, QUANTILES, method="inverted_cdf").tolist()


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
