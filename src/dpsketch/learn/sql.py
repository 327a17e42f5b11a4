"""Select statements on a released sketch: one table, aggregates, conditions, groups of labels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlglot
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer, Estimate
from dpsketch.learn.expressions import checked, column_names, evaluate, find_column
from dpsketch.learn.points import Frame
from dpsketch.learn.selection import Selection, answer_in_units
from dpsketch.schema import OTHER, Column, Floats

if TYPE_CHECKING:
    from dpsketch.learn.view import View

MOST_GROUPS = 1000
_AGGREGATES = "avg, sum, count, var, stddev, median, quantile(column, q)"


@dataclass(frozen=True)
class Table:
    """Rows of labels and answers, in the order of the select list."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    how: tuple[str, ...]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain rows: each aggregate gives its value and its standard error (of a date in seconds);
        not-a-number becomes None.
        """
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


def run(view: View, text: str) -> Table:
    """Answer a statement; anything unsupported is refused with the reason."""
    select = _parse(text)
    nodes = (select.args.get("group") or exp.Group()).expressions
    groups = list(dict.fromkeys(_group_column(view, node) for node in nodes))
    where = select.args.get("where")
    condition = where.this if where is not None else None
    items = [_Item.make(view, node, groups) for node in select.expressions]
    if len({item.name for item in items}) < len(items):
        raise QueryError("two entries of the select list have the same name", "name them apart: avg(age) as mean_age")
    if not any(item.kind for item in items):
        raise QueryError("the select list has no aggregate", f"use {_AGGREGATES}: single records cannot be read")
    labels = list(product(*[_labels(group) for group in groups]))
    if len(labels) > MOST_GROUPS:
        raise QueryError(f"group by would make {len(labels)} groups, more than {MOST_GROUPS}", "group by fewer columns")
    columns, how = [], []
    for item in items:
        if item.kind is None:
            position = [group.name for group in groups].index(item.column.name)  # type: ignore[union-attr]
            columns.append([entry[position] for entry in labels])
        else:
            answers, source = _aggregate(view, item, condition, groups, labels)
            columns.append(answers)
            how.append(f"{item.name}: {source}")
    rows = list(zip(*columns, strict=True))
    kept = _kept(view, condition, groups, labels)
    return Table(
        tuple(item.name for item in items), tuple(row for row, keep in zip(rows, kept, strict=True) if keep), tuple(how)
    )


@dataclass(frozen=True)
class _Item:
    """One entry of the select list: a group column (`kind` None) or an aggregate."""

    name: str
    kind: str | None
    column: Column | None
    q: float = 0.5

    @classmethod
    def make(cls, view: View, node: exp.Expr, groups: list[Column]) -> _Item:
        inner = node.this if isinstance(node, exp.Alias) else node
        name = node.alias if isinstance(node, exp.Alias) else inner.sql().lower()
        if isinstance(inner, exp.Column):
            column = find_column(view.schema, inner.name)
            if column not in groups:
                raise QueryError(f"column '{column.name}' is neither aggregated nor in group by", f"use {_AGGREGATES}")
            return cls(node.alias_or_name, None, column)
        if isinstance(inner, exp.Min | exp.Max):
            raise QueryError(
                f"{inner.key} is one person's value and cannot be released",
                "ask for a quantile such as 0.01 or 0.99 instead",
            )
        if isinstance(inner, exp.Count):
            if inner.args.get("distinct") or isinstance(inner.this, exp.Distinct):
                raise QueryError("count(distinct …) is not in this release", "count each label with group by")
            if isinstance(inner.this, exp.Star | exp.Literal):
                return cls(name, "count", None)
            return cls(name, "present", _argument(view, inner, inner.this))
        kind, arguments = _call(inner)
        if kind is not None:
            return cls(name, kind, _argument(view, inner, arguments[0]), _quantile(arguments[1:]))
        raise QueryError(f"'{inner.sql()}' is not supported in the select list", f"use {_AGGREGATES}")


_KINDS: dict[str, tuple[type[exp.Expr], ...]] = {
    "mean": (exp.Avg,),
    "sum": (exp.Sum,),
    "var": (exp.Variance, exp.VariancePop),
    "std": (exp.Stddev, exp.StddevPop, exp.StddevSamp),
    "quantile": (exp.Quantile, exp.ApproxQuantile, exp.Median, exp.PercentileCont, exp.PercentileDisc),
}
_OTHER_NAMES = {"var": "var", "std": "std", "mean": "mean", "approx_percentile": "quantile"}


def _call(node: exp.Expr) -> tuple[str | None, list[exp.Expr]]:
    """The kind of an aggregate and its arguments, in whichever dialect it is written."""
    if isinstance(node, exp.Anonymous):
        kind = _OTHER_NAMES.get(node.name.lower())
        return kind if len(node.expressions) == (2 if kind == "quantile" else 1) else None, node.expressions
    if (
        isinstance(node, exp.WithinGroup)
        and isinstance(node.this, exp.PercentileCont | exp.PercentileDisc)
        and len(node.expression.expressions) == 1
    ):
        return "quantile", [node.expression.expressions[0].this, node.this.this]
    for kind, types in _KINDS.items():
        if isinstance(node, types):
            share = node.args.get("quantile") or node.args.get("expression")
            return kind, [node.this] if share is None else [node.this, share]
    return None, []


def _parse(text: str) -> exp.Select:
    try:
        statements = sqlglot.parse(text, dialect="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError):
        raise QueryError(
            "the statement is not valid SQL", "write: select avg(age) from sketch where sex = 'Female'"
        ) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise QueryError("only one select statement is supported", "write: select avg(age) from sketch")
    select = statements[0]
    checked(select)
    clauses = [(select, _CLAUSES), *((group, _GROUP) for group in select.find_all(exp.Group))]
    clauses += [(table, _TABLE) for table in select.find_all(exp.Table)]
    for node, known in clauses:
        for key, value in node.args.items():
            if value and key not in known:
                name = _NAMES.get(key, key.rstrip("_").replace("_", " "))
                raise QueryError(
                    f"{name} is not supported", "a sketch is one table; use aggregates, where and group by"
                )
    source = select.args.get("from_") or select.args.get("from")
    if source is None or not isinstance(source.this, exp.Table) or source.this.name.lower() != "sketch":
        raise QueryError("the table is called sketch", "write: … from sketch …")
    return select


_CLAUSES = ("expressions", "from", "from_", "where", "group")
_GROUP = ("expressions",)
_TABLE = ("this", "alias")
_NAMES = {"joins": "join", "order": "order by", "sample": "a sample", "pivots": "pivot", "all": "group by all"}


def _argument(view: View, call: exp.Expr, argument: exp.Expr) -> Column:
    if not isinstance(argument, exp.Column):
        raise QueryError(f"'{call.sql()}' must be taken of a column", "expressions inside aggregates are not supported")
    return find_column(view.schema, argument.name)


def _quantile(arguments: list[exp.Expr]) -> float:
    """The share of a quantile, the median's if none is given."""
    if not arguments:
        return 0.5
    if not isinstance(arguments[0], exp.Literal) or arguments[0].is_string:
        raise QueryError("the second argument of quantile must be a number between 0 and 1")
    return float(arguments[0].this)


