"""`dpsketch fit density`, `anomaly` and `modes`: where records are, and where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.console import AsJson, Force, err, listed, out, warnings_told
from dpsketch.cli.fitted import Columns, Format, Save, Seed, check, chosen_format, fit_and_keep, keep, print_rows
from dpsketch.errors import QueryError

if TYPE_CHECKING:
    from dpsketch.learn.models.density.kernel_density import KernelDensity
    from dpsketch.learn.view import View

Sketch = Annotated[Path, typer.Argument(help="A release made with --for density, anomaly or graph, or a general one.")]
Kernel = Annotated[
    str | None,
    typer.Option(help="euclidean, gaussian or laplacian. Default: that of the release; euclidean for a table."),
]
BandwidthText = Annotated[
    str | None,
    typer.Option(
        "--bandwidth",
        help="A number in widths of the bounds, or wage=5000,age=2 in the columns' units. A table accepts any "
        "bandwidth. Default: the one that it was released for.",
    ),
]
_OF_KERNELS = ("--columns", "--kernel", "--bandwidth", "--plot")


def density(
    sketch: Annotated[
        Path, typer.Argument(help="A release made with --for density, anomaly, graph or synthetic, or a general one.")
    ],
    columns: Columns = None,
    kernel: Kernel = None,
    bandwidth: BandwidthText = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="For hashed counters: mean over their rows (default), or median of means. For a grid: cells "
            "(default), heap, sketch or normalised (the paper's)."
        ),
    ] = None,
    heavy: Annotated[int | None, typer.Option(min=1, help="Number of cells that a heap keeps. Default: 5000.")] = None,
    format_: Format = "table",
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="SVG or PNG file to write: the density over one or two columns.")
    ] = None,
    save: Save = None,
    force: Force = False,
) -> None:
    """Fit a density and print how it is estimated: a kernel density or, of a release with a grid alone and without
    options of a kernel, one that is constant inside its cells. Keep it with --save, evaluate it with `dpsketch score`.
    """
    from dpsketch.learn.models.density.kernel_density import KernelDensity
    from dpsketch.learn.models.grid_density import METHODS as GRID_METHODS
    from dpsketch.learn.view import open_view

    format_ = chosen_format(format_, as_json)
    check(sketch, plot, save, force)
    view = open_view(sketch)
    options = zip(_OF_KERNELS, (columns, kernel, bandwidth, plot), strict=True)
    given = [name for name, value in options if value is not None]
    if heavy is not None or method in GRID_METHODS or (_only_grids(view) and method is None and not given):
        _grid_density(view, method, heavy, given, format_, save, force)
        return
    with warnings_told():
        model = KernelDensity(kernel, _bandwidth(bandwidth), listed(columns), method or "mean").fit(view)
    if plot is not None:
        model.plot(plot)
        err.print(f"{plot}: the density, in the table's units")
    keep(model, save, force)
    names, kernel_text = [str(name) for name in model.feature_names_in_], _kernel(model)
    made = {"columns": ", ".join(names), "kernel": kernel_text}
    several = len(model.considered_) > 1
    rows = [made | {"from": how} | ({"mean_error": error} if several else {}) for how, error in model.considered_]
    if model.typical_ is not None:
        rows[0] |= {"typical_density": model.typical_.value, "typical_density_stderr": model.typical_.stderr}
    print_rows(rows, {"columns": names, "kernel": kernel_text, "how": model.how_}, format_)
    if format_ == "table" and several:
        out.print("The first estimate is used: it has the smallest mean standard error.")
    if format_ == "table" and model.typical_ is not None:
        out.print("The typical density is the mean at drawn rows; ± is one standard error there.")


def anomaly(
    sketch: Annotated[Path, typer.Argument(help="A release made with --for anomaly or density, or a general one.")],
    contamination: Annotated[
        float, typer.Option(help="Expected share of anomalies: public knowledge, not taken from the data.")
    ] = 0.01,
    columns: Columns = None,
    kernel: Kernel = None,
    bandwidth: BandwidthText = None,
    format_: Format = "table",
    as_json: AsJson = False,
    save: Save = None,
    force: Force = False,
) -> None:
    """Fit an anomaly scorer and print its threshold. Keep it with --save, score rows with `dpsketch score`."""
    from dpsketch.learn.models.density.anomaly import AnomalyScorer

    format_ = chosen_format(format_, as_json)
    model = AnomalyScorer(contamination, listed(columns), kernel, _bandwidth(bandwidth))
    fit_and_keep(model, sketch, None, save, force)
    names = [str(name) for name in model.feature_names_in_]
    row = {"contamination": contamination, "threshold": float("nan") if model.offset_ is None else model.offset_}
    if model.offset_stderr_ == model.offset_stderr_:
        row["threshold_stderr"] = model.offset_stderr_
    print_rows([row], {"columns": names, "how": model.how_}, format_)
    if format_ == "table":
        out.print(f"Scores of {', '.join(names)} from {model.how_}; below the threshold is an anomaly.")
    if model.offset_ is None:
        err.print("No threshold: this release has no estimate of the distribution of scores; --for anomaly adds one.")


def modes(
    sketch: Sketch,
    k: Annotated[int, typer.Option("--k", help="Maximum number of modes.")] = 1,
    columns: Columns = None,
    method: Annotated[str, typer.Option(help="restart, or cells: from the heaviest hash cells.")] = "restart",
    kernel: Kernel = None,
    bandwidth: BandwidthText = None,
    format_: Format = "table",
    as_json: AsJson = False,
    seed: Seed = 0,
) -> None:
    """Find modes of the density in the table's units, densest first."""
    from dpsketch.learn.models.density.modes import find_modes
    from dpsketch.learn.view import open_view

    format_ = chosen_format(format_, as_json)
    check(sketch, None, None, False)
    with warnings_told():
        densest = find_modes(open_view(sketch), k, listed(columns), method, seed, kernel, _bandwidth(bandwidth))
    rows = [{key: _plain(value) for key, value in row.items()} for row in densest.to_dicts()]
    rows = [{("density_stderr" if key == "stderr" else key): value for key, value in row.items()} for row in rows]
    print_rows(rows, {"how": densest.how}, format_)
    if format_ == "table":
        out.print(f"{densest.how}; ± is one standard error of the density there.")


