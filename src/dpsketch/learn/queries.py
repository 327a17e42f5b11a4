"""Select statements on a released sketch: one table, aggregates, conditions, groups, order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Causes, Estimate, stacked
from dpsketch.learn.answer_table import ESTIMATE, ESTIMATED_DATE, Table, kind_of
from dpsketch.learn.choice import least_error
from dpsketch.learn.factors import Factor, columns_of
from dpsketch.learn.sql.aggregates import AGGREGATES, COUNT, formula_of, is_aggregate, text_of
from dpsketch.learn.sql.clamped import clamped_columns, outside_conditions, with_clamped
from dpsketch.learn.sql.equality import with_single_values
from dpsketch.learn.sql.expressions import CONDITIONS, Mask, condition_factors, evaluate
from dpsketch.learn.sql.findings import Finding, Rows, between, judged
from dpsketch.learn.sql.formulas import Aggregate, Formula, straight, value_of
from dpsketch.learn.sql.group_answers import GroupAnswers, column_named, in_order
from dpsketch.learn.sql.grouping import MOST_GROUPS, Key, key_of
from dpsketch.learn.sql.label_counts import checked_labels, most_common
from dpsketch.learn.sql.listed_groups import decided, listed_groups
from dpsketch.learn.sql.quantities import quantity_of
from dpsketch.learn.sql.ranges import ANYTHING
from dpsketch.learn.sql.selection import Estimator, Everything, Selection
from dpsketch.learn.sql.spelling import as_meant
from dpsketch.learn.sql.statement import name_of, parse_select, whole_number, with_keys
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import OTHER, Boolean, Column, Datetime, Number
from dpsketch.schema.schema import Schema

_BLOCK = 32
_MOST_NOTED = 1024  # groups: memory
__all__ = ["MOST_GROUPS", "Table", "run"]


class Asked(Protocol):
    """An object that answers statements: a view, or a simulated table with the true answers."""

    schema: Schema

    def rows(self) -> Estimate:
        """The number of rows, at least one."""
        ...

    def noisy_rows(self) -> Estimate:
        """The same as it was released: it may be below one."""
        ...

    @property
    def rows_how(self) -> str: ...

    def with_rows(self, how: str) -> str: ...

    def laplace(self, estimate: Estimate) -> NDArray[np.bool_]:
        """Which entries have errors of the shape of Laplace noise."""
        ...

    def causes(self, estimate: Estimate) -> Causes:
        """The shares of the causes in the variances of estimates."""
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
        with_keys(select)
        shown = [name_of(node) for node in select.expressions]
        aliases = {node.alias for node in select.expressions if isinstance(node, exp.Alias)}
        as_meant(select, view.schema, aliases)
        named = {node.alias: node.this for node in select.expressions if isinstance(node, exp.Alias)}
        nodes = (select.args.get("group") or exp.Group()).expressions
        keys = [key_of(self._schema, node, select.expressions, named) for node in nodes]
        self._keys: list[Key] = list({key.text: key for key in keys}.values())
        self._items = [self._item(node, text) for node, text in zip(select.expressions, shown, strict=True)]
        if len({item.name for item in self._items}) < len(self._items):
            raise QueryError(
                "two entries of the select list have the same name", "name them apart: avg(age) as mean_age"
            )
        if not self._keys and not any(item.asked for item in self._items):
            raise QueryError("the select list has no aggregate", f"use {AGGREGATES}: single records cannot be read")
        if select.args.get("distinct") and not {item.place for item in self._items} >= set(range(len(self._keys))):
            raise QueryError(
                "distinct is not supported with other keys in group by", "select all keys, or leave it out"
            )
        where = select.args.get("where")
        self._condition: exp.Expr | None = None
        if where is not None:
            self._condition = with_single_values(where.this, self._schema, view.tells)
        self._where = condition_factors(self._schema, self._condition)
        self._clamped = clamped_columns(self._schema, self._condition)
        self._labels = listed_groups(self._schema, self._keys, self._most_where())
        self._known: dict[exp.Expr, Finding] = {}

    def _most_where(self) -> list[Factor]:
        """The condition, as far as it may hold: records at a bound may lie beyond it."""
        if self._condition is None or not self._clamped:
            return self._where
        return condition_factors(self._schema, with_clamped(self._schema, self._condition, True))

    def _item(self, node: exp.Expr, text: str) -> _Item:
        inner = node.unalias()
        key = self._key_index(inner)
        if key is not None:
            return _Item(node.alias or text or inner.name, inner, key, False)
        name = node.alias if isinstance(node, exp.Alias) else text
        if isinstance(inner, exp.Mode):
            checked_labels(quantity_of(self._schema, inner.this))
            return _Item(name, inner, None, True)
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
            elif isinstance(item.node, exp.Mode):
                columns.append(self._modes(item.node))
                kinds.append(kind_of(columns[-1]))
                how.append(f"{item.name}: the label of the largest count, empty where the second may be as large")
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
            rows = in_order(rows, self._sort_values(ordered.this), ordered)
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
        clamped = self._clamped | clamped_columns(schema, node)
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

    def _answer(self, formula: Formula, where: list[Factor], labels: list[tuple[Any, ...]] | None = None) -> Finding:
        """All aggregates of a formula, perhaps of some groups alone, from one estimator: that with the least predicted
        error.
        """
        labels = self._labels if labels is None else labels
        rows = self._view.noisy_rows()
        if not formula.columns and not where and not self._keys:
            estimate = value_of(formula, Selection(Everything(self._schema), rows, ()))
            return self._judged(estimate, formula, self._view.rows_how)
        keys = [name for key in self._keys for name in key.of.columns]
        names = tuple(dict.fromkeys((*columns_of(where), *keys, *formula.columns)))
        compared = straight(formula)
        of_groups = partial(self._of_groups, compared, where, labels)
        chosen = least_error(self._view.estimators(names), of_groups, compared.possible)
        estimate = chosen.estimate if compared is formula else self._of_groups(formula, where, labels, chosen.estimator)
        how = self._view.with_rows(chosen.how) if formula.in_rows else chosen.how
        notes = chosen.pooled([*where, *self._groups(labels)]) if len(labels) <= _MOST_NOTED else ()
        return replace(self._judged(estimate, formula, how), considered=chosen.considered, notes=notes)

    def _judged(self, estimate: Estimate, formula: Formula, how: str) -> Finding:
        null = not isinstance(formula, Aggregate)
        rows = Rows(self._view.noisy_rows(), self._schema.rows)
        found = judged(estimate, formula.possible, rows, formula.in_rows, null)
        if isinstance(estimate, _Blocks):  # errors alone, without the coordinates of the noise
            return replace(found, how=how, dates=formula.dates, laplace=estimate.laplace)
        laplace = self._view.laplace(estimate)
        return replace(found, how=how, dates=formula.dates, laplace=laplace, causes_of=self._view.causes)

    def _of_groups(
        self, formula: Formula, where: list[Factor], labels: list[tuple[Any, ...]], estimator: Estimator
    ) -> Estimate:
        """All groups by one estimator, some at a time: neither their factors nor their influences need fit memory."""
        left = where if self._clamped else [each for each in where if not decided(self._keys, each)]
        everyone = Selection(estimator, self._view.rows(), left)
        blocks = [labels[start : start + _BLOCK] for start in range(0, len(labels), _BLOCK)] or [[]]
        texts, found = [key.text for key in self._keys], []
        for block in blocks:
            by = dict(zip(texts, self._groups(block), strict=True))
            estimate = value_of(formula, everyone.grouped(by, len(block), where))
            if len(blocks) == 1:
                return estimate
            found.append(_Blocks(estimate.value, estimate.stderr[:, None], laplace=self._view.laplace(estimate)))
        together = stacked(found)
        return _Blocks(together.value, together.influence, laplace=np.concatenate([each.laplace for each in found]))

    def _groups(self, labels: list[tuple[Any, ...]]) -> list[Factor]:
        return [key.factor([entry[index] for entry in labels]) for index, key in enumerate(self._keys)]

    def _modes(self, node: exp.Expr) -> list[Any]:
        """The most common label of each group; none where the next may be as common."""
        select, label = self._select.copy(), node.this.unnest()
        for clause in ("having", "order", "limit", "offset", "distinct"):
            select.set(clause, None)
        keys = [exp.paren(key.node.copy()) for key in self._keys]
        select.set("expressions", [exp.alias_(exp.Count(this=exp.Star()), "records")])
        select.set("group", exp.Group(expressions=[*keys, label.copy()]))
        counted = _Query(self._view, select)
        found: dict[tuple[Any, ...], list[tuple[float, float, Any]]] = {}
        counts = counted._find(exp.Count(this=exp.Star(), big_int=True))
        for entry, value, error in zip(counted._labels, counts.values, counts.stderr, strict=True):
            own = dict(zip((key.text for key in counted._keys), entry, strict=True))
            if own[text_of(label)] not in (None, OTHER):
                group = tuple(own[key.text] for key in self._keys)
                found.setdefault(group, []).append((value, error, own[text_of(label)]))
        return [most_common(found.get(entry, [])) for entry in self._labels]

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
                return column_named(column.name)
            if (item is not None and item.asked) or is_aggregate(node):
                found = self._find(node)
                name = node.sql().lower()
                columns[name] = Number(name) if found.dates is None else Datetime(name)
                values[name] = found.values
                return column_named(name)
            if isinstance(node, exp.Column):
                raise QueryError(
                    f"column '{node.name}' is neither aggregated nor in group by", "put conditions on columns in where"
                )
            return node

        answers = condition.transform(answered)
        frame = GroupAnswers(columns, values, len(self._labels))
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
        """Mask that drops groups of unlisted or missing values whose count is not significantly above zero; without an
        aggregate all such groups, since the statement asks which labels there are.
        """
        listed = not any(item.asked for item in self._items)
        special = np.array(
            [listed or any(label is None or label == OTHER for label in entry) for entry in self._labels], bool
        )
        if not self._keys or not special.any():
            return np.ones(len(self._labels), bool)
        labels = [entry for entry, own in zip(self._labels, special, strict=True) if own]
        counts = self._answer(Aggregate(COUNT), self._where, labels).estimate
        kept = ~special
        kept[special] = counts.value > 2 * counts.stderr + 0.5
        return kept


@dataclass(frozen=True)
class _Blocks(Estimate):
    """Estimates of many groups with their standard errors alone, and which of these have the shape of Laplace noise."""

    laplace: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))


def _shown_labels(key: Key, node: exp.Expr) -> dict[Any, Any]:
    """The labels of a key as a table shows them: those of booleans and conditions as booleans."""
    yes_or_no = isinstance(key.column, Boolean) or isinstance(node.unnest(), CONDITIONS)
    truths = dict(zip(Boolean.labels, (False, True), strict=True)) if yes_or_no else {}
    return {label: truths.get(label, label) for label in key.labels}
