"""Which recipe a command sketches by: its options, and what they choose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.console import listed
from dpsketch.errors import RecipeError

if TYPE_CHECKING:
    from dpsketch.privacy.budget import Budget
    from dpsketch.recipe.recipe import Recipe
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
        "this NAME is read from the whole of the same, unchanged table. Then parts cost as much as the most costly "
        "one; without it they add up.",
    ),
]
Frequencies = Annotated[
    int | None, typer.Option(help="Add as many Fourier frequencies to the general recipe; by default none.")
]
Clusters = Annotated[
    int | None, typer.Option(help="Sketch for `dpsketch fit` with about as many clusters, not for general questions.")
]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns of a purpose or of clusters, with commas between them; by default all that suit it."),
]
Purpose = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="PURPOSE",
        help="Sketch for one purpose, not for general questions: density (density:0.05 names a bandwidth, in widths of "
        "the bounds), anomaly, classify:TARGET, linear:TARGET, synthetic, pca:K, bounds (for dpsketch tighten), or "
        "graph (of a column of sets of ids; for edge lists: dpsketch graph).",
    ),
]

# What may follow the colon of a purpose: None for nothing.
PURPOSES = {
    "density": "BANDWIDTH",
    "anomaly": None,
    "classify": "TARGET",
    "linear": "TARGET",
    "synthetic": None,
    "pca": "K",
    "bounds": None,
    "graph": None,
}


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
) -> Recipe:
    """The named recipe, with `other` the one that goes with its groups, or that for a purpose or clusters, or the
    general one.
    """
    from dpsketch.recipe.recipe import Only, Recipe
    from dpsketch.sketch.agreement import agreed_pairs, check_source

    if other is not None:
        check_source(facts, other)
    if clusters is None and purpose is None and columns is not None:
        raise RecipeError(
            "--columns is for clusters or a purpose",
            "pass --clusters 8 or --for density, or name the columns in a recipe file",
        )
    names = listed(columns)
    if clusters is not None or purpose is not None:
        option = "--for" if purpose is not None else "--clusters"
        if any(each is not None for each in (recipe, frequencies, other)) or None not in (clusters, purpose):
            raise RecipeError(
                f"{option} is a recipe of its own",
                "leave out --recipe, --frequencies and --groups-from, and pass one of --for and --clusters",
            )
        if purpose is not None:
            chosen = purpose_recipe(purpose, facts, rows, budget, names)
        else:
            assert clusters is not None
            chosen = Recipe.clusters(facts, rows, budget, clusters, names)
    elif recipe is None and other is not None:
        if frequencies is not None:
            raise RecipeError("with --groups-from the recipe is that of the other sketch", "leave out --frequencies")
        chosen = other.recipe
    elif recipe is None:
        chosen = Recipe.general(facts, rows, budget, frequencies)
    elif frequencies is not None:
        raise RecipeError("--frequencies is for the general recipe", "set size in the recipe file instead")
    else:
        chosen = Recipe.load(recipe)
    part = chosen.only
    if part is not None and recipe is None:
        part = Only(part.column, part.value)  # another sketch's snapshot is not this table's
    if only is not None:
        column, separator, value = only.partition("=")
        if not separator:
            raise RecipeError("--only needs a column and a value", "write --only region=north")
        part = Only(column, value)
    if snapshot is not None:
        if part is None:
            raise RecipeError("--snapshot is for one part of a table", "pass --only region=north, or leave it out")
        part = Only(part.column, part.value, snapshot)
    chosen = Recipe(chosen.parts, rows, chosen.sampling, part)
    if other is not None:
        agreed_pairs(facts, chosen, chosen.bind(facts), other)
    return chosen


def purpose_recipe(
    purpose: str, facts: Schema, rows: int | None, budget: Budget | None, columns: Sequence[str] | None
) -> Recipe:
    """The ready-made recipe of a purpose such as classify:income."""
    from dpsketch.recipe.recipe import Recipe

    name, value = purpose_of(purpose)
    if name == "classify":
        return Recipe.classify(facts, value, rows, budget, columns)
    if name == "linear":
        return Recipe.linear(facts, value, rows, budget, columns)
    if name == "pca":
        return Recipe.pca(facts, rows, budget, components_of(value), columns)
    if name == "density":
        return Recipe.density(facts, rows, budget, columns, bandwidth_of(value))
    if name == "graph":
        if columns is not None:
            raise RecipeError("--columns is not for graphs: a graph has one column of sets", "leave it out")
        return Recipe.graph(facts, rows, budget)
    if name == "bounds":
        return Recipe.bounds(facts, columns)
    ready = Recipe.anomaly if name == "anomaly" else Recipe.synthetic
    return ready(facts, rows, budget, columns)


def next_steps(sketch: Path, purpose: str | None) -> str:
    """What to do with a release."""
    if purpose is None:
        return f'dpsketch ask {sketch} "select count(*) from sketch"'
    name, value = purpose_of(purpose)
    steps = {
        "classify": f"dpsketch fit classifier {sketch} --target {value}",
        "linear": f"dpsketch fit linear {sketch} --target {value}",
        "synthetic": f"dpsketch sample {sketch} -n 1000 -o rows.parquet",
        "pca": f"dpsketch fit pca {sketch} --k {value}",
        "anomaly": f"dpsketch fit anomaly {sketch}",
        "bounds": f"dpsketch tighten {sketch} -o tighter.toml",
    }
    bandwidth = f" --bandwidth {value}" if value else ""
    return steps.get(name, f"dpsketch fit density {sketch}{bandwidth}")


def purpose_of(text: str) -> tuple[str, str]:
    """A purpose and what its colon is followed by, if anything is."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if name not in PURPOSES:
        raise RecipeError(f"--for must be one of {', '.join(PURPOSES)}, got '{name}' instead", "as --for density")
    wanted = PURPOSES[name]
    if colon and (wanted is None or not value):
        raise RecipeError(f"--for {text} has a colon that nothing belongs to", f"write --for {name}")
    if wanted in ("TARGET", "K") and not value:
        raise RecipeError(f"--for {name} needs more", f"write --for {name}:{wanted}")
    return name, value


def bandwidth_of(value: str) -> float | None:
    """Of a density; None for the default."""
    try:
        return float(value) if value else None
    except ValueError:
        raise RecipeError(f"a bandwidth must be a number, got '{value}' instead", "write density:0.05") from None


def components_of(value: str) -> int:
    if not value.isdigit():
        raise RecipeError(f"components must be a whole number, got '{value}' instead", "write --for pca:3")
    return int(value)
