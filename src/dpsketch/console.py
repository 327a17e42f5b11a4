"""Where commands print, and what several of them share: an option, a bar, a check of the output file."""

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


@contextmanager
def progress_bar(doing: str = "reading") -> Iterator[Any]:
    """A bar of the share of bytes read, or of another task: never a number of rows."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(doing), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn())
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
