"""Where commands print, and what several of them share: options, a bar, checks of output files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dpsketch.errors import FileError

out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

SchemaPath = Annotated[Path, typer.Option("--schema", help="TOML file with the table's public facts.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Rows = Annotated[int | None, typer.Option(help="Public order of magnitude of the rows; overrides the schema.")]
Epsilon = Annotated[float | None, typer.Option(help="Privacy budget of this release.")]
Delta = Annotated[float, typer.Option(help="Probability of outcomes that epsilon does not hold for, such as 1e-6.")]
Rho = Annotated[float | None, typer.Option(help="Zero-concentrated budget, instead of epsilon and delta.")]
Mechanism = Annotated[str, typer.Option(help="Noise: auto (whichever is less), laplace or gaussian.")]
RecipePath = Annotated[
    Path | None, typer.Option("--recipe", help="TOML file with the maps and their shares; by default a general recipe.")
]


def listed(names: str | None) -> list[str] | None:
    """Names with commas between them."""
    return None if names is None else [name.strip() for name in names.split(",")]


@contextmanager
def progress_bar(doing: str = "reading") -> Iterator[Any]:
    """A bar of the share of bytes read, or of another task, with the time that it took and will take: never a number of
    rows.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    times = (TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("left"))
    columns = (TextColumn(doing), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), *times)
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(doing, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def check_free(path: Path, force: bool, *inputs: Path | str | None) -> None:
    """Refuse before any work or spend what would be refused at the end, and what would overwrite an input."""
    if path.exists() and any(
        source is not None and Path(source).exists() and path.samefile(source) for source in inputs
    ):
        raise FileError(f"{path} is an input of this command", "choose another name for the output")
    if path.exists() and not force:
        raise FileError(f"{path} exists already", "choose another name, or pass --force to replace it")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a folder", "create it first")


def check_png(path: Path, force: bool, *inputs: Path | str | None) -> None:
    if path.suffix != ".png":
        raise FileError(f"{path} does not end in .png", "choose this ending")
    check_free(path, force, *inputs)
