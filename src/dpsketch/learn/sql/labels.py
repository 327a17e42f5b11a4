"""Conditions on the labels of a category as texts: like, starts_with, lower(c) = …; and labels of two columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.sql.literals import find_column
from dpsketch.schema.columns import OTHER, Category, Column
from dpsketch.schema.schema import Schema

MOST_TERMS = 200  # labels that two columns have in common
TEXT_CONDITIONS: tuple[type[exp.Expr], ...] = (
    exp.Like,
    exp.ILike,
    exp.Escape,
    exp.StartsWith,
    exp.EndsWith,
    exp.Contains,
)
TEXT_FUNCTIONS: tuple[type[exp.Expr], ...] = (exp.Lower, exp.Upper, exp.Trim, exp.Left, exp.Right, exp.Substring)
_HINT = "compare labels of a category: sex like 'F%', sex in ('Female', 'Male'), lower(sex) = 'female'"


def matching(schema: Schema, node: exp.Expr) -> tuple[Column, NDArray[np.bool_]]:
    """The column of a condition on texts, and which of its levels meet it. No pattern matches what is not listed."""
    escape = None
    if isinstance(node, exp.Escape):
        node, escape = node.this, _text(node.expression)
        if len(escape) != 1:
            raise QueryError(f"'{node.sql('duckdb')}': the escape must be a single character", "escape '!'")
    pattern = _text(node.expression)
    column, labels = texts_of(schema, node.this)
    meets = _meets(node, pattern, escape)
    true = np.array([meets(label) for label in labels]) & ~_unlisted(column)
    return column, ~true if node.args.get("negate") else true


def _meets(node: exp.Expr, pattern: str, escape: str | None) -> Callable[[str], bool]:
    match node:
        case exp.Like():
            return lambda text: like(text, pattern, escape)
        case exp.ILike():
            return lambda text: like(text.lower(), pattern.lower(), escape)
        case exp.StartsWith():
            return lambda text: text.startswith(pattern)
        case exp.EndsWith():
            return lambda text: text.endswith(pattern)
        case exp.Contains():
            return lambda text: pattern in text
    raise QueryError(f"'{node.sql('duckdb')}' is not a supported condition", _HINT)


def like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Whether a text matches a pattern of SQL: `%` is any text, `_` any character. Linear memory, no backtracking
    further than to the latest `%`.
    """
    signs = _signs(pattern, escape)
    at = sign = 0
    star, tried = -1, 0
    while at < len(text):
        if sign < len(signs) and signs[sign] == "%":
            star, tried, sign = sign, at, sign + 1
        elif sign < len(signs) and signs[sign] in ("_", (text[at],)):
            at, sign = at + 1, sign + 1
        elif star >= 0:
            tried += 1
            at, sign = tried, star + 1
        else:
            return False
    return all(rest == "%" for rest in signs[sign:])


def _signs(pattern: str, escape: str | None) -> list[str | tuple[str]]:
    """Wildcards as they are, and other characters in a tuple of one."""
    signs: list[str | tuple[str]] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            signs.append((next(characters, character),))
        else:
            signs.append(character if character in "%_" else (character,))
    return signs


