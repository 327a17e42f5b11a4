"""`dpsketch score` and `dpsketch sample`: rows in and out of models and sketches. Nothing here can spend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.console import AsJson, Force, check_free, err, progress_bar, tell_written, waiting
from dpsketch.errors import FileError
from dpsketch.files.outputs import written

if TYPE_CHECKING:
    import pyarrow as pa

OutputRows = Annotated[Path, typer.Option("-o", "--output", help="File to write: .parquet or .csv.")]
_ENDINGS = (".parquet", ".csv")


def score(
    model: Annotated[Path, typer.Argument(help="A model, written by `dpsketch fit … --save`.")],
    table: Annotated[Path, typer.Argument(help="Rows to score: a CSV or Parquet file, or a folder of them.")],
    output: OutputRows,
    edges: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE,TARGET",
            help="The table is an edge list with these two columns, and its nodes' neighbour lists are scored.",
        ),
    ] = None,
    undirected: Annotated[
        bool, typer.Option("--undirected", help="For an edge list: count every edge in both directions.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Apply a model to every row of a table, in the table's order: clusters, predictions, densities or scores,
    with standard errors where the model has them.

    The model keeps the guarantee of its release. The output depends on the rows that you pass: protect it like them.
    """
    import pyarrow as pa

    from dpsketch.engines.graph import NODE
    from dpsketch.engines.readers import read_batches
    from dpsketch.learn.saved import load_model

    _check_rows(output, force, model, table)
    loaded = load_model(model)
    columns = loaded.table_columns
    nodes = pa.table({} if edges is None else {NODE: pa.array([], pa.int64())})

    def scored(rows: pa.Table) -> pa.Table:
        own = {name: rows[name] for name in nodes.column_names}
        return pa.table(own | loaded.scores(rows))

    empty = pa.table({name: nodes[name] for name in nodes.column_names} | {n: pa.nulls(0) for n in columns})
    with progress_bar("scoring") as report, _written(output, force, scored(empty).schema) as write:
        if edges is None:
            batches = read_batches(table, columns, report)
        else:
            batches = _neighbours(loaded, table, edges, undirected, report)
        for batch in batches:
            write(scored(pa.Table.from_batches([batch])))
    what = "row" if edges is None else "node with neighbours"
    calibrated = bool(getattr(loaded, "calibrated_", True))
    message = f"{output}: scores by {type(loaded).__name__}, one for each {what} of {table}"
    tell_written(as_json, output, message, model=type(loaded).__name__, calibrated=calibrated)
    if not calibrated:
        err.print("Warning: probabilities are not calibrated; rely on their order, or on the predictions.")


def sample(
    sketch: Path,
    rows: Annotated[int, typer.Option("-n", "--rows", help="Number of rows.")],
    output: OutputRows,
    seed: Annotated[int, typer.Option(help="Seed of the sampled rows.")] = 0,
    method: Annotated[
        str,
        typer.Option(help="auto; cells or heap (the paper's), from a grid; rejection, from hashed counters."),
    ] = "auto",
    heavy: Annotated[int | None, typer.Option(min=1, help="Number of cells that a heap keeps. Default: 5000.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write synthetic rows that obey the schema. They cost no privacy and are not records of people."""
    from dpsketch.learn.view import open_view

    _check_rows(output, force, sketch)
    view = open_view(sketch)
    with waiting("sampling; the first time fits a model, which is kept"):
        drawn = view.sample(rows, seed, method, heavy)
    with _written(output, force, drawn.schema) as write:
        write(drawn)
    tell_written(as_json, output, f"{output}: {rows} synthetic rows", rows=rows)


def _neighbours(model: Any, table: Path, edges: str, undirected: bool, report: Any) -> Iterator[pa.RecordBatch]:
    """The neighbour lists of an edge list, under the name of the column that the model has."""
    import pyarrow as pa

    from dpsketch.engines.graph import NODE, neighbour_sets

    source, comma, target = (part.strip() for part in edges.partition(","))
    if not (source and comma and target):
        raise FileError(f"--edges needs two columns, got '{edges}' instead", "write --edges src,dst")
    nodes = model.id_universe
    if nodes is None:
        raise FileError("this model does not score sets of ids", "fit one to a release made by dpsketch graph")
    for batch in neighbour_sets(table, nodes, source, target, undirected, report, named=True):
        yield pa.RecordBatch.from_arrays(batch.columns, names=[NODE, *model.input_columns])


def _check_rows(output: Path, force: bool, *inputs: Path) -> None:
    if output.suffix not in _ENDINGS:
        raise FileError(f"{output} is neither .parquet nor .csv", "choose one of these endings")
    check_free(output, force, *inputs)


@contextmanager
def _written(path: Path, force: bool, schema: pa.Schema) -> Iterator[Any]:
    """A function that appends tables to a file. The file appears when all is written, or not at all."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    opened = parquet.ParquetWriter if path.suffix == ".parquet" else arrow_csv.CSVWriter
    with written(path, force) as file, opened(file, schema) as writer:
        yield lambda table: writer.write_table(table.cast(schema))
