"""Ask for accuracy, get ε: the search against errors that are known in closed form, and its words."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import dpsketch as dps
from command_line import called
from dpsketch.errors import QueryError
from dpsketch.planning.least_budget import least_budget
from dpsketch.privacy.mechanisms import laplace_variance

SCHEMA = dps.Schema.from_dict({"privacy": {"rows": 500}, "columns": {"x": {"kind": "boolean"}}})
COUNT = ["select count(*) from sketch"]
RECIPE = dps.Recipe([dps.Part(dps.Count(), 1.0)])


def error(epsilon: float) -> float:
    return math.sqrt(laplace_variance(1 / epsilon))


@pytest.mark.parametrize("within", [0.3, 2.0, 10.0, 100.0])
def test_the_least_epsilon_is_found_to_a_few_percent(within: float) -> None:
    found = least_budget(SCHEMA, COUNT, within, recipe=RECIPE, simulations=1)
    assert found.budget is not None
    epsilon = float(found.budget.epsilon or 0)
    assert found.worst == pytest.approx(error(epsilon))
    assert found.worst <= within < error(epsilon / 1.25)
    assert len(f"{epsilon:g}".replace(".", "").strip("0")) <= 2, "two digits"


def test_the_same_seed_gives_the_same_budget() -> None:
    queries = ["select avg(x) from sketch"]
    one, two = (least_budget(SCHEMA, queries, 0.02, simulations=1, seed=3) for _ in range(2))
    assert one == two


def test_all_queries_must_be_accurate_enough() -> None:
    queries = [*COUNT, "select count(*) from sketch where x"]
    alone = least_budget(SCHEMA, COUNT, 5.0, simulations=1).budget
    both = least_budget(SCHEMA, queries, 5.0, simulations=1).budget
    assert alone is not None
    assert both is not None
    assert both.strength >= alone.strength


def test_the_smallest_that_is_tried_may_do() -> None:
    assert least_budget(SCHEMA, COUNT, 1e6, recipe=RECIPE, simulations=1).budget == dps.Budget(0.01)


def test_delta_goes_along() -> None:
    found = least_budget(SCHEMA, COUNT, 10.0, 1e-6, recipe=RECIPE, simulations=1)
    assert found.budget is not None
    assert found.budget.delta == 1e-6


def test_what_cannot_be_reached_says_so() -> None:
    found = least_budget(SCHEMA, COUNT, 1e-6, recipe=RECIPE, simulations=1)
    assert found.budget is None
    assert found.worst == pytest.approx(error(10))


@pytest.mark.parametrize("within", [0, -1.0, float("nan"), float("inf"), True])
def test_an_accuracy_is_a_positive_number(within: float) -> None:
    with pytest.raises(QueryError, match="the wanted accuracy must be a number above 0"):
        least_budget(SCHEMA, COUNT, within)


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[privacy]\nrows = 500\n[columns.x]\nkind = "boolean"\n')
    (tmp_path / "r.toml").write_text("[[parts]]\nmap = 'count'\nshare = 1.0\n")
    words = ["plan", "--schema", "s.toml", "--query", *COUNT, "--recipe", "r.toml", "--simulations", "1", "--within"]
    done = called(tmp_path, *words, "2")
    assert done.returncode == 0
    told = " ".join(done.stdout.split())
    assert "Least budget: epsilon 0.7" in told
    assert "where at most 2 is wanted. Real tables differ from simulated ones" in told
    assert "Below 10 %" not in told
    assert json.loads(called(tmp_path, *words, "2", "--json").stdout)["epsilon"] == pytest.approx(0.75, abs=0.06)
    never = called(tmp_path, *words, "0.00001")
    assert never.returncode == 1
    assert "Not reached: no epsilon up to 10 has a predicted error of at most 1e-05; at 10 the largest is 0.0" in (
        " ".join(never.stdout.split())
    )
    assert json.loads(called(tmp_path, *words, "0.00001", "--json").stdout)["epsilon"] is None
    both = called(tmp_path, *words, "2", "--epsilon", "1")
    assert both.stderr == (
        "BudgetError: --within finds epsilon for queries itself\nHint: leave out --epsilon, --task and --plot\n"
    )
    none = called(tmp_path, "plan", "--schema", "s.toml", "--within", "2")
    assert "RecipeError: an accuracy is wanted for a query" in none.stderr
