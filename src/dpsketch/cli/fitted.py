"""What the verbs of `dpsketch fit` share: options, checks of output files, and how models are printed."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.measure import Measurement
from rich.table import Table as RichTable

from dpsketch.cli.console import check_free, check_picture, err, out, print_json, warnings_told
from dpsketch.displays import plain_number
from dpsketch.errors import QueryError

if TYPE_CHECKING:
    from dpsketch.learn.models.classifier import DensityClassifier
    from dpsketch.learn.models.density.anomaly import AnomalyScorer
    from dpsketch.learn.models.hashed_linear import HashedLinear
    from dpsketch.learn.models.pca import PCA
    from dpsketch.learn.models.regression import LinearRegression, LogisticRegression
    from dpsketch.learn.saved import SavedModel

    FastModel = AnomalyScorer | DensityClassifier | HashedLinear | LinearRegression | LogisticRegression | PCA

Columns = Annotated[
    str | None, typer.Option(help="Comma-separated columns. Default: those that the release was made for.")
]
Format = Annotated[str, typer.Option("--format", help="table, csv or json (the same as --json).")]
Seed = Annotated[int, typer.Option(help="Seed of the search; another may give a better fit.", min=0)]
Save = Annotated[Path | None, typer.Option(help="File to write the model to, for `dpsketch score`.")]
FORMATS = ("table", "csv", "json")
_UNBOUNDED = 1 << 20  # characters


def fit_and_keep(model: FastModel, sketch: Path, plot: Path | None, save: Path | None, force: bool) -> None:
    """Fit a model that needs no progress bar, after a check of the files to write."""
    from dpsketch.learn.view import open_view

    check(sketch, plot, save, force)
    with warnings_told():
        model.fit(open_view(sketch))
    keep(model, save, force)


def keep(model: SavedModel, save: Path | None, force: bool) -> None:
    from dpsketch.learn.saved import save_model

    if save is not None:
        save_model(model, save, force)
        err.print(f"{save}: the model; score rows with it: dpsketch score {save} TABLE -o scores.csv")


def chosen_format(format_: str, as_json: bool) -> str:
    """`--json` is `--format json`."""
    if format_ not in FORMATS:
        raise QueryError(f"--format must be one of {', '.join(FORMATS)}, got '{format_}' instead")
    return "json" if as_json else format_


def check(sketch: Path, plot: Path | None, save: Path | None, force: bool) -> None:
    if plot is not None:
        check_picture(plot, force, sketch, save)
    if save is not None:
        check_free(save, force, sketch)


def print_rows(rows: list[dict[str, Any]], facts: dict[str, Any], format_: str) -> None:
    if format_ == "json":
        known = [{key: None if value != value else _dated(value) for key, value in row.items()} for row in rows]
        print_json(facts | {"rows": known})
    elif format_ == "csv":
        writer = csv.DictWriter(sys.stdout, list(rows[0]))
        writer.writeheader()
        writer.writerows([{key: _dated(value) for key, value in row.items()} for row in rows])
    else:
        for shown in _tables(rows):
            out.print(shown)


def _dated(value: Any) -> Any:
    """A cell of JSON or CSV: dates as texts, spans of time in seconds."""
    from numpy import datetime64, timedelta64

    from dpsketch.learn.answer_table import plain

    return plain(value) if isinstance(value, datetime64 | timedelta64) else value


def _tables(rows: list[dict[str, Any]]) -> Iterator[RichTable]:
    """Tables with one line a row; if that is wider than the screen, one column a row, several side by side."""
    names = [name for name in rows[0] if not name.endswith("_stderr")]
    lines = [names, *([_cell(row, name) for name in names] for row in rows)]
    whole = _table(lines)
    if _fits(whole):
        yield whole
        return
    head, left = lines[0], lines[1:]
    while left:
        fitting = (count for count in range(len(left), 0, -1) if _fits(_turned([head, *left[:count]])))
        count = next(fitting, 1)
        yield _turned([head, *left[:count]])
        left = left[count:]


def _turned(lines: list[list[str]]) -> RichTable:
    return _table([list(line) for line in zip(*lines, strict=True)])


def _table(lines: list[list[str]]) -> RichTable:
    """A table whose header is the first line."""
    shown = RichTable()
    for name in lines[0]:
        shown.add_column(name, justify="right")
    for line in lines[1:]:
        shown.add_row(*line)
    return shown


def _fits(shown: RichTable) -> bool:
    return Measurement.get(out, out.options.update(width=_UNBOUNDED), shown).maximum <= out.width


def _cell(row: dict[str, Any], name: str) -> str:
    from dpsketch.learn.answer import Answer

    error, value = row.get(f"{name}_stderr"), row[name]
    if error is not None and error == error:
        return str(Answer(value, error))
    return plain_number(value) if isinstance(value, float) else str(value)
