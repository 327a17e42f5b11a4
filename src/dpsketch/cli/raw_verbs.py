"""`dpsketch accumulate` and `merge`: the verbs that write raw sketches and sums of sketches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.console import (
    AsJson,
    Delta,
    Epsilon,
    Force,
    OutputPath,
    RecipePath,
    Rho,
    Rows,
    check_free,
    err,
    progress_bar,
    tell_written,
)
from dpsketch.cli.recipe_choice import (
    Clusters,
    Columns,
    Frequencies,
    Important,
    OnlyRows,
    Purpose,
    Snapshot,
    chosen_recipe,
)
from dpsketch.cli.source_choice import (
    EngineName,
    Master,
    Query,
    TableName,
    Tables,
    chosen_engine,
    chosen_source,
    local_paths,
)
from dpsketch.errors import FileError, MergeError
from dpsketch.files.outputs import written
from dpsketch.privacy.budget import Budget

if TYPE_CHECKING:
    from dpsketch.engines.engine import Engine
    from dpsketch.recipe.recipe import Recipe
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.raw import RawSketch

OptionalSchema = Annotated[Path | None, typer.Option("--schema", help="TOML file with the table's public facts.")]
OptionalOutput = Annotated[
    Path | None, typer.Option("-o", "--output", help="File to write. Default with --append: that file.")
]
Append = Annotated[
    Path | None,
    typer.Option("--append", metavar="RAW", help="Add the rows to this raw sketch; files that it counted are refused."),
]
DisjointUnits = Annotated[
    bool, typer.Option("--disjoint-units", help="Declare that no unit has rows in two of the tables.")
]


def accumulate(
    tables: Tables,
    schema: OptionalSchema = None,
    output: OptionalOutput = None,
    table: TableName = None,
    query: Query = None,
    append: Append = None,
    disjoint_units: DisjointUnits = False,
    engine: EngineName = "local",
    master: Master = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    recipe: RecipePath = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    important: Important = None,
    purpose: Purpose = None,
    clusters: Clusters = None,
    columns: Columns = None,
    only: OnlyRows = None,
    snapshot: Snapshot = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Read a table into a raw sketch: exact, secret, mergeable. Nothing is spent. The budget determines the sizes of
    the general recipe and is checked now against what a release will need.
    """
    from dpsketch.sketch.release import planned

    source, workers = chosen_source(tables, table, query), chosen_engine(engine, master)
    described, tasks = (recipe, rows, frequencies, only, snapshot), (purpose, clusters, columns, important)
    if append is not None:
        check_alone(bool(delta) or any(each is not None for each in (schema, epsilon, rho, *described, *tasks)))
        _append(append, source, workers, disjoint_units, output or append, force or output is None, as_json)
        return
    if output is None:
        raise FileError("the raw sketch needs a file", "pass -o table.raw")
    check_free(output, force, *local_paths(tables), schema, recipe)
    facts = loaded_schema(schema)
    unknown = epsilon is None and rho is None and not delta
    budget = None if unknown and recipe is not None else Budget(epsilon, delta, rho)
    chosen = chosen_recipe(facts, budget, *described, None, *tasks)
    if budget is not None:
        planned(facts, chosen, budget)
    with written(output, force, secret=True) as file:
        accumulated(source, facts, chosen, workers).write(file)
    size = output.stat().st_size
    shown = f"{output}: raw sketch of {size / 1e6:,.1f} MB, NOT PRIVATE"
    message = f"{shown}. Keep it secret; release it with: dpsketch release {output} …"
    tell_written(as_json, output, message, kind="raw", private=False, bytes=size)


def merge(
    sketches: Annotated[list[Path], typer.Argument(help="Two or more sketches of the same schema and recipe.")],
    output: OutputPath,
    disjoint_units: DisjointUnits = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Add up sketches: all raw (the sum is still secret) or all released (their noise adds up)."""
    from dpsketch.sketch.file import read_header
    from dpsketch.sketch.raw import RawSketch
    from dpsketch.sketch.released import ReleasedSketch

    if len(sketches) < 2:
        raise MergeError("merge needs at least two sketches", "dpsketch merge A.sketch B.sketch -o BOTH.sketch")
    check_free(output, force, *sketches)
    kinds = {read_header(path)["kind"] for path in sketches}
    if kinds == {"raw"}:
        raw = RawSketch.load(sketches[0])
        for path in sketches[1:]:
            raw = raw.merge(RawSketch.load(path), disjoint_units)
        raw.save(output, force)
    elif kinds == {"released"}:
        released = ReleasedSketch.load(sketches[0])
        for path in sketches[1:]:
            released = released.merge(ReleasedSketch.load(path), disjoint_units)
        released.save(output, force)
    else:
        raise MergeError("raw and released sketches do not merge", "release the raw one first")
    kind = kinds.pop()
    message = f"{output}: merged from {len(sketches)} {kind} sketches."
    tell_written(as_json, output, message, kind=kind, private=kind == "released", merged=len(sketches))


def check_alone(described: bool) -> None:
    if described:
        raise FileError("a raw sketch brings its own schema and recipe", "leave out the options that describe them")


def loaded_schema(path: Path | None) -> Schema:
    from dpsketch.schema.schema import Schema

    if path is None:
        raise FileError("a table needs --schema", "dpsketch init TABLE > schema.toml writes a template")
    return Schema.load(path)


def accumulated(source: Any, facts: Schema, recipe: Recipe, engine: Engine) -> RawSketch:
    from dpsketch.engines.engine import accumulate as accumulate_table
    from dpsketch.engines.readers import holds_csv

    with progress_bar() as report:
        raw = accumulate_table(source, facts, recipe, engine, report)
    if not facts.csv.multiline and holds_csv(source):
        err.print(
            "CSV: every line was read as one row, even inside quotes. To change that: csv.multiline in the schema."
        )
    return raw


def _append(
    path: Path, source: Any, engine: Engine, disjoint_units: bool, output: Path, force: bool, as_json: bool
) -> None:
    from dpsketch.engines.engine import append as append_table
    from dpsketch.sketch.raw import RawSketch

    raw = RawSketch.load(path)
    with written(output, force, secret=True) as file, progress_bar() as report:
        append_table(raw, source, engine, report, disjoint_units).write(file)
    message = f"{output}: the raw sketch with the new rows, NOT PRIVATE"
    tell_written(as_json, output, message, kind="raw", private=False, bytes=output.stat().st_size)
