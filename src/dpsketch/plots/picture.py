"""What a picture shows, without how it is drawn: axes, and series or cells with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats

LINEAR, LOG, ASINH, DATE, NAMES = "linear", "log", "asinh", "date", "names"


@dataclass(frozen=True)
class Axis:
    """A label, and a scale: linear, log, asinh, date (microseconds since 1970), or one place for each name."""

    label: str = ""
    scale: str = LINEAR
    names: tuple[str, ...] = ()

    def scaled(self, values: Floats) -> Floats:
        """Positions along the axis."""
        if self.scale == LOG:
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.log10(values)
        return np.arcsinh(values) if self.scale == ASINH else np.asarray(values, np.float64)


@dataclass(frozen=True)
class Series:
    """Values with the ends of their intervals; not-a-number where nothing is known.

    `kind` is steps (x are the edges of bins, one more than values), bars (x is not used: one a name of the axis),
    line, points, crosses (with circles whose areas are the `sizes`) or area (what lies between the ends).
    """

    kind: str
    x: Floats
    y: Floats
    low: Floats
    high: Floats
    name: str = ""
    sizes: Floats | None = None

    @classmethod
    def exact(cls, kind: str, x: Floats, y: Floats, name: str = "", sizes: Floats | None = None) -> Series:
        """Values without intervals."""
        return cls(kind, x, y, y, y, name, sizes)


@dataclass(frozen=True)
class Cells:
    """A matrix of values, a row for each name of the y axis. Cells that cannot be told from zero are hatched."""

    values: Floats
    hatched: NDArray[np.bool_]
    signed: bool = False  # colours for values below and above zero


@dataclass(frozen=True)
class Surface:
    """Values of at least zero over two axes of numbers: a row for each cell of the y axis, with the edges of cells."""

    values: Floats
    x: Floats
    y: Floats


@dataclass(frozen=True)
class Picture:
    """One panel: series over an x axis, perhaps over a surface, or cells over two axes of names."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    cells: Cells | None = None
    note: str = ""
    surface: Surface | None = None
