"""Definitions of the m2m study: what is true of a table, and what AIM spends."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.m2m import goals, kept
from benchmarks.m2m.aim import Spending, closure, concentrated, exponential, weights
from benchmarks.m2m.answers import Points
from benchmarks.m2m.cells import cut
from benchmarks.m2m.environments import OverTime, run_limited
from benchmarks.m2m.methods import Task
from benchmarks.m2m.models import logistic
from benchmarks.m2m.paper import Fourier, Hist, Race, ridge_weights
from benchmarks.m2m.questions import Condition, draw_questions, shares, where
from benchmarks.m2m.study import Study
from benchmarks.m2m.tables import Table, build

import dpsketch as dps
from dpsketch.learn.sql.expressions import parse_condition

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 1000},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 10},
            "k": {"kind": "integer", "lower": 0, "upper": 4},
            "c": {"kind": "category", "values": ["a", "b's"]},
        },
    }
)


def table(rows: int = 1000) -> Table:
    random = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "x": random.uniform(-1, 11, rows),
            "k": random.integers(0, 5, rows),
            "c": random.choice(np.array(["a", "b's", None], object), rows),
        }
    )
    return build("made up", SCHEMA, frame, np.zeros(rows, bool))


def test_a_conjunction_holds_where_every_condition_does() -> None:
    rows = np.array([[0.1, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 1.0, 1.0], [0.9, 1.0, np.nan]])
    question = (Condition(0, "<=", 0.5, ""), Condition(1, ">=", 0.5, ""), Condition(2, "=", 0.0, ""))
    assert shares(rows, [question, question[:2], question[:1]]).tolist() == [0.25, 0.5, 0.75]
    assert shares(rows, [question[:2]], np.array([1.0, -2.0, 4.0, 8.0])).tolist() == [2.0]


def test_tables_are_on_the_scale_of_the_schema() -> None:
    found = table()
    assert found.rows[:, 0].min() == 0
    assert found.rows[:, 0].max() == 1
    assert set(found.rows[:, 1]) == {0, 0.25, 0.5, 0.75, 1}
    assert np.isnan(found.rows[:, 2]).any()


@pytest.mark.parametrize("at_quantiles", [True, False])
def test_questions_are_about_three_columns_and_can_be_written_down(at_quantiles: bool) -> None:
    for question in draw_questions(table(), np.random.default_rng(1), at_quantiles):
        assert len({condition.column for condition in question}) == 3
        parse_condition(where(question), table().schema)


def test_the_table_itself_has_no_error() -> None:
    found = table()
    figures = Study(found, (1,)).figures(Points(found, found.rows, np.full(1000, 1e-3), 0.0))
    assert max(figures[key] for key in ("means", "cov", "cdf", "3-way", "3-way-u")) < 1e-9


def test_cells_keep_values_up_to_their_bins() -> None:
    found = table()
    cells = cut(found)
    assert cells.sizes == (34, 5, 3)
    back = cells.values(cells.cells(found.rows), np.random.default_rng(1))
    assert np.abs(back[:, 0] - found.rows[:, 0]).max() <= 1 / 32
    assert np.array_equal(back[:, 1:], found.rows[:, 1:], equal_nan=True)


def test_weights_of_points_answer_like_the_regression() -> None:
    random = np.random.default_rng(2)
    matrix, means, target = random.normal(size=(50, 4)), random.normal(size=4), random.normal(size=50)
    coefficients = np.linalg.solve(matrix.T @ matrix / 50 + 0.1 * np.eye(4), matrix.T @ target / 50)
    assert ridge_weights(matrix, means, 0.1) @ target == pytest.approx(coefficients @ means)


def test_sparse_features_have_one_entry_a_table() -> None:
    unit, random = np.random.default_rng(3).random((20, 3)), np.random.default_rng(4)
    assert (Hist(3).of(unit).sum(1) == 3).all()
    assert (Race(3, random).of(unit).sum(1) == 80).all()
    assert np.abs(Fourier(3, random).of(unit)).sum(1).max() <= Fourier(3, random).l1


def test_weighted_logistic_regression_finds_the_direction() -> None:
    random = np.random.default_rng(6)
    features = random.normal(size=(2000, 2))
    target = (random.random(2000) < 1 / (1 + np.exp(-2 * features[:, 0]))).astype(float)
    slopes = logistic(features, target, np.full(2000, 1 / 2000))
    assert slopes == pytest.approx([2.0, 0.0], abs=0.2)


def test_the_closure_holds_every_part_of_the_workload() -> None:
    workload = list(combinations("abcd", 3))
    found = closure(workload)
    assert len(found) == 4 + 6 + 4
    assert found[0] == ("a",)
    weight = weights(found, workload)
    assert weight["a",] == 3  # in three of the four
    assert weight["a", "b"] == 2 + 2 + 1 + 1
    assert weight["a", "b", "c"] == 3 + 2 + 2 + 2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("quiet", [0.0, 0.4, 1.0])
def test_aim_spends_all_it_has_and_no_more(epsilon: float, quiet: float) -> None:
    random = np.random.default_rng(8)
    spending = Spending(concentrated(epsilon, 1e-6), 16 * 6)
    spending.measure_first(6)
    measured, rounds = 6 * 0.5 / spending.sigma**2, 0
    while True:
        last = spending.last
        measured += spending.epsilon**2 / 8 + 0.5 / spending.sigma**2
        spending.begin()
        rounds += 1
        if last:
            break
        spending.end(0.0 if random.random() < quiet else np.inf, 10)
    assert measured == pytest.approx(spending.used)
    assert spending.used <= spending.rho * (1 + 1e-9)
    assert spending.used == pytest.approx(spending.rho)
    assert rounds <= 96


def test_aim_that_is_cut_takes_the_rest() -> None:
    spending = Spending(0.5, 100)
    spending.measure_first(5)
    spending.begin()
    spending.end(np.inf, 10)
    spending.take_rest()
    spending.begin()
    assert spending.used == pytest.approx(0.5)


def test_concentrated_privacy_is_what_it_promises() -> None:
    """A Gaussian of that ρ has a δ(ε) below δ, and not by much."""
    from scipy.stats import norm

    epsilon, delta = 1.0, 1e-6
    ratio = np.sqrt(2 * concentrated(epsilon, delta))
    spent = norm.cdf(ratio / 2 - epsilon / ratio) - np.exp(epsilon) * norm.cdf(-ratio / 2 - epsilon / ratio)
    assert delta / 20 < spent <= delta


def test_the_exponential_mechanism_prefers_high_scores() -> None:
    random = np.random.default_rng(9)
    scores = {("a",): 0.0, ("b",): 2.0}
    chosen = [exponential(scores, 1.0, 1.0, random) for _ in range(4000)]
    assert chosen.count(("b",)) / 4000 == pytest.approx(np.e / (1 + np.e), abs=0.03)


def test_goals_are_judged_by_the_mean() -> None:
    results = {("lifesci", "ours", 1.0, 0.0): {"means": [0.001, 0.0025], "cov": [0.2]}}
    found = list(goals.lines(results))
    assert any(line.startswith("lifesci ε=1 means 0.0018 (0.0025)") and line.endswith("PASS") for line in found)
    assert any("cov" in line and line.endswith("SHORT") for line in found)


def test_a_script_that_never_looks_at_the_clock_is_ended() -> None:
    with pytest.raises(OverTime):
        run_limited([sys.executable, "-c", "while True: pass"], 0.5)
    assert run_limited([sys.executable, "-c", "print(1)"], 5).stdout == "1\n"
    assert run_limited([sys.executable, "-c", "1/0"], 5).returncode == 1


def test_results_are_kept_for_later_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert kept.read(path) == {}
    slow, fast = Task("lifesci", "aim", 1.0, 1e-6, 1, 7), Task("adult", "not private", float("inf"), 0.0, 2, 7)
    entries = {slow.key: kept.entry(slow, []), fast.key: kept.entry(fast, [{"model": 0.9}, {"model": 0.8}])}
    kept.write(path, entries)
    assert kept.read(path) == entries
    assert entries[slow.key].figures == {}
    assert entries[fast.key].figures == {"model": [0.9, 0.8]}
