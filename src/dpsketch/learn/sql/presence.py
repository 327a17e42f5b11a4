"""Conditions on whether the source of a computed column is missing.

A part of a date, or the range of a number, is missing exactly where its source is: `pickup is not null` is `hour is not
null`. A question that asks nothing else of the source is then about the computed column alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsketch.schema.schema import Schema

_PRESENT_WITH_SOURCE = ("part", "edges")  # a ratio or difference needs two sources, and a ratio may not exist


def with_own_presence(expression: exp.Expr, schema: Schema, beside: Sequence[str] = ()) -> exp.Expr:
    """Ask a computed column whether it is missing, instead of its source, in place. The question is about the columns
    of the expression and those `beside` it.
    """
    nodes = [node for node in expression.find_all(exp.Column) if not isinstance(node.this, exp.Star)]
    asked = {*beside, *(node.name for node in nodes)}
    of_values = {*beside, *(node.name for node in nodes if not _of_presence(node))}
    computed: dict[str, str] = {}
    for column in schema.columns:
        of = column.derived
        if of is not None and of.form in _PRESENT_WITH_SOURCE and column.name in asked:
            computed.setdefault(of.sources[0], column.name)
    for node in nodes:
        if node.name in computed and node.name not in of_values:
            node.replace(exp.column(exp.to_identifier(computed[node.name], quoted=True)))
    return expression


def _of_presence(node: exp.Column) -> bool:
    """Whether a column stands in `x is null`, `x is not null` or `count(x)` alone."""
    parent: exp.Expr | None = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Count) or (
        isinstance(parent, exp.Is) and isinstance(parent.expression.unnest(), exp.Null)
    )
