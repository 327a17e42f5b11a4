"""Select statements on a released sketch: one table, aggregates, conditions, groups, order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np
from sqlglot import exp

from dpsketch.displays import html_table, text_table
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer, Estimate, stacked
from dpsketch.learn.choice import least_error
from dpsketch.learn.factors import Factor, columns_of, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.aggregates import AGGREGATES, COUNT, formula_of, is_aggregate
from dpsketch.learn.sql.expressions import Mask, condition_factors, evaluate
from dpsketch.learn.sql.formulas import Aggregate, Formula, straight, value_of
from dpsketch.learn.sql.grouping import MOST_GROUPS, Key, key_of, text_of
from dpsketch.learn.sql.names import with_schema_names
from dpsketch.learn.sql.quantities import empty_record
from dpsketch.learn.sql.selection import Estimator, Selection, answer_in_units
from dpsketch.learn.sql.statement import parse_select, whole_number
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import OTHER, Column, Datetime, Number
from dpsketch.schema.schema import Schema

_BLOCK = 32
__all__ = ["MOST_GROUPS", "Table", "run"]


@dataclass(frozen=True)
class Table:
    """Rows of labels and answers, in the order of the select list."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    how: tuple[str, ...]

    def __repr__(self) -> str:
        return text_table(self.columns, self.rows)

    def _repr_html_(self) -> str:
        return html_table("", self.columns, self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain rows with value and standard error of each aggregate (in seconds for dates). NaN becomes None."""
        plain = []
        for row in self.rows:
            entry: dict[str, Any] = {}
            for name, cell in zip(self.columns, row, strict=True):
                if isinstance(cell, Answer):
                    entry[name], entry[f"{name}_stderr"] = _plain(cell.value), _plain(cell.stderr)
                else:
                    entry[name] = cell
            plain.append(entry)
        return plain


class Asked(Protocol):
    """An object that answers statements: a view, or a simulated table with the true answers."""

    schema: Schema

    def rows(self) -> Estimate: ...

    @property
    def rows_how(self) -> str: ...

    def with_rows(self, how: str) -> str: ...

    def estimators(self, columns: Sequence[str]) -> Sequence[Estimator]:
        """All estimators of the joint distribution of these columns; at least one."""
        ...


def run(view: Asked, text: str) -> Table:
    """Answer a statement. Anything unsupported is refused with a reason."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # overflow gives null
            return _Query(view, parse_select(text)).table()
    except RecursionError:
        raise QueryError("the statement is nested too deeply", "ask for less at once") from None


@dataclass(frozen=True)
class _Item:
    """One entry of the select list: the label of a group (by the index of its key in group by) or a formula."""

    name: str
    node: exp.Expr
    key: int | None
    formula: Formula | None


@dataclass(frozen=True)
class _Estimates:
    """Estimates of a formula, one a group."""

    estimate: Estimate
    dates: Column | None
    how: str

    def answers(self) -> list[Answer]:
        pairs = zip(self.estimate.value.tolist(), self.estimate.stderr.tolist(), strict=True)
        return [answer_in_units(value, stderr, self.dates) for value, stderr in pairs]


class _Query:
    """A checked statement and the groups that it asks about."""

    def __init__(self, view: Asked, select: exp.Select) -> None:
        self._view, self._schema, self._select = view, view.schema, select
        named = {node.alias: node.this for node in select.expressions if isinstance(node, exp.Alias)}
        with_schema_names(select, view.schema, named)
        nodes = (select.args.get("group") or exp.Group()).expressions
        keys = [key_of(self._schema, node, select.expressions, named) for node in nodes]
        self._keys: list[Key] = list({key.text: key for key in keys}.values())
        groups = prod(len(key.labels) for key in self._keys)
        if groups > MOST_GROUPS:
            raise QueryError(f"group by would make {groups} groups, more than {MOST_GROUPS}", "group by fewer columns")
        self._labels = list(product(*[key.labels for key in self._keys]))
        self._items = [self._item(node) for node in select.expressions]
        if len({item.name for item in self._items}) < len(self._items):
            raise QueryError(
                "two entries of the select list have the same name", "name them apart: avg(age) as mean_age"
            )
        if not any(item.formula for item in self._items):
            raise QueryError("the select list has no aggregate", f"use {AGGREGATES}: single records cannot be read")
        where = select.args.get("where")
        self._where = condition_factors(self._schema, where.this if where is not None else None)
        self._known: dict[exp.Expr, _Estimates] = {}

    def _item(self, node: exp.Expr) -> _Item:
        inner = node.unalias()
        key = self._key_index(inner)
        if key is not None:
            shown = inner.name if isinstance(inner, exp.Column) else inner.sql().lower()
            return _Item(node.alias or shown, inner, key, None)
        name = node.alias if isinstance(node, exp.Alias) else inner.sql().lower()
        formula = formula_of(self._schema, inner)
        if not any(is_aggregate(each) for each in inner.walk()):
            raise QueryError(f"'{inner.sql()}' is not supported in the select list", f"use {AGGREGATES}")
        return _Item(name, inner, None, formula)

    def _key_index(self, node: exp.Expr) -> int | None:
        """The index of the key of group by that a node repeats, if any."""
        texts = [key.text for key in self._keys]
        text = text_of(node)
        return texts.index(text) if text in texts else None

    def table(self) -> Table:
        columns: list[list[Any]] = []
        how = []
        having, order = self._select.args.get("having"), self._select.args.get("order")
        for item in self._items:
            if item.formula is None:
                columns.append([entry[item.key or 0] for entry in self._labels])
            else:
                estimates = self._estimates(item.node, item.formula)
                columns.append(estimates.answers())
                how.append(f"{item.name}: {estimates.how}")
        kept = self._common()
        if having is not None:
            kept &= self._having(having.this)
        rows = np.flatnonzero(kept).tolist()
        for ordered in reversed(order.expressions if order is not None else []):
            rows = _sorted(rows, self._sort_values(ordered.this), ordered)
        first = whole_number(self._select.args.get("offset"), 0)
        rows = rows[first : first + whole_number(self._select.args.get("limit"), len(rows))]
        return Table(
            tuple(item.name for item in self._items),
            tuple(tuple(column[row] for column in columns) for row in rows),
            tuple(how),
        )

    def _estimates(self, node: exp.Expr, formula: Formula) -> _Estimates:
        """The estimates of a formula, computed once even if the statement repeats it."""
        if node not in self._known:
            self._known[node] = self._answer(formula)
        return self._known[node]

    def _answer(self, formula: Formula) -> _Estimates:
        """The estimates of a formula, all of its aggregates from the one estimator with the least predicted error."""
        if not formula.columns and not self._where and not self._keys:
            everything = Selection(_Everything(self._schema), self._view.rows(), ())
            return _Estimates(value_of(formula, everything), None, self._view.rows_how)
        keys = [name for key in self._keys for name in key.of.columns]
        names = tuple(dict.fromkeys((*columns_of(self._where), *keys, *formula.columns)))
        compared = straight(formula)
        chosen = least_error(self._view.estimators(names), partial(self._of_groups, compared))
        estimate = chosen.estimate if compared is formula else self._of_groups(formula, chosen.estimator)
        how = self._view.with_rows(chosen.how) if formula.in_rows else chosen.how
        return _Estimates(estimate, formula.dates, how)

    def _of_groups(self, formula: Formula, estimator: Estimator) -> Estimate:
        """The estimates of all groups from one estimator, in blocks: their factors need not fit in memory at once."""
        everyone = Selection(estimator, self._view.rows(), self._where)
        blocks = [self._labels[start : start + _BLOCK] for start in range(0, len(self._labels), _BLOCK)]
        return stacked([value_of(formula, everyone.also(self._groups(block), len(block))) for block in blocks])

    def _groups(self, labels: list[tuple[Any, ...]]) -> list[Factor]:
        return [key.factor([entry[index] for entry in labels]) for index, key in enumerate(self._keys)]

    def _named(self, node: exp.Expr) -> _Item | None:
        """The entry of the select list that a node repeats or names."""
        for item in self._items:
            if item.node == node or (isinstance(node, exp.Column) and not node.table and node.name == item.name):
                return item
        return None

    def _having(self, condition: exp.Expr) -> Mask:
        """Mask of the groups that meet a condition on answers, which is evaluated on a frame with one point a group."""
        columns: dict[str, Column] = {}
        values: dict[str, Floats] = {}

        def answered(node: exp.Expr) -> exp.Expr:
            item = self._named(node)
            node = node if item is None else item.node
            key = self._key_index(node)
            if key is not None:
                column = self._keys[key].column
                columns[column.name] = column
                values[column.name] = self._keys[key].values([entry[key] for entry in self._labels])
                return _column(column.name)
            formula = item.formula if item is not None else None
            if formula is not None or is_aggregate(node):
                estimates = self._estimates(node, formula or formula_of(self._schema, node))
                name = node.sql().lower()
                columns[name] = Number(name) if estimates.dates is None else Datetime(name)
                values[name] = estimates.estimate.value
                return _column(name)
            if isinstance(node, exp.Column):
                raise QueryError(
                    f"column '{node.name}' is neither aggregated nor in group by", "put conditions on columns in where"
                )
            return node

        answers = condition.transform(answered)
        frame = _Answers(columns, values, len(self._labels))
        return evaluate(answers, frame).true

    def _sort_values(self, node: exp.Expr) -> list[Any]:
        """The values to sort the groups by, None where null."""
        node = node.unnest()
        if isinstance(node, exp.Literal):
            position = whole_number(node, 0)
            if not 1 <= position <= len(self._items):
                raise QueryError(
                    f"order by {node.sql()}: the select list has no such entry", "entries are numbered from 1"
                )
            node = self._items[position - 1].node
        item = self._named(node)
        node = node if item is None else item.node
        key = self._key_index(node)
        if key is not None:
            return [entry[key] for entry in self._labels]
        formula = formula_of(self._schema, node) if item is None or item.formula is None else item.formula
        values = self._estimates(node, formula).estimate.value
        return [None if np.isnan(value) else value for value in values.tolist()]

    def _common(self) -> Mask:
        """Mask that drops groups of unlisted or missing values whose count is not significantly above zero."""
        special = np.array([any(label is None or label == OTHER for label in entry) for entry in self._labels])
        if not self._keys or not special.any():
            return np.ones(len(self._labels), bool)
        counts = self._answer(Aggregate(COUNT)).estimate
        return ~special | (counts.value > 2 * counts.stderr + 0.5)


class _Everything:
    """Expectations of constants, which need no estimator."""

    columns: tuple[str, ...] = ()
    how = ""

    def __init__(self, schema: Schema) -> None:
        self._point = empty_record(schema, ())

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        values = np.concatenate([product_at(factors, self._point)[:, 0] for factors in products])
        return Estimate(values, np.zeros((len(values), 1)))


class _Answers(Frame):
    """A frame with one point for each group and answers as columns."""

    def __init__(self, columns: dict[str, Column], values: dict[str, Floats], size: int) -> None:
        schema = Schema(tuple(columns.values()) or (Number("-"),))
        super().__init__(schema, {name: np.zeros(size, np.int16) for name in (*columns, "-")})
        self._values = values


def _column(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True))


def _sorted(rows: list[int], values: list[Any], ordered: exp.Ordered) -> list[int]:
    """Rows sorted by their values. The sort is stable: keys of order by are applied from the last to the first."""
    known = [row for row in rows if values[row] is not None]
    known.sort(key=lambda row: values[row], reverse=bool(ordered.args.get("desc")))
    null = [row for row in rows if values[row] is None]
    return [*null, *known] if ordered.args.get("nulls_first") else [*known, *null]


def _plain(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.timedelta64):
        value = float(value / np.timedelta64(1, "s"))
    return value if np.isfinite(value) else None
