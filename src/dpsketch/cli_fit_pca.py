"""`dpsketch fit pca`: parse, call, print."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from dpsketch.console import err, out
from dpsketch.errors import FileError


def register(app: typer.Typer) -> None:
    app.command()(pca)


def pca(
    sketch: Path,
    components: Annotated[int, typer.Option("-k", "--components", help="How many components.", min=1)],
    columns: Annotated[
        str | None, typer.Option(help="Columns, with commas between them; by default all numbers of the release.")
    ] = None,
    of: Annotated[
        str,
        typer.Option(
            help="covariance: in the table's units; second_moments: uncentred, columns scaled by their bounds."
        ),
    ] = "covariance",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write: .csv or .json. Without one, print.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG file to write: the share of variance of each.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Principal components of a release, with standard errors; costs no privacy."""
    from dpsketch.learn.models.pca import PCA
    from dpsketch.learn.view import open_view

    _check_output(output, (".csv", ".json"), force, sketch)
    _check_output(plot, (".png",), force, sketch)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = PCA(components, names, of).fit(open_view(sketch))
    for warning in caught:
        err.print(str(warning.message))
    if plot is not None:
        model.plot(plot)
        err.print(f"{plot}: share of variance of each component")
    rows = model.to_dicts()
    if output is None:
        out.print(f"{model.how_}; ± is one standard error.")
        shown = Table("component", "variance", "share of all", "largest entries")
        for row, axis in zip(rows, model.components_, strict=True):
            largest = sorted(zip(model.feature_names_in_, axis, strict=True), key=lambda each: -abs(each[1]))[:4]
            shown.add_row(
                str(row["component"]),
                f"{row['explained_variance']:.4g} ± {row['explained_variance_stderr']:.2g}",
                f"{row['explained_variance_ratio']:.4f} ± {row['explained_variance_ratio_stderr']:.2g}",
                ", ".join(f"{name} {value:+.2f}" for name, value in largest),
            )
        out.print(shown)
        return
    with output.open("w", newline="", encoding="utf-8") as file:
        if output.suffix == ".json":
            facts: dict[str, Any] = {
                "mean": dict(zip(model.feature_names_in_.tolist(), model.mean_.tolist(), strict=True))
            }
            facts |= {"how": model.how_, "converged": model.converged_}
            json.dump(facts | {"components": rows}, file, indent=2, ensure_ascii=False)
        else:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    print(f"{output}: {components} components", file=sys.stderr)


def _check_output(path: Path | None, endings: tuple[str, ...], force: bool, source: Path) -> None:
    """Refuse before any work what would be refused at the end."""
    if path is None:
        return
    if path.suffix not in endings:
        raise FileError(f"{path} does not end in {' or '.join(endings)}", "choose one of these endings")
    if path.exists() and (not force or path.samefile(source)):
        raise FileError(f"{path} exists already", "choose another name, or pass --force to replace it")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a folder", "create it first")
