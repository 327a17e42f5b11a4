"""Select statements on a released sketch: one table, aggregates, conditions, groups, order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate, stacked
from dpsketch.learn.answer_table import ESTIMATE, ESTIMATED_DATE, Table, kind_of
from dpsketch.learn.choice import least_error
from dpsketch.learn.factors import Factor, columns_of, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.aggregates import AGGREGATES, COUNT, formula_of, is_aggregate
from dpsketch.learn.sql.clamped import clamped_columns, outside_conditions, with_clamped
from dpsketch.learn.sql.equality import with_single_values
from dpsketch.learn.sql.expressions import CONDITIONS, Mask, condition_factors, evaluate
from dpsketch.learn.sql.findings import Finding, Rows, between, judged
from dpsketch.learn.sql.formulas import Aggregate, Formula, straight, value_of
from dpsketch.learn.sql.grouping import MOST_GROUPS, Key, key_of, text_of
from dpsketch.learn.sql.names import with_schema_names
from dpsketch.learn.sql.quantities import empty_record
from dpsketch.learn.sql.ranges import ANYTHING
from dpsketch.learn.sql.selection import Estimator, Selection
from dpsketch.learn.sql.statement import parse_select, whole_number
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import OTHER, Boolean, Column, Datetime, Number
from dpsketch.schema.schema import Schema

_BLOCK = 32
_MOST_NOTED = 1024  # groups: memory
__all__ = ["MOST_GROUPS", "Table", "run"]


class Asked(Protocol):
    """An object that answers statements: a view, or a simulated table with the true answers."""

    schema: Schema

    def rows(self) -> Estimate: ...

    @property
    def rows_how(self) -> str: ...

    def with_rows(self, how: str) -> str: ...

    def laplace(self, estimate: Estimate) -> NDArray[np.bool_]:
        """Which entries have errors of the shape of Laplace noise."""
        ...

    def tells(self, column: str, value: float) -> bool:
        """Whether the release tells a value of a column from those around it."""
        ...

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
    place: int | None
    asked: bool  # for a formula


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
        if not any(item.asked for item in self._items):
            raise QueryError("the select list has no aggregate", f"use {AGGREGATES}: single records cannot be read")
        where = select.args.get("where")
        self._condition: exp.Expr | None = None
        if where is not None:
            self._condition = with_single_values(where.this, self._schema, view.tells)
        self._where = condition_factors(self._schema, self._condition)
        self._known: dict[exp.Expr, Finding] = {}

    def _item(self, node: exp.Expr) -> _Item:
        inner = node.unalias()
        key = self._key_index(inner)
        if key is not None:
            shown = inner.name if isinstance(inner, exp.Column) else inner.sql().lower()
            return _Item(node.alias or shown, inner, key, False)
        name = node.alias if isinstance(node, exp.Alias) else inner.sql().lower()
        formula_of(self._schema, inner)  # refuses what is none
        if not any(is_aggregate(each) for each in inner.walk()):
            raise QueryError(f"'{inner.sql()}' is not supported in the select list", f"use {AGGREGATES}")
        return _Item(name, inner, None, True)

    def _key_index(self, node: exp.Expr) -> int | None:
        """The index of the key of group by that a node repeats, if any."""
        texts = [key.text for key in self._keys]
        text = text_of(node)
        return texts.index(text) if text in texts else None

    def table(self) -> Table:
        columns: list[list[Any]] = []
        kinds, how = [], []
        having, order = self._select.args.get("having"), self._select.args.get("order")
        for item in self._items:
            if not item.asked:
                key = self._keys[item.place or 0]
                shown = _shown_labels(key, item.node)
                columns.append([shown[entry[item.place or 0]] for entry in self._labels])
                kinds.append("date" if key.column.dates else kind_of(list(shown.values())))
            else:
                found = self._find(item.node)
                columns.append(found.answers())
                kinds.append(ESTIMATE if found.dates is None else ESTIMATED_DATE)
                how.append(f"{item.name}: {found.how}")
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
            tuple(kinds),
        )

    def _find(self, node: exp.Expr) -> Finding:
        """What is known of a formula; computed once, however often the statement repeats it."""
        if node not in self._known:
            self._known[node] = self._within_bounds(node)
        return self._known[node]

    def _within_bounds(self, node: exp.Expr) -> Finding:
        """A formula; where it asks for records beyond a bound, whatever lies between none and all of those at it."""
        schema, condition = self._schema, self._condition
        clamped = clamped_columns(schema, condition) | clamped_columns(schema, node)
        if not clamped:
            return self._answer(formula_of(schema, node), self._where)
        none, every = (
            self._answer(
                formula_of(schema, with_clamped(schema, node, at_bound)),
                condition_factors(schema, None if condition is None else with_clamped(schema, condition, at_bound)),
            )
            for at_bound in (False, True)
        )
        unbounded = not clamped.keys().isdisjoint(outside_conditions(schema, node))
        possible = ANYTHING if unbounded else formula_of(schema, node).possible
        return between(none, every, possible, "; ".join(clamped.values()))

    def _answer(self, formula: Formula, where: list[Factor]) -> Finding:
        """All aggregates of a formula from one estimator: that with the least predicted error."""
        rows = self._view.rows()
        if not formula.columns and not where and not self._keys:
            estimate = value_of(formula, Selection(_Everything(self._schema), rows, ()))
            return self._judged(estimate, formula, self._view.rows_how)
        keys = [name for key in self._keys for name in key.of.columns]
        names = tuple(dict.fromkeys((*columns_of(where), *keys, *formula.columns)))
        compared = straight(formula)
        of_groups = partial(self._of_groups, compared, where)
        chosen = least_error(self._view.estimators(names), of_groups, compared.possible)
        estimate = chosen.estimate if compared is formula else self._of_groups(formula, where, chosen.estimator)
        how = self._view.with_rows(chosen.how) if formula.in_rows else chosen.how
        notes = chosen.pooled([*where, *self._groups(self._labels)]) if len(self._labels) <= _MOST_NOTED else ()
        return replace(self._judged(estimate, formula, how), considered=chosen.considered, notes=notes)

    def _judged(self, estimate: Estimate, formula: Formula, how: str) -> Finding:
        null = not isinstance(formula, Aggregate)
        rows = Rows(self._view.rows(), self._schema.rows)
        found = judged(estimate, formula.possible, rows, formula.in_rows, null)
        return replace(found, how=how, dates=formula.dates, laplace=self._view.laplace(estimate))

    def _of_groups(self, formula: Formula, where: list[Factor], estimator: Estimator) -> Estimate:
        """All groups by one estimator, some at a time: their factors need not fit memory at once."""
        everyone = Selection(estimator, self._view.rows(), where)
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
            if (item is not None and item.asked) or is_aggregate(node):
                found = self._find(node)
                name = node.sql().lower()
                columns[name] = Number(name) if found.dates is None else Datetime(name)
                values[name] = found.values
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
        values = self._find(node).values
        return [None if np.isnan(value) else value for value in values.tolist()]

    def _common(self) -> Mask:
        """Mask that drops groups of unlisted or missing values whose count is not significantly above zero."""
        special = np.array([any(label is None or label == OTHER for label in entry) for entry in self._labels])
        if not self._keys or not special.any():
            return np.ones(len(self._labels), bool)
        counts = self._answer(Aggregate(COUNT), self._where).estimate
        return ~special | (counts.value > 2 * counts.stderr + 0.5)


class _Everything:
    """Expectations of constants, which need no estimator."""

    columns: tuple[str, ...] = ()
    how = ""

    def __init__(self, schema: Schema) -> None:
        self._point = empty_record(schema, ())

    def cells_of(self, column: str) -> None:
        return None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        values = np.concatenate([product_at(factors, self._point)[:, 0] for factors in products])
        return Estimate(values, np.zeros((len(values), 1)))


class _Answers(Frame):
    """A frame with one point for each group and answers as columns."""

    def __init__(self, columns: dict[str, Column], values: dict[str, Floats], size: int) -> None:
        schema = Schema(tuple(columns.values()) or (Number("-"),))
        super().__init__(schema, {name: np.zeros(size, np.int16) for name in (*columns, "-")})
        self._values = values


def _shown_labels(key: Key, node: exp.Expr) -> dict[Any, Any]:
    """The labels of a key as a table shows them: those of booleans and conditions as booleans."""
    yes_or_no = isinstance(key.column, Boolean) or isinstance(node.unnest(), CONDITIONS)
    truths = dict(zip(Boolean.labels, (False, True), strict=True)) if yes_or_no else {}
    return {label: truths.get(label, label) for label in key.labels}


def _column(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True))


def _sorted(rows: list[int], values: list[Any], ordered: exp.Ordered) -> list[int]:
    """Rows sorted by their values. The sort is stable: keys of order by are applied from the last to the first."""
    known = [row for row in rows if values[row] is not None]
    known.sort(key=lambda row: values[row], reverse=bool(ordered.args.get("desc")))
    null = [row for row in rows if values[row] is None]
    return [*null, *known] if ordered.args.get("nulls_first") else [*known, *null]