def _group_column(view: View, node: exp.Expr) -> Column:
    if not isinstance(node, exp.Column):
        raise QueryError(
            f"group by '{node.sql()}' is not supported", "group by the names of category or boolean columns"
        )
    column = find_column(view.schema, node.name)
    if column.levels > MOST_GROUPS:
        raise QueryError(
            f"column '{column.name}' has too many values to group by", "group by a category or boolean, or use where"
        )
    return column


def _labels(column: Column) -> list[Any]:
    """Values of a group column, missing last as None."""
    names = getattr(column, "labels", None)
    if names is None:
        levels = column.codes_of(np.arange(column.levels))
        names = [int(value) for value in column.values_of(levels)]
    return [*names, None]


def _masks(frame: Frame, condition: exp.Expr | None, groups: list[Column], labels: list[tuple[Any, ...]]) -> Floats:
    base = np.ones(frame.size, bool) if condition is None else evaluate(condition, frame).true
    masks = np.ones((len(labels), frame.size), bool) & base
    for position, group in enumerate(groups):
        names = _labels(group)
        level = frame.levels(group.name)
        wanted = np.array([-1 if entry[position] is None else names.index(entry[position]) for entry in labels])
        masks &= level[None, :] == wanted[:, None]
    return masks.astype(np.float64)


def selection(
    view: View,
    columns: list[str],
    condition: exp.Expr | None,
    groups: list[Column],
    labels: list[tuple[Any, ...]],
) -> tuple[Selection, str]:
    """The records that meet a condition, one group for each entry of `labels`, and where the answer comes from."""
    used = columns + [group.name for group in groups]
    if condition is not None:
        used += column_names(view.schema, condition)
    estimator = view.estimator(used)
    return Selection(estimator, view.rows(), _masks(estimator.frame, condition, groups, labels)), estimator.how


def _aggregate(
    view: View, item: _Item, condition: exp.Expr | None, groups: list[Column], labels: list[tuple[Any, ...]]
) -> tuple[list[Answer], str]:
    if item.kind == "count" and condition is None and not groups:
        rows = view.rows()
        return [Answer(float(rows.value), float(rows.stderr))], view.rows_how
    chosen, how = selection(view, [item.column.name] if item.column else [], condition, groups, labels)
    if item.kind in ("count", "present", "sum"):
        how = view.with_rows(how)
    estimate = _estimate(chosen, item)
    column = item.column if item.kind in ("mean", "quantile") else None
    pairs = zip(estimate.value.tolist(), estimate.stderr.tolist(), strict=True)
    return [answer_in_units(value, stderr, column) for value, stderr in pairs], how


def _estimate(selection: Selection, item: _Item) -> Estimate:
    if item.column is None:
        return selection.count()
    match item.kind:
        case "present":
            return selection.present(item.column)
        case "mean":
            return selection.mean(item.column)
        case "sum":
            return selection.sum(item.column)
        case "var":
            return selection.var(item.column)
        case "std":
            return selection.var(item.column).root()
        case _:
            return selection.quantile(item.column, item.q)


def _kept(view: View, condition: exp.Expr | None, groups: list[Column], labels: list[tuple[Any, ...]]) -> list[bool]:
    """Drop groups of unlisted or missing values whose count cannot be told from zero; keep every listed one."""
    special = [any(label is None or label == OTHER for label in entry) for entry in labels]
    if not groups or not any(special):
        return [True] * len(labels)
    counts = selection(view, [], condition, groups, labels)[0].count()
    return [
        not rare or bool(value > 2 * stderr + 0.5)
        for rare, value, stderr in zip(special, counts.value, counts.stderr, strict=True)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.timedelta64):
        value = float(value / np.timedelta64(1, "s"))
    return value if np.isfinite(value) else None
