"""`dpsketch plan --task …`: parse, call, print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dpsketch.console import err, out
from dpsketch.errors import RecipeError
from dpsketch.privacy.budget import Budget
from dpsketch.schema import Schema


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
    from dpsketch.task_plan import made_up_columns, plan_task, plot_region

    if k is None:
        raise RecipeError("a task needs --k", "pass --k 10: the number of clusters or components")
    names = None
    if schema is not None:
        facts = Schema.load(schema)
        names = None if columns is None else [name.strip() for name in columns.split(",")]
    elif columns is not None and columns.isdigit():
        facts = made_up_columns(int(columns))
    else:
        raise RecipeError("a task needs a schema or a number of columns", "pass --schema schema.toml, or --columns 10")
    plans = [plan_task(facts, task, k, rows, budget, names) for budget in budgets]
    if plot is not None:
        plot_region(plans[-1], facts, plot)
        err.print(f"{plot}: rows against epsilon")
    if as_json:
        print(json.dumps([plan.to_dict() for plan in plans], indent=2))
        return
    for plan in plans:
        out.print("\n".join(plan.lines()) + "\n")
    out.print("Predicted by formulas from public numbers. Nothing was read or spent.")
