"""`dpsketch plan --task …`: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable

from dpsketch.cli.console import err, listed, out, print_json
from dpsketch.errors import RecipeError
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task_registry import Entry, entry_named, parse_task
from dpsketch.schema.schema import Schema

_FORMULAS = "Predicted by formulas from public numbers. Nothing was read or spent."


def print_task_plan(
    text: str,
    k: int | None,
    schema: Path | None,
    columns: str | None,
    rows: int | None,
    budgets: Sequence[Budget],
    plot: Path | None,
    as_json: bool,
) -> None:
    """Print the prediction for a task. `columns` names some columns of the schema, or gives their number without one.

    `k` is the argument K of a task: `--task clusters --k 4` is `--task clusters:4`.
    """
    from dpsketch.planning.task_forecast import plot_region, simulated_columns
    from dpsketch.recipe.tasks.ratio import RatioPrediction

    entry, argument = _task(text, k)
    task = entry.load()
    names = None
    if schema is not None:
        facts = Schema.load(schema)
        names = listed(columns)
    elif columns is not None and columns.isdigit():
        facts = simulated_columns(int(columns))
    else:
        raise RecipeError("a task needs a schema or a number of columns", "pass --schema schema.toml, or --columns 10")
    options = task.options(argument) | ({} if names is None else {"columns": names})
    plans = [task.predict(facts, rows=rows, budget=budget, **options) for budget in budgets]
    predictions = [plan for plan in plans if plan is not None]
    if not predictions:
        raise RecipeError(f"no formula predicts the task {entry.name}", "plan queries instead: leave out --task")
    if plot is not None:
        if not isinstance(predictions[-1], RatioPrediction):
            raise RecipeError(f"--plot is not for the task {entry.name}", "leave it out")
        plot_region(predictions[-1], plot)
        err.print(f"{plot}: rows against epsilon")
    if as_json:
        print_json([plan.to_dict() for plan in predictions])
        return
    cells = [plan.cells() for plan in predictions]
    if not all(cells):
        for plan in predictions:
            out.print("\n".join(plan.lines()) + "\n")
        out.print(_FORMULAS)
        return
    shown = RichTable(*cells[0])
    for each in cells:
        shown.add_row(*each.values())
    out.print(shown)
    out.print(f"{predictions[0].note} {_FORMULAS}")


def _task(text: str, k: int | None) -> tuple[Entry, str]:
    name = text.partition(":")[0].strip()
    wanted = entry_named(name, "--task").argument
    if k is None:
        if wanted == "K" and ":" not in text:
            raise RecipeError(f"the task {name} needs --k", "pass --k 10: the number of clusters or components")
        return parse_task(text, "--task")
    if wanted != "K" or ":" in text:
        raise RecipeError(f"--k is not for the task {text}", "leave it out")
    return parse_task(f"{name}:{k}", "--task")
