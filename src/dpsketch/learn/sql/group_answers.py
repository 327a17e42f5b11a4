"""The groups of a statement as having and order by see them: their labels and answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlglot import exp

from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Column, Number
from dpsketch.schema.schema import Schema


class GroupAnswers(Frame):
    """A frame with one point for each group and answers as columns."""

    def __init__(self, columns: dict[str, Column], values: dict[str, Floats], size: int) -> None:
        schema = Schema(tuple(columns.values()) or (Number("-"),))
        super().__init__(schema, {name: np.zeros(size, np.int16) for name in (*columns, "-")})
        self._values = values


def column_named(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True))


def in_order(rows: list[int], values: list[Any], ordered: exp.Ordered) -> list[int]:
    """Rows sorted by their values. The sort is stable: keys of order by are applied from the last to the first."""
    known = [row for row in rows if values[row] is not None]
    known.sort(key=lambda row: values[row], reverse=bool(ordered.args.get("desc")))
    null = [row for row in rows if values[row] is None]
    return [*null, *known] if ordered.args.get("nulls_first") else [*known, *null]
