"""Parses select statements, and refuses every clause that would be ignored."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.sql.aggregates import is_aggregate
from dpsketch.learn.sql.expressions import check_size, checked
from dpsketch.learn.sql.flattening import flattened

_CLAUSES = ("expressions", "from", "from_", "where", "group", "having", "order", "limit", "offset", "distinct")
_GROUP = ("expressions", "all")
_TABLE = ("this", "alias")
_NAMES = {"joins": "join", "sample": "a sample", "pivots": "pivot", "with_": "with"}
_ONE_TABLE = "a sketch is one table; use aggregates, where, group by, having, order by and limit"


def parse_select(text: str) -> exp.Select:
    try:
        statements = sqlglot.parse(text, dialect="duckdb")
    except sqlglot.errors.ParseError as error:
        raise _unreadable(error) from None
    except (sqlglot.errors.SqlglotError, RecursionError):
        raise _unreadable(None) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise QueryError("only one select statement is supported", "write: select avg(age) from sketch")
    check_size(statements[0])
    select = flattened(statements[0])
    checked(select)
    selects = list(select.find_all(exp.Select))
    for each in selects:
        _check_limit(each)
    clauses = [*((each, _CLAUSES) for each in selects), *((group, _GROUP) for group in select.find_all(exp.Group))]
    clauses += [(table, _TABLE) for table in select.find_all(exp.Table)]
    for node, known in clauses:
        for key, value in node.args.items():
            if value and key not in known:
                name = _NAMES.get(key, key.rstrip("_").replace("_", " "))
                raise QueryError(f"{name} is not supported", _ONE_TABLE)
    for each in selects:
        source = each.args.get("from_") or each.args.get("from")
        if source is None or not isinstance(source.this, exp.Table) or source.this.name.lower() != "sketch":
            raise QueryError("the table is called sketch", "write: … from sketch …")
    return select


def _check_limit(select: exp.Select) -> None:
    """Read `fetch first 3 rows only` as `limit 3`, and refuse distinct on some columns alone."""
    limit, distinct = select.args.get("limit"), select.args.get("distinct")
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise QueryError(f"'{limit.sql().strip()}' is not supported", "write a whole number: limit 10 offset 5")
        select.set("limit", exp.Limit(expression=limit.args.get("count") or exp.Literal.number(1)))
    if distinct is not None and distinct.args.get("on"):
        raise QueryError("distinct on is not supported", "list labels with select distinct c, or group by them")


def with_keys(select: exp.Select) -> None:
    """Write out the keys of `group by all`, and those of `select distinct`: all entries without an aggregate."""
    group = select.args.get("group")
    plain = [node for node in select.expressions if not any(is_aggregate(each) for each in node.walk())]
    distinct = group is None and select.args.get("distinct") and len(plain) == len(select.expressions)
    if distinct or (group is not None and group.args.get("all")):
        if any(isinstance(node, exp.Star) for node in plain):
            raise QueryError(
                "distinct rows are single records, which cannot be read", "name a column: select distinct c"
            )
        select.set("group", exp.Group(expressions=[node.unalias().copy() for node in plain]) if plain else None)


def name_of(node: exp.Expr) -> str:
    """What an entry of the select list is called if it has no alias; empty for a column, which has its own name."""
    inner = node.unalias()
    if isinstance(inner, exp.Column):
        return ""
    of_dates = inner.find(exp.TimestampTrunc, exp.DateDiff, exp.Interval, exp.Extract) is not None
    return inner.sql("duckdb" if of_dates else None).lower()


def _unreadable(error: sqlglot.errors.ParseError | None) -> QueryError:
    description = str(error.errors[0].get("description")) if error is not None and error.errors else ""
    if "number of provided arguments" in description:
        return QueryError("a function has too many arguments", "avg(x), round(x, 2), corr(x, y), regr_slope(y, x)")
    if "Required keyword" in description:
        return QueryError("a function or operator lacks an argument", "power(x, 2), corr(x, y), regr_slope(y, x)")
    return QueryError("the statement is not valid SQL", "write: select avg(age) from sketch where sex = 'Female'")


def whole_number(node: exp.Expr | None, default: int) -> int:
    """Parse the whole number of limit or offset, or the number of an entry of the select list."""
    if node is None:
        return default
    literal = node.expression if isinstance(node, exp.Limit | exp.Offset) else node
    if not isinstance(literal, exp.Literal) or literal.is_string or not str(literal.this).isdecimal():
        raise QueryError(f"'{node.sql().strip()}' is not supported", "write a whole number: limit 10 offset 5")
    return int(str(literal.this)[:18])