def _only_grids(view: View) -> bool:
    from dpsketch.maps.hashed.race import BoundRace
    from dpsketch.maps.tables.grid import BoundGrid
    from dpsketch.maps.tables.histogram import BoundHistogram

    grids, *others = (any(view.released.parts_with(each)) for each in (BoundGrid, BoundRace, BoundHistogram))
    return grids and not any(others)


def _grid_density(
    view: View, method: str | None, heavy: int | None, refused: list[str], format_: str, save: Path | None, force: bool
) -> None:
    from dpsketch.learn.models.grid_density import GridDensity
    from dpsketch.learn.population.grids.heap import HEAVIEST

    if refused:
        raise QueryError(
            f"{' and '.join(refused)}: not of the density of a grid, which is constant inside its cells",
            "leave them out, or leave out --heavy and --method for a kernel density",
        )
    model = GridDensity(method or "cells", heavy=HEAVIEST if heavy is None else heavy).fit(view)
    keep(model, save, force)
    names = [str(name) for name in model.feature_names_in_]
    row: dict[str, Any] = {"columns": ", ".join(names), "method": model.method, "level": model.level_}
    if model.method == "heap":
        row |= {"captured": model.captured_.value, "captured_stderr": model.captured_.stderr}
    print_rows([row | {"from": model.how_}], {"columns": names, "how": model.how_}, format_)


def _bandwidth(text: str | None) -> float | dict[str, float] | None:
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        return {name.strip(): float(number) for name, number in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise QueryError(
            f"--bandwidth must be a number, or numbers of columns, got '{text}' instead", "write wage=5000,age=2"
        ) from None


def _kernel(model: KernelDensity) -> str:
    from dpsketch.learn.estimators.radial_kernels import Radial

    kernel = model.kernel_
    if not isinstance(kernel, Radial):
        return str(kernel)
    widths = dict.fromkeys(f"{1 / span:.3g}" for span in kernel.spans)  # usually all the same
    return f"{kernel.name}, {', '.join(widths)} of the bounds"


def _plain(value: Any) -> Any:
    """A value for CSV and JSON: dates become text."""
    return float(value) if isinstance(value, float) else str(value)
