"""The choice of a recipe by the options of a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.console import listed, warnings_told
from dpsketch.errors import RecipeError
from dpsketch.recipe.tasks.task_registry import parse_task, task_list

if TYPE_CHECKING:
    from dpsketch.privacy.budget import Budget
    from dpsketch.recipe.recipe import Only, Recipe
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.released import ReleasedSketch

OnlyRows = Annotated[
    str | None, typer.Option("--only", metavar="COLUMN=VALUE", help="Use only the rows of one part of a partition.")
]
Snapshot = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --only: you assert that TABLE is the whole of the snapshot NAME, and that everything released with "
        "this NAME is read from the whole of the same, unchanged table. Parts then cost as much as the most costly "
        "of them; without it their costs add up.",
    ),
]
Frequencies = Annotated[
    int | None, typer.Option(help="Number of Fourier frequencies to add to the general recipe. Default: none.")
]
Important = Annotated[
    str | None,
    typer.Option(
        metavar="GROUPS",
        help='Columns that questions will be about together, such as "age,cost;ward,outcome": the general recipe then '
        "gives their pair tables less noise, and the others up to one and a half times as much. Three or more columns "
        "get tables of three columns, too, where noise allows. Default: workload.important of the schema.",
    ),
]
Clusters = Annotated[int | None, typer.Option(metavar="K", help="Short for --for clusters:K.")]
Columns = Annotated[str | None, typer.Option(help="Comma-separated columns of a task. Default: all that suit it.")]
Purpose = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="TASK",
        help=f"Sketch for one task, not for general questions: {task_list()}. See docs/recipes.md.",
    ),
]


def chosen_recipe(
    facts: Schema,
    budget: Budget | None,
    recipe: Path | None,
    rows: int | None,
    frequencies: int | None,
    only: str | None,
    snapshot: str | None,
    other: ReleasedSketch | None,
    purpose: str | None,
    clusters: int | None,
    columns: str | None,
    important: str | None = None,
) -> Recipe:
    """The recipe of a file, of the sketch `other` whose groups are used, of a task, or the general one."""
    from dpsketch.recipe.recipe import Recipe
    from dpsketch.sketch.agreement import agreed_maps, check_source

    if other is not None:
        check_source(facts, other)
    if clusters is None and purpose is None and columns is not None:
        raise RecipeError(
            "--columns is for a task",
            "pass --for density or --clusters 8, or name the columns in a recipe file",
        )
    names = listed(columns)
    general = recipe is None and other is None and purpose is None and clusters is None
    check_important(important, general)
    if clusters is not None or purpose is not None:
        option = "--for" if purpose is not None else "--clusters"
        if any(each is not None for each in (recipe, frequencies, other)) or None not in (clusters, purpose):
            raise RecipeError(
                f"{option} is a recipe of its own",
                "leave out --recipe, --frequencies and --groups-from, and pass one of --for and --clusters",
            )
        with warnings_told():
            chosen = task_recipe(purpose or f"clusters:{clusters}", facts, rows, budget, names)
    elif recipe is None and other is not None:
        if frequencies is not None:
            raise RecipeError("with --groups-from the recipe is that of the other sketch", "leave out --frequencies")
        chosen = other.recipe
    elif recipe is None:
        with warnings_told():
            groups = important_groups(important)
            chosen = Recipe.general(facts, rows=rows, budget=budget, frequencies=frequencies, important=groups)
    elif frequencies is not None:
        raise RecipeError("--frequencies is for the general recipe", "set size in the recipe file instead")
    else:
        chosen = Recipe.load(recipe)
    part = _chosen_rows(chosen.only, recipe is not None, only, snapshot)
    chosen = Recipe(chosen.parts, rows, chosen.sampling, part)
    if other is not None:
        agreed_maps(chosen.bind(facts), other)
    return chosen


def _chosen_rows(part: Only | None, of_file: bool, only: str | None, snapshot: str | None) -> Only | None:
    """The part of a table that a recipe names, in a file or not, or that the options name in its place."""
    from dpsketch.recipe.recipe import Only

    if part is not None and not of_file:
        part = Only(part.column, part.value)  # the snapshot of the other sketch is not that of this table
    if only is not None:
        column, separator, value = only.partition("=")
        if not separator:
            raise RecipeError("--only needs a column and a value", "write --only region=north")
        part = Only(column, value)
    if snapshot is not None:
        if part is None:
            raise RecipeError("--snapshot is for one part of a table", "pass --only region=north, or leave it out")
        part = Only(part.column, part.value, snapshot)
    return part


def check_important(important: str | None, general: bool) -> None:
    if important is not None and not general:
        raise RecipeError(
            "--important is for the general recipe",
            "leave out --important, or list important pairs in the pairs part of a recipe file",
        )


def important_groups(text: str | None) -> list[list[str]] | None:
    """Groups of names from "age,cost;ward,outcome"; none from an empty text, whatever the schema says."""
    if text is None:
        return None
    return [[name.strip() for name in group.split(",")] for group in text.split(";") if group.strip()]


def task_recipe(
    text: str, facts: Schema, rows: int | None, budget: Budget | None, columns: Sequence[str] | None
) -> Recipe:
    """The ready-made recipe of a task such as classify:income."""
    entry, argument = parse_task(text)
    task = entry.load()
    chosen = {} if columns is None else {"columns": columns}
    return task.recipe(facts, rows=rows, budget=budget, **chosen, **task.options(argument))


def next_steps(sketch: Path, purpose: str | None) -> str:
    """A text with the next commands for a release."""
    entry, argument = parse_task(purpose or "general")
    return entry.load().next_step(str(sketch), argument)
