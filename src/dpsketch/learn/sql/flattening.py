"""Statements with aliases of the table, sub-selects in from and `with`, as one select from sketch."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.sql.expressions import check_size

_INNER = ("expressions", "from", "from_", "where")
_TRIVIAL = (
    "a sub-select may pick columns and rows of sketch; put group by, having, distinct and limit into the outer select"
)


def flattened(select: exp.Select, known: Mapping[str, exp.Select] | None = None) -> exp.Select:
    """The same statement with nothing but sketch in from. `known` are the selects named by `with`, themselves flat."""
    named = dict(known or {})
    clause = select.args.get("with_") or select.args.get("with")
    if clause is not None:
        if clause.args.get("recursive"):
            raise QueryError("with recursive is not supported", _TRIVIAL)
        for part in clause.expressions:
            if not isinstance(part.this, exp.Select) or part.args["alias"].args.get("columns"):
                raise QueryError(f"'{part.sql('duckdb')}' is not supported", _TRIVIAL)
            named[part.alias.lower()] = flattened(part.this, named)
        clause.pop()
    for nested in _nested(select):
        if isinstance(nested.this, exp.Select):
            nested.set("this", flattened(nested.this, named))
    source = select.args.get("from_") or select.args.get("from")
    if source is None:
        return select
    inner = _inner(source.this, named)
    alias = source.this.alias_or_name if isinstance(source.this, exp.Table | exp.Subquery) else ""
    table = source.this.name.lower() if isinstance(source.this, exp.Table) else ""
    if inner is not None:
        source.set("this", exp.to_table("sketch"))
    elif isinstance(source.this, exp.Table):
        source.this.set("alias", None)
    _without_table(select, {alias.lower(), table})
    if inner is None:
        return select
    _put_in(select, inner)
    check_size(select)
    return select


def _nested(select: exp.Select) -> list[exp.Subquery]:
    """Sub-selects that stand for a value, those of this select alone."""
    source = select.args.get("from_") or select.args.get("from")
    found: list[exp.Subquery] = []
    level: list[exp.Expr] = [child for child in select.iter_expressions() if child is not source]
    while level:
        found += [node for node in level if isinstance(node, exp.Subquery)]
        level = [child for node in level if not isinstance(node, exp.Subquery) for child in node.iter_expressions()]
    return found


def _inner(source: exp.Expr, named: Mapping[str, exp.Select]) -> exp.Select | None:
    """The flat select that a statement reads from, None where it is sketch itself."""
    if isinstance(source, exp.Table) and source.name.lower() in named:
        inner = named[source.name.lower()].copy()
    elif isinstance(source, exp.Subquery):
        if not isinstance(source.this, exp.Select):
            raise QueryError(f"'{source.sql('duckdb')}' is not supported", _TRIVIAL)
        inner = flattened(source.this, named)
    else:
        return None
    extra = [key for key, value in inner.args.items() if value and key not in _INNER]
    if extra or any(_reads_many(item) for item in inner.expressions):
        raise QueryError("a select of groups or of single answers cannot be selected from", _TRIVIAL)
    return inner


def _reads_many(item: exp.Expr) -> bool:
    return any(isinstance(node, exp.AggFunc | exp.Window | exp.Subquery) for node in item.walk())


def _columns(select: exp.Select) -> list[exp.Column]:
    """The columns of this select, without those of sub-selects that stand for a value."""
    inside = {id(column) for nested in _nested(select) for column in nested.find_all(exp.Column)}
    return [column for column in select.find_all(exp.Column) if id(column) not in inside]


def _without_table(select: exp.Select, names: set[str]) -> None:
    """Drop the table's name or alias before columns; names of other tables stay, and are refused later."""
    for column in _columns(select):
        if column.table.lower() in names | {"sketch"}:
            column.set("table", None)


def _put_in(select: exp.Select, inner: exp.Select) -> None:
    """Replace the columns of a sub-select by what they stand for, and add its condition."""
    given = {item.alias_or_name.lower(): item.unalias() for item in inner.expressions if not isinstance(item, exp.Star)}
    every = any(isinstance(item, exp.Star) for item in inner.expressions)
    own = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    for item in list(select.expressions):
        if isinstance(item, exp.Column) and given.get(item.name.lower(), item).name != item.name:
            item.replace(exp.alias_(item.copy(), item.name, quoted=True))
    for column in _columns(select):
        stands_for = given.get(column.name.lower())
        if stands_for is not None:
            column.replace(stands_for.copy() if isinstance(stands_for, exp.Column) else exp.paren(stands_for.copy()))
        elif not every and not isinstance(column.this, exp.Star) and column.name.lower() not in own:
            raise QueryError(
                f"the sub-select has no column '{column.name}'", f"its columns are {', '.join(given) or 'none'}"
            )
    condition, where = inner.args.get("where"), select.args.get("where")
    if condition is not None:
        both = [exp.paren(each.this.copy()) for each in (condition, where) if each is not None]
        select.set("where", exp.Where(this=both[0] if len(both) == 1 else exp.And(this=both[0], expression=both[1])))
