"""Pictures as SVG text: plain shapes and texts, the same for the same numbers, with no other library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from dpsketch.errors import visible
from dpsketch.numerics.arrays import Floats
from dpsketch.plots.picture import NAMES, Cells, Picture, Series, Surface
from dpsketch.plots.ticks import Tick, number_label, ticks_of

WIDTH, HEIGHT = 460, 300  # of a panel
_TOP, _RIGHT = 34, 16
_LETTER = 6.4  # width of a letter of 11 pixels, on average a little more than it takes
_LONGEST = 22  # letters of a name
_COLOURS = ("#2f6db3", "#d1701e", "#3a8f5c", "#8a5bb5", "#b23a48", "#6b6b6b")
_HATCH = 6.0  # pixels between the lines of a hatched cell
_LEVELS = 32  # shades of a surface
_CIRCLE = 22.0  # radius of the circle of a cross with all records
_BLUE, _RED = (8, 69, 148), (165, 15, 21)
_MARK = "#c1272d"
_STYLE = "font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:11px"


def svg(pictures: Sequence[Picture], across: int = 1) -> str:
    """Panels in rows of `across`."""
    across = min(across, len(pictures))
    rows = -(-len(pictures) // across)
    width, height = WIDTH * across, HEIGHT * rows
    panels = [
        f'<g transform="translate({WIDTH * (index % across)},{HEIGHT * (index // across)})">{_Panel(each).drawn()}</g>'
        for index, each in enumerate(pictures)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    back = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([f'{head} role="img" style="{_STYLE}">', back, *panels, "</svg>"]) + "\n"


class _Panel:
    """One picture in its own coordinates, with room for the labels of its axes."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        named = len([each for each in picture.series if each.name])
        self._framed = picture.cells is not None or picture.surface is not None
        self._lows, self._highs = _limits(picture)
        self._y_ticks = ticks_of(picture.y, self._lows[1], self._highs[1], 14 if picture.cells is not None else 5)
        widest = max((len(_short(text)) for _, text in self._y_ticks), default=1)
        self._left = 30 + _LETTER * widest
        self._right = WIDTH - _RIGHT - (58 if self._framed else 0)
        self._top = _TOP + (14 * named if named > 1 else 0)
        self._x_ticks, self._turned = self._fitting()
        longest = max((len(_short(text)) for _, text in self._x_ticks), default=1)
        self._bottom = HEIGHT - 38 - (0.72 * _LETTER * longest if self._turned else 8) - (14 if picture.note else 0)

    def drawn(self) -> str:
        picture = self._picture
        parts = [_text(WIDTH / 2, 18, _cut(picture.title, 64), "middle", "font-size:13px;font-weight:bold")]
        parts += self._grid()
        if picture.cells is not None:
            parts += self._cells(picture.cells)
        if picture.surface is not None:
            parts += self._surface(picture.surface)
        several = len(picture.series) > 1
        for index, series in enumerate(picture.series):
            colour = _COLOURS[index % len(_COLOURS)]
            drawn = {"bars": self._bars, "points": self._marks, "crosses": self._marks, "area": self._area}
            parts += drawn.get(series.kind, self._curve)(series, colour)
            if several and series.name:
                y = _TOP - 8 + 14 * index
                parts.append(f'<rect x="{self._left:.1f}" y="{y}" width="10" height="10" fill="{colour}"/>')
                parts.append(_text(self._left + 14, y + 9, _cut(series.name, 58), "start"))
        parts += self._axes()
        if picture.note:
            parts.append(_text(WIDTH / 2, HEIGHT - 4, _cut(picture.note, 82), "middle", "font-size:10px;fill:#555"))
        return "\n".join(parts)

    def _fitting(self) -> tuple[list[Tick], bool]:
        """Ticks of the x axis whose labels do not overlap; names are turned where they would."""
        axis, width = self._picture.x, self._right - self._left
        low, high = self._lows[0], self._highs[0]
        for most in range(8 if axis.scale != NAMES else max(len(axis.names), 1), 1, -1):
            ticks = ticks_of(axis, low, high, most)
            room = self._least_gap(ticks)
            if all(_LETTER * len(_short(text)) + 8 < room for _, text in ticks):
                return ticks, False
            if axis.scale == NAMES and room >= 13:
                return ticks, True
        return ticks_of(axis, low, high, max(1, int(width / 90))), axis.scale == NAMES

    def _least_gap(self, ticks: list[Tick]) -> float:
        places = np.sort([self._x(np.array([value]))[0] for value, _ in ticks])
        return float(np.diff(places).min()) if len(places) > 1 else self._right - self._left

    def _x(self, values: Floats) -> Floats:
        axis = self._picture.x
        low, high = axis.scaled(np.array([self._lows[0], self._highs[0]]))
        return self._left + (axis.scaled(values) - low) / max(high - low, 1e-300) * (self._right - self._left)

    def _y(self, values: Floats) -> Floats:
        axis = self._picture.y
        low, high = axis.scaled(np.array([self._lows[1], self._highs[1]]))
        share = (axis.scaled(values) - low) / max(high - low, 1e-300)
        return self._bottom - np.clip(share, -0.02, 1.02) * (self._bottom - self._top)

    def _grid(self) -> list[str]:
        if self._framed:
            return []
        across = f'x1="{self._left:.1f}" x2="{self._right:.1f}"'
        places = [(value, self._y(np.array([value]))[0]) for value, _ in self._y_ticks]
        return [
            f'<line {across} y1="{y:.1f}" y2="{y:.1f}" stroke="{"#e4e4e4" if value else "#888"}"/>'
            for value, y in places
        ]

    def _axes(self) -> list[str]:
        picture, base = self._picture, self._bottom
        parts = []
        if picture.cells is None:
            parts.append(
                f'<line x1="{self._left:.1f}" x2="{self._right:.1f}" y1="{base:.1f}" y2="{base:.1f}" stroke="#333"/>'
            )
        for value, text in self._x_ticks:
            x = self._x(np.array([value]))[0]
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{base:.1f}" y2="{base + 4:.1f}" stroke="#333"/>')
            if self._turned:
                parts.append(
                    _text(x + 3, base + 13, _short(text), "end", "", f"rotate(-40 {x + 3:.1f} {base + 13:.1f})")
                )
            else:
                inside = WIDTH - _LETTER / 2 * len(_short(text))
                parts.append(_text(min(x, inside), base + 16, _short(text), "middle"))
        for value, text in self._y_ticks:
            parts.append(_text(self._left - 6, self._y(np.array([value]))[0] + 4, _short(text), "end"))
        low = HEIGHT - (20 if picture.note else 6)
        parts.append(_text((self._left + self._right) / 2, low, _cut(picture.x.label, 60), "middle"))
        middle = (self._top + base) / 2
        parts.append(_text(12, middle, _cut(picture.y.label, 36), "middle", "", f"rotate(-90 12 {middle:.1f})"))
        return parts

    def _curve(self, series: Series, colour: str) -> list[str]:
        """A line or steps with a band, interrupted where nothing is known."""
        steps = series.kind == "steps"
        x = np.repeat(series.x, 2)[1:-1] if steps else series.x
        y, low, high = (np.repeat(each, 2) if steps else each for each in (series.y, series.low, series.high))
        parts = []
        for run in _runs(np.isfinite(y)):
            places = self._x(x[run])
            if len(places) == 1:
                ends = self._y(np.array([low[run][0], high[run][0]]))
                parts.append(
                    f'<path d="M{places[0]:.1f} {ends[0]:.1f}V{ends[1]:.1f}" stroke="{colour}" opacity="0.4"/>'
                )
            sides = zip((places, places[::-1]), (self._y(low[run]), self._y(high[run])[::-1]), strict=True)
            band = " ".join(_points(across, up) for across, up in sides)
            parts.append(f'<polygon points="{band}" fill="{colour}" fill-opacity="0.25"/>')
            line = _points(places, self._y(y[run]))
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            if not steps and len(places) <= 40:
                parts += [
                    f'<circle cx="{across:.1f}" cy="{up:.1f}" r="2.2" fill="{colour}"/>'
                    for across, up in zip(places, self._y(y[run]), strict=True)
                ]
        for run in _runs(np.isnan(y)) if steps else []:
            left, right = self._x(x[run])[[0, -1]]
            parts.append(_hatched(left, self._top, right - left, self._bottom - self._top))
        return parts

    def _bars(self, series: Series, colour: str) -> list[str]:
        several = [each for each in self._picture.series if each.kind == "bars"]
        share = 0.7 / len(several)
        offset = -0.35 + share * several.index(series)
        parts = []
        zero = self._y(np.zeros(1))[0]
        for index, (value, low, high) in enumerate(zip(series.y, series.low, series.high, strict=True)):
            left, right = self._x(np.array([index + offset, index + offset + share]))
            middle = (left + right) / 2
            if np.isnan(value):
                parts.append(_text(middle, zero - 4, "?", "middle", "fill:#555"))
                continue
            top = self._y(np.array([value]))[0]
            parts.append(_box(left, min(top, zero), right - left, abs(zero - top), colour, 0.55))
            ends = self._y(np.array([low, high]))
            parts.append(
                f'<path d="M{middle:.1f} {ends[0]:.1f}V{ends[1]:.1f}M{middle - 3:.1f} {ends[0]:.1f}h6'
                f'M{middle - 3:.1f} {ends[1]:.1f}h6" stroke="#222" fill="none"/>'
            )
        return parts

    def _marks(self, series: Series, colour: str) -> list[str]:
        """Points, or red crosses in circles."""
        places = zip(self._x(series.x), self._y(series.y), strict=True)
        if series.kind == "points":
            return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8" fill="{colour}"/>' for x, y in places]
        parts = []
        sizes = np.zeros(len(series.x)) if series.sizes is None else series.sizes
        for (x, y), size in zip(places, sizes, strict=True):
            cross = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
            parts.append(f'<path d="{cross}" stroke="{_MARK}" stroke-width="1.6"/>')
            radius = _CIRCLE * size**0.5
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="none" stroke="{_MARK}"/>')
        return parts

    def _area(self, series: Series, colour: str) -> list[str]:
        places = self._x(series.x)
        ends = _points(places, self._y(series.low)), _points(places[::-1], self._y(series.high)[::-1])
        return [f'<polygon points="{" ".join(ends)}" fill="{colour}" fill-opacity="0.3"/>']

    def _surface(self, surface: Surface) -> list[str]:
        """Filled levels: one path for each shade, and equal neighbours in a row as one rectangle."""
        most = float(surface.values.max(initial=0.0)) or 1.0
        levels = np.rint(np.clip(surface.values / most, 0, 1) * _LEVELS).astype(int)
        x, y = self._x(surface.x), self._y(surface.y)
        paths: dict[int, list[str]] = {level: [] for level in range(1, _LEVELS + 1)}
        for row, own in enumerate(levels):
            starts = np.flatnonzero(np.diff(own, prepend=-1))
            for start, end in zip(starts, [*starts[1:], len(own)], strict=True):
                box = f"M{x[start]:.1f} {y[row]:.1f}H{x[end]:.1f}V{y[row + 1]:.1f}H{x[start]:.1f}z"
                paths.setdefault(int(own[start]), []).append(box)
        paths.pop(0, None)
        shades = [
            f'<path d="{"".join(boxes)}" fill="{_shade(level / _LEVELS)}" shape-rendering="crispEdges"/>'
            for level, boxes in paths.items()
            if boxes
        ]
        width, height = self._right - self._left, self._bottom - self._top
        frame = f'<rect x="{self._left:.1f}" y="{self._top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        return [*shades, frame + 'fill="none" stroke="#333"/>', *self._colour_bar(most, False)]

    def _cells(self, cells: Cells) -> list[str]:
        x = self._x(np.arange(cells.values.shape[1] + 1) - 0.5)
        y = self._y(np.arange(cells.values.shape[0] + 1) - 0.5)
        known = np.abs(cells.values[np.isfinite(cells.values)])
        most = float(known.max()) if known.size and known.max() > 0 else 1.0
        parts: list[str] = []
        for (row, column), value in np.ndenumerate(cells.values):
            across, up = float(x[column]), float(y[row + 1])
            place = across, up, float(x[column + 1]) - across, float(y[row]) - up
            parts.append(_box(*place, _shade(value / most) if np.isfinite(value) else "#eee"))
            if cells.hatched[row, column] or not np.isfinite(value):
                parts.append(_hatched(*place))
        return [*parts, *self._colour_bar(most, cells.signed)]

    def _colour_bar(self, most: float, signed: bool) -> list[str]:
        left, steps = self._right + 8, 24
        shares = np.linspace(1, -1 if signed else 0, steps)
        height = (self._bottom - self._top) / steps
        bar = [_box(left, self._top + i * height, 10, height + 0.5, _shade(share)) for i, share in enumerate(shares)]
        ends = (
            (self._top + 8, number_label(float(f"{most:.3g}"))),
            (self._bottom, number_label(float(f"{-most:.3g}")) if signed else "0"),
        )
        return [*bar, *(_text(left + 14, y, text, "start") for y, text in ends)]


