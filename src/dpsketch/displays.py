"""Short texts and HTML tables for prompts and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from html import escape
from reprlib import repr as short
from typing import Any

from dpsketch.errors import visible

MOST_LISTED = 8  # names in a line
MOST_SHOWN = 200  # rows of a table


def brief(value: Any) -> str:
    """The repr of a frozen description without the fields that have their default value."""
    if not is_dataclass(value):
        return short(value)
    given = [each for each in fields(value) if each.repr and getattr(value, each.name) not in _defaults(each)]
    inner = ", ".join(f"{each.name}={brief(getattr(value, each.name))}" for each in given)
    return f"{type(value).__name__}({inner})"


def _defaults(field: Any) -> tuple[Any, Any]:
    """The default of a field, and the value that `__post_init__` gives it then."""
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return default, field.metadata.get("filled", default)


def listed(names: Sequence[str]) -> str:
    """A text such as: age, income, … and 12 more"""
    shown = ", ".join(names[:MOST_LISTED])
    return shown if len(names) <= MOST_LISTED else f"{shown}, … and {len(names) - MOST_LISTED} more"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 column, 3 columns"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plain_number(value: float) -> str:
    """Four digits, or all before the point, without an exponent where commas will do: 0.1235, 69,782"""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def shown(cell: object) -> str:
    """The text of a cell; booleans as SQL writes them."""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table for a notebook. Texts may come from untrusted files, so everything is escaped."""
    lines = [[_cell(cell) for cell in row] for row in rows]
    left_out = len(lines) - MOST_SHOWN
    if left_out > 0:
        lines = [*lines[:MOST_SHOWN], [f"… and {left_out} more", *[""] * (len(header) - 1)]]
    head = "".join(f"<th>{_cell(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><caption>{_cell(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The same table as lines of text, with aligned columns."""
    lines = [[visible(shown(cell)) for cell in row] for row in rows]
    left_out = len(lines) - MOST_SHOWN
    lines = [list(map(visible, header)), *lines[:MOST_SHOWN]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*texts, f"… and {left_out} more"] if left_out > 0 else texts)


def _cell(content: object) -> str:
    return escape(visible(shown(content)))
