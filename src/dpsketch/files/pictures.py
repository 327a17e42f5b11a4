"""Pictures of models as PNG or SVG files, by Matplotlib, drawn without touching the state of a user's own plots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsketch.extras import extra
from dpsketch.files.outputs import written


@contextmanager
def picture(
    path: str | Path, width: float, height: float, rows: int = 1, columns: int = 1
) -> Iterator[tuple[Any, Any]]:
    """A figure of this size in inches and its axes; written once the block ends without an error."""
    with extra():
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    yield figure, figure.subplots(rows, columns)
    figure.tight_layout()
    with written(path, force=True) as file:
        drawn = Path(path).suffix == ".svg"
        figure.savefig(file, dpi=110, format="svg" if drawn else "png", metadata={"Date": None} if drawn else None)


def plain_ticks(*lines: Any) -> None:
    """Label the ticks of these axis lines with whole numbers and commas: 200,000 instead of 2e5."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    for line in lines:
        line.set_major_locator(MaxNLocator(5))  # more labels with commas would touch
        line.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