def _limits(picture: Picture) -> tuple[tuple[float, float], tuple[float, float]]:
    """The least values of both axes, and the greatest."""
    ends = []
    surface = [] if picture.surface is None else [picture.surface]
    for axis, every in (
        (picture.x, [each.x for each in picture.series] + [each.x for each in surface]),
        (
            picture.y,
            [part for each in picture.series for part in (each.y, each.low, each.high)] + [each.y for each in surface],
        ),
    ):
        if axis.scale == NAMES:
            ends.append((-0.5, len(axis.names) - 0.5))
            continue
        values = np.concatenate([*every, *([np.zeros(1)] if axis is picture.y and _from_zero(picture) else [])])
        values = values[np.isfinite(axis.scaled(values))]
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        if not high > low:
            low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
        ends.append((low, high))
    return (ends[0][0], ends[1][0]), (ends[0][1], ends[1][1])


def _from_zero(picture: Picture) -> bool:
    return picture.y.scale == "linear" and any(each.kind in ("bars", "steps") for each in picture.series)


def _runs(mask: np.ndarray) -> list[slice]:
    """Stretches where a mask holds."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [slice(start, end) for start, end in edges.reshape(-1, 2)]


def _shade(share: float) -> str:
    """White at zero, blue at one, red at minus one."""
    full = _BLUE if share >= 0 else _RED
    return "#" + "".join(f"{round(255 + min(abs(share), 1.0) * (part - 255)):02x}" for part in full)


def _points(x: Floats, y: Floats) -> str:
    return " ".join(f"{across:.1f},{up:.1f}" for across, up in zip(x, y, strict=True))


def _box(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> str:
    seen = "" if opacity == 1 else f' fill-opacity="{opacity}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{seen}/>'


def _hatched(x: float, y: float, width: float, height: float) -> str:
    """Diagonal lines inside a box."""
    lines = []
    for start in np.arange(_HATCH / 2, width + height, _HATCH):  # where they would leave the upper edge
        left, right = max(start - height, 0.0), min(start, width)
        lines.append(f"M{x + left:.1f} {y + start - left:.1f}L{x + right:.1f} {y + start - right:.1f}")
    return f'<path d="{"".join(lines)}" stroke="#8a8a8a" stroke-width="0.8"/>'


def _text(x: float, y: float, text: str, anchor: str, style: str = "", turn: str = "") -> str:
    more = (f' style="{style}"' if style else "") + (f' transform="{turn}"' if turn else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(visible(text))}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _short(text: str) -> str:
    return _cut(text, _LONGEST)