def texts_of(schema: Schema, node: exp.Expr) -> tuple[Column, list[str]]:
    """The column of an expression of texts, and its value for each of the column's labels."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        column = find_column(schema, node.name)
        if not isinstance(column, Category):
            raise QueryError(f"column '{column.name}' holds {column.kind}s, not texts", _HINT)
        return column, list(column.labels)
    if not isinstance(node, TEXT_FUNCTIONS):
        raise QueryError(f"'{node.sql('duckdb')}' is not a text", _HINT)
    column, texts = texts_of(schema, node.this)
    match node:
        case exp.Lower():
            return column, [text.lower() for text in texts]
        case exp.Upper():
            return column, [text.upper() for text in texts]
        case exp.Trim() if node.expression is None:
            return column, [text.strip() for text in texts]
        case exp.Left():
            return column, [text[: _length(node.expression)] for text in texts]
        case exp.Right():
            count = _length(node.expression)
            return column, [text[max(len(text) - count, 0) :] for text in texts]
        case exp.Substring():
            start = _length(node.args.get("start")) - 1
            end = None if node.args.get("length") is None else start + _length(node.args["length"])
            return column, [text[max(start, 0) : end] for text in texts]
    raise QueryError(f"'{node.sql('duckdb')}' is not supported", _HINT)


def _length(node: exp.Expr | None) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        raise QueryError("the lengths of texts are whole numbers", "left(c, 1), substring(c, 1, 2)")
    return min(int(node.name[:9]), 1 << 30)


def _text(node: exp.Expr) -> str:
    inner = node.unnest()
    if not isinstance(inner, exp.Literal) or not inner.is_string:
        raise QueryError(f"'{node.sql('duckdb')}' must be a text here", _HINT)
    return str(inner.this)


def _unlisted(column: Column) -> NDArray[np.bool_]:
    """The level that holds all values that are not listed."""
    unlisted = np.zeros(column.levels, np.bool_)
    if isinstance(column, Category) and OTHER not in map(str, column.values):
        unlisted[column.labels.index(OTHER)] = True
    return unlisted


def same_labels(one: Category, two: Category) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For every level of each: whether the labels are the same, and whether that is known. Two values that are not
    listed may be the same or not.
    """
    if set(map(str, one.values)).isdisjoint(map(str, two.values)):
        raise QueryError(
            f"columns '{one.name}' and '{two.name}' cannot be compared: they list no label in common",
            "compare each with a label",
        )
    same = np.array([[label == other for other in two.labels] for label in one.labels], np.bool_)
    only_mine, only_theirs = (_beyond_the_list_of(*pair) for pair in ((two, one), (one, two)))
    known = ~(np.outer(_unlisted(one), only_theirs) | np.outer(only_mine, _unlisted(two)))
    return same & known, known


def _beyond_the_list_of(other: Category, own: Category) -> NDArray[np.bool_]:
    """The levels of a column whose values another one counts as not listed."""
    listed = np.array(other.labels)[~_unlisted(other)]
    return ~np.isin(np.array(own.labels), listed) | _unlisted(own)


def label_terms(schema: Schema, condition: exp.Expr) -> tuple[tuple[Factor, ...], ...]:
    """A condition such as `origin = destination` as a sum over labels; empty for other conditions."""
    if not isinstance(condition, exp.EQ | exp.NEQ):
        return ()
    columns = [find_column(schema, side.name) for side in condition.iter_expressions() if isinstance(side, exp.Column)]
    pair = [column for column in columns if isinstance(column, Category)]
    if len(pair) < 2 or pair[0] == pair[1]:
        return ()
    return _sum_over_labels(pair[0], pair[1], isinstance(condition, exp.EQ))


def _sum_over_labels(one: Category, two: Category, equal: bool) -> tuple[tuple[Factor, ...], ...]:
    """Whether two columns have the same label, or labels that are known to differ, as a sum of products."""
    same, known = same_labels(one, two)
    alike = [place for place in np.argwhere(same).tolist()]
    if len(alike) > MOST_TERMS:
        return ()
    terms = [(_among(one, [i]), _among(two, [j])) for i, j in alike]
    if equal:
        return tuple(terms)
    rows: dict[
        tuple[int, ...], list[int]
    ] = {}  # levels of one that are known to differ from, or to be like, the same levels of two
    for level, others in enumerate(known.tolist()):
        rows.setdefault(tuple(np.flatnonzero(others).tolist()), []).append(level)
    every = [(_among(one, levels), _among(two, list(others))) for others, levels in rows.items() if others]
    return (*every, *((_MINUS_ONE, *term) for term in terms))


def _among(column: Category, levels: list[int]) -> Factor:
    """The indicator function of some levels."""
    wanted = np.zeros(column.levels + 1)
    wanted[levels] = 1.0  # the last entry, at index -1, is missing
    return Factor((column.name,), lambda frame: wanted[frame.levels(column.name)][None, :])


_MINUS_ONE = Factor((), lambda frame: np.full((1, frame.size), -1.0))
