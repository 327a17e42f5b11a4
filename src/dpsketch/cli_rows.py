"""`dpsketch score` and `dpsketch sample`: rows in and out of models and sketches. Nothing here can spend."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.console import Force, check_free, err, progress_bar
from dpsketch.errors import FileError

if TYPE_CHECKING:
    import pyarrow as pa

OutputRows = Annotated[Path, typer.Option("-o", "--output", help="File to write: .parquet or .csv.")]
_ENDINGS = (".parquet", ".csv")


def score(
    model: Annotated[Path, typer.Argument(help="A model, written by `dpsketch fit … --save`.")],
    table: Annotated[Path, typer.Argument(help="Rows to score: a CSV or Parquet file, or a folder of them.")],
    output: OutputRows,
    force: Force = False,
) -> None:
    """Write what a model says of each row of a table, in the table's order: clusters, predictions or scores, with
    standard errors where the model has them.

    The model keeps the promise of its release; the output tells about the rows that you pass, and is yours to protect.
    """
    import pyarrow as pa

    from dpsketch.engines.sources import read_batches
    from dpsketch.learn.saved import load_model
    from dpsketch.learn.scoring import input_columns, scores

    _check_rows(output, force, model, table)
    loaded = load_model(model)
    columns = input_columns(loaded)
    empty = pa.table({name: pa.array([], pa.string()) for name in columns})
    with progress_bar("scoring") as report, _written(output, pa.table(scores(loaded, empty)).schema) as write:
        for batch in read_batches(table, columns, report):
            write(pa.table(scores(loaded, pa.Table.from_batches([batch]))))
    err.print(f"{output}: scores by {type(loaded).__name__}, a row for each of {table}")


def sample(
    sketch: Path,
    rows: Annotated[int, typer.Option("-n", "--rows", help="How many rows.")],
    output: OutputRows,
    seed: Annotated[int, typer.Option(help="Another seed gives other rows.")] = 0,
    force: Force = False,
) -> None:
    """Write synthetic rows that obey the schema. They cost no privacy, and they are not people."""
    from dpsketch.learn.view import open_view

    _check_rows(output, force, sketch)
    drawn = open_view(sketch).sample(rows, seed)
    with _written(output, drawn.schema) as write:
        write(drawn)
    err.print(f"{output}: {rows} synthetic rows")


def _check_rows(output: Path, force: bool, *inputs: Path) -> None:
    if output.suffix not in _ENDINGS:
        raise FileError(f"{output} is neither .parquet nor .csv", "choose one of these endings")
    check_free(output, force, *inputs)


@contextmanager
def _written(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """A function that appends tables to a file, which is there when all is done or not at all."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    opened = parquet.ParquetWriter if path.suffix == ".parquet" else arrow_csv.CSVWriter
    try:
        with opened(temporary, schema) as writer:
            yield lambda table: writer.write_table(table.cast(schema))
        temporary.replace(path)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror or 'input/output error'}", "write somewhere else"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
