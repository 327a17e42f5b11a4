"""The consoles that commands print to, and what several commands share: options, progress bar, checks of outputs."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from dpsketch.errors import FileError, FitWarning, LedgerWarning, PrivacyWarning, RecipeWarning, visible_lines
from dpsketch.files import outputs
from dpsketch.files.outputs import same_file


class _Visible:
    """Something to print, with control characters escaped: labels come from files."""

    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._shown, options):
            yield Segment(text if control else visible_lines(text), style, control)


class _Escape(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Visible(each) for each in renderables]


class _Messages(Console):
    """Standard error: a message that cannot be printed must not turn a success into a failure."""

    def print(self, *objects: Any, **options: Any) -> None:
        with suppress(OSError):
            super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        self.quiet = True


class _Answers(Console):
    """Standard output: an answer that cannot be printed is a failure, reported with its reason."""

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise unprintable(error) from None


def unprintable(error: OSError) -> FileError:
    reason = error.strerror or "input/output error"
    return FileError(f"the output cannot be printed: {reason}", "print somewhere else")


out = _Answers(soft_wrap=True, highlight=False, markup=False)
err = _Messages(stderr=True, soft_wrap=True, highlight=False, markup=False)
for _console in (out, err):
    _console.push_render_hook(_Escape())

HELP = {"help_option_names": ["-h", "--help"]}
OutputPath = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
SchemaPath = Annotated[Path, typer.Option("--schema", help="TOML file with the table's public facts.")]
Plot = Annotated[Path | None, typer.Option(help="SVG or PNG file to write a picture to.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Rows = Annotated[
    int | None, typer.Option(help="Public order of magnitude of the number of rows. Default: the schema's.")
]
Epsilon = Annotated[float | None, typer.Option(help="Privacy budget of this release (epsilon).")]
Delta = Annotated[float, typer.Option(help="Delta of approximate differential privacy, such as 1e-6.")]
Rho = Annotated[float | None, typer.Option(help="Zero-concentrated privacy budget, instead of epsilon and delta.")]
Mechanism = Annotated[str, typer.Option(help="Noise: auto (the least), laplace or gaussian.")]
RecipePath = Annotated[
    Path | None, typer.Option("--recipe", help="TOML file with maps and their shares. Default: the general recipe.")
]


def listed(names: str | None) -> list[str] | None:
    """Split comma-separated names."""
    return None if names is None else [name.strip() for name in names.split(",")]


def print_json(facts: Any) -> None:
    """Print plain JSON on standard output."""
    print(visible_lines(json.dumps(facts, indent=2, ensure_ascii=False)))


def tell_written(as_json: bool, output: Path, message: str, **facts: Any) -> None:
    """Print a message about a written file, or JSON on standard output if that was asked for."""
    err.print(message)
    if as_json:
        print_json({"output": str(output)} | facts)


@contextmanager
def progress_bar(doing: str = "reading") -> Iterator[Any]:
    """Show a progress bar with elapsed and remaining time. It shows a share, such as of bytes read, and never a number
    of rows.
    """
    if not err.is_terminal:  # a disabled bar of older versions of rich prints an empty line
        yield lambda share: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    times = (TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("left"))
    columns = (TextColumn(doing), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), *times)
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(doing, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """Show a spinner on a terminal, for work of unknown length."""
    if not err.is_terminal or err.quiet:
        yield
        return
    with err.status(message):
        yield


@contextmanager
def warnings_told() -> Iterator[None]:
    """Print the warnings of a recipe, a fit or a release when it is done."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    for each in told:
        if issubclass(each.category, FitWarning | LedgerWarning | PrivacyWarning | RecipeWarning):
            err.print(f"Warning: {each.message}")


def check_free(path: Path, force: bool, *others: Path | str | None) -> None:
    """Refuse an output path before any work or spend: one that could not be written at the end, or that is one of the
    command's other files (its inputs, its ledger, another output).
    """
    for other in others:
        if other is not None and any(same_file(path, file) for file in _files(other)):
            raise FileError(f"{path} is another file of this command", "choose another name for the output")
        if isinstance(other, Path) and os.path.lexists(path) and path.resolve().is_relative_to(other.resolve()):
            raise FileError(f"{path} lies in {other}, an input of this command", "choose another name for the output")
    outputs.check_free(path, force)


def check_picture(path: Path, force: bool, *others: Path | str | None) -> None:
    if path.suffix not in (".svg", ".png"):
        raise FileError(f"{path} does not end in .svg or .png", "choose one of these endings")
    check_free(path, force, *others)


def _files(location: Path | str) -> list[Path]:
    """The files behind a path or the address of a ledger: SQLite keeps up to three more files beside its own."""
    if isinstance(location, Path):
        return [location]
    scheme, separator, rest = location.partition("://")
    if separator and scheme != "sqlite":
        return []
    name = rest.removeprefix("/").partition("?")[0].removeprefix("file:") if separator else location
    return [Path(name + ending) for ending in ("", "-journal", "-wal", "-shm")] if name else []
