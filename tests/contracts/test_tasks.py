"""Every registered task through one suite, and a toy task that a test registers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dpsketch as dps
from dpsketch.cli.app import app
from dpsketch.cli.recipe_choice import next_steps, task_recipe
from dpsketch.maps.tables.count import Count
from dpsketch.recipe.tasks.task import Prediction, Shares, Task
from dpsketch.recipe.tasks.task_registry import ALIASES, TASKS, Entry, parse_task, register
from dpsketch.sketch.release import planned

COLUMNS = {
    "x": {"kind": "number", "lower": 0, "upper": 1},
    "y": {"kind": "number", "lower": 0, "upper": 1},
    "age": {"kind": "integer", "lower": 0, "upper": 120},
    "sick": {"kind": "boolean"},
}
BUDGETS = [dps.Budget(0.1), dps.Budget(10.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.1)]
ARGUMENTS = {"classify": "sick", "linear": "y", "hashed_linear": "y", "clusters": "3", "pca": "2", "density": "0.1"}


class Toy(Task):
    """A count: as little as a task can be."""

    name = "toy"

    def parts(self, schema: dps.Schema, rows: int, budget: dps.Budget, columns: Sequence[str] | None = None) -> Shares:
        return [(Count(), 1.0)]

    def predict(self, schema: dps.Schema, *, rows: int, budget: dps.Budget, **options: Any) -> Prediction:
        recipe = self.recipe(schema, rows=rows, budget=budget, **options)
        return Prediction(task=self.name, rows=rows, budget=budget, recipe=recipe)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    register(Entry("toy", "the number of rows", task=Toy()))
    yield
    del TASKS["toy"]


def schema(name: str, rows: int) -> dps.Schema:
    columns = {"friends": {"kind": "set", "universe": 100}} if name == "graph" else COLUMNS
    return dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})


def text(name: str) -> str:
    return f"{name}:{ARGUMENTS[name]}" if name in ARGUMENTS else name


@pytest.mark.parametrize("name", [*TASKS, "toy"])
def test_every_task_keeps_the_contract(name: str) -> None:
    entry, argument = parse_task(text(name))
    task = entry.load()
    assert task.name == entry.name == name
    assert (entry.argument is None) == (task.parameter is None)
    for rows in (100, 100_000):
        for budget in BUDGETS:
            facts = schema(name, rows)
            recipe = task_recipe(text(name), facts, rows, budget, None)
            assert recipe == task_recipe(text(name), facts, rows, budget, None), "sizes follow from public numbers"
            assert planned(facts, recipe, budget) is not None
            sizes = [bound.size for bound in recipe.bind(facts).maps]
            assert all(0 < size < math.inf for size in sizes)
            predicted = task.predict(facts, rows=rows, budget=budget, **task.options(argument))
            if predicted is not None:
                assert isinstance(predicted, Prediction)
                assert (predicted.task, predicted.rows, predicted.budget) == (name, rows, budget)
                assert all(predicted.lines())
                assert json.loads(json.dumps(predicted.to_dict()))["task"] == name
    step = next_steps(Path("a.sketch"), text(name))
    assert step.startswith("dpsketch ")
    assert "a.sketch" in step


@pytest.mark.parametrize("name", list(TASKS))
def test_recipe_has_a_method_for_every_task(name: str) -> None:
    facts, budget = schema(name, 1000), dps.Budget(1.0)
    task = TASKS[name].load()
    known: dict[str, Any] = {} if name == "bounds" else {"rows": 1000, "budget": budget}
    options = task.options(ARGUMENTS.get(name, ""))
    assert getattr(dps.Recipe, name)(facts, **known, **options) == task.recipe(facts, **known, **options)
    with pytest.raises(TypeError, match="positional"):
        getattr(dps.Recipe, name)(facts, 1000, budget)


def test_a_registered_toy_is_a_task_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n0.5\n")
    (tmp_path / "t.toml").write_text(
        '[about]\nname = "t"\n[privacy]\nrows = 1000\n[columns.x]\nkind = "number"\nlower = 0\nupper = 1\n'
    )
    words = ["release", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "t.toml"), "--for", "toy", "--epsilon", "1"]
    words += ["--ledger", str(tmp_path / "l.db"), "--create-ledger", "-o", str(tmp_path / "t.sketch")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [part.map.description.name for part in dps.open(tmp_path / "t.sketch").released.parts] == ["count"]
    plan = ["plan", "--task", "toy", "--columns", "2", "--rows", "1000", "--epsilon", "1"]
    assert "sketch: count (100 %)" in CliRunner().invoke(app, plan, catch_exceptions=False).output


def test_aliases_name_tasks() -> None:
    assert set(ALIASES.values()) <= set(TASKS)
    assert parse_task("kmeans:4")[0].name == "clusters"
    clusters = task_recipe("clusters:4", schema("clusters", 1000), None, dps.Budget(1.0), ["x"])
    assert clusters == dps.Recipe.clusters(
        schema("clusters", 1000), n_clusters=4, budget=dps.Budget(1.0), columns=["x"]
    )


def tasks_table() -> str:
    """The table of tasks in docs/recipes.md."""
    lines = ["| `--for` | in Python | what the release is for |", "| --- | --- | --- |"]
    for name, entry in TASKS.items():
        if name != "toy":
            lines.append(
                f"| `{entry.usage}` | `Recipe.{name}` | [{entry.purpose}]({entry.page}) |".replace(
                    "](recipes.md)", "](#the-general-recipe)"
                )
            )
    return "\n".join(lines)


PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def test_the_page_has_the_table_of_tasks() -> None:
    assert tasks_table() in PAGE.read_text(), "run python tests/contracts/test_tasks.py"


if __name__ == "__main__":
    PAGE.write_text(re.sub(r"\| `--for` \|.*?(?=\n\n)", lambda _: tasks_table(), PAGE.read_text(), flags=re.S))
