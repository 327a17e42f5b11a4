"""A drawing of one or more pictures: notebooks show it, `save` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpsketch.displays import counted
from dpsketch.plots.picture import Picture
from dpsketch.plots.svg import svg
from dpsketch.plots.written import write_picture


@dataclass(frozen=True)
class Drawing:
    """Pictures beside each other, `across` in a row."""

    pictures: tuple[Picture, ...]
    across: int = 1

    @property
    def svg(self) -> str:
        """The drawing as SVG text."""
        return svg(self.pictures, self.across)

    def save(self, path: str | Path) -> None:
        """Write an SVG or, with CairoSVG, a PNG file, by the ending of its name. An existing file is replaced."""
        write_picture(path, self.svg)

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing({counted(len(self.pictures), 'picture')}: save('name.svg') writes it)"
