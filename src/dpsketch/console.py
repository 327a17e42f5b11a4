"""Where commands print, and what several of them share: options, a bar, checks of output files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from dpsketch.errors import FileError, visible_lines


class _Visible:
    """Something to print, with escapes for characters that a terminal would obey: labels come from files."""

    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._shown, options):
            yield Segment(text if control else visible_lines(text), style, control)


class _Escape(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Visible(each) for each in renderables]


out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
for _console in (out, err):
    _console.push_render_hook(_Escape())

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


def print_json(facts: Any) -> None:
    """Plain JSON on standard output."""
    print(visible_lines(json.dumps(facts, indent=2, ensure_ascii=False)))


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
