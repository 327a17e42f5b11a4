"""`dpsketch plan --task …`: parse, call, print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable

from dpsketch.cli.console import err, listed, out
from dpsketch.cli.recipe_choice import bandwidth_of
from dpsketch.errors import RecipeError
from dpsketch.privacy.budget import Budget
from dpsketch.schema.schema import Schema

_FORMULAS = "Predicted by formulas from public numbers. Nothing was read or spent."


def print_task_plan(
    task: str,
    k: int | None,
    schema: Path | None,
    columns: str | None,
    rows: int | None,
    budgets: Sequence[Budget],
    plot: Path | None,
    as_json: bool,
) -> None:
    """Without a schema `columns` is how many there are, with one it names some of them."""
    from dpsketch.planning.task_forecast import TASKS, made_up_columns, plan_task, plot_region

    kind, colon, value = task.partition(":")
    formulas = kind in ("density", "synthetic")
    if kind not in (*TASKS, "density", "synthetic") or (colon and kind != "density"):
        raise RecipeError(f"--task must be one of {', '.join(TASKS)}, density, synthetic, got '{task}' instead")
    if formulas and (k is not None or plot is not None):
        raise RecipeError(f"--k and --plot are not for the task {kind}", "leave them out")
    if not formulas and k is None:
        raise RecipeError("a task needs --k", "pass --k 10: the number of clusters or components")
    names = None
    if schema is not None:
        facts = Schema.load(schema)
        names = listed(columns)
    elif columns is not None and columns.isdigit():
        facts = made_up_columns(int(columns))
    else:
        raise RecipeError("a task needs a schema or a number of columns", "pass --schema schema.toml, or --columns 10")
    if formulas:
        if kind == "density":
            _print_density(facts, rows, budgets, names, bandwidth_of(value), as_json)
        else:
            _print_grid(facts, rows, budgets, names, as_json)
        return
    assert k is not None
    plans = [plan_task(facts, task, k, rows, budget, names) for budget in budgets]
    if plot is not None:
        plot_region(plans[-1], facts, plot)
        err.print(f"{plot}: rows against epsilon")
    if as_json:
        print(json.dumps([plan.to_dict() for plan in plans], indent=2))
        return
    for plan in plans:
        out.print("\n".join(plan.lines()) + "\n")
    out.print(_FORMULAS)


def _print_density(
    facts: Schema,
    rows: int | None,
    budgets: Sequence[Budget],
    names: list[str] | None,
    bandwidth: float | None,
    as_json: bool,
) -> None:
    from dpsketch.planning.density_forecast import density_plan

    plans = [density_plan(facts, rows, budget, names, bandwidth) for budget in budgets]
    if as_json:
        told = zip(budgets, plans, strict=True)
        print(json.dumps([{"epsilon": budget.epsilon} | plan.to_dict() for budget, plan in told], indent=2))
        return
    shown = RichTable("budget", "hashed counters", "error", "a table", "error", "better")
    for budget, plan in zip(budgets, plans, strict=True):
        race = f"{getattr(plan.race, 'rows', 0)} × {getattr(plan.race, 'width', 0)}"
        table = ("-", "-")
        if plan.table is not None and plan.table_error is not None:
            table = (f"{getattr(plan.table, 'bins', 0)} bins", f"{plan.table_error:.2%}")
        shown.add_row(str(budget), race, f"{plan.race_error:.2%}", *table, plan.better)
    out.print(shown)
    out.print(f"Relative errors at places with a mean kernel value of {plans[0].density:g}. {_FORMULAS}")


def _print_grid(
    facts: Schema, rows: int | None, budgets: Sequence[Budget], names: list[str] | None, as_json: bool
) -> None:
    from dpsketch.planning.grid_forecast import plan_grid

    plans = [plan_grid(facts, rows, budget, names) for budget in budgets]
    if as_json:
        print(json.dumps([plan.to_dict() for plan in plans], indent=2))
        return
    shown = RichTable("budget", "levels", "counters of each", "noise", "distance", "recipe")
    for plan in plans:
        levels, counters = " ".join(map(str, plan.grid.levels)), f"{plan.grid.rows} × {plan.grid.width:,}"
        recipe = "grid" if plan.suited else "pairs instead"
        shown.add_row(str(plan.budget), levels, counters, f"{plan.deviation:.3g}", f"{plan.error.total:.2g}", recipe)
    out.print(shown)
    out.print(f"Distance of the rows from the table in total variation; noise in records of a cell. {_FORMULAS}")
