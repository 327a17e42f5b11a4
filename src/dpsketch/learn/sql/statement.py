"""Parses select statements, and refuses every clause that would be ignored."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.sql.expressions import checked

_CLAUSES = ("expressions", "from", "from_", "where", "group", "having", "order", "limit", "offset")
_GROUP = ("expressions",)
_TABLE = ("this", "alias")
_NAMES = {"joins": "join", "sample": "a sample", "pivots": "pivot", "all": "group by all", "with_": "with"}
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
    select = statements[0]
    checked(select)
    for column in select.find_all(exp.Column):
        column.set("table", None)  # it is sketch
    clauses = [(select, _CLAUSES), *((group, _GROUP) for group in select.find_all(exp.Group))]
    clauses += [(table, _TABLE) for table in select.find_all(exp.Table)]
    for node, known in clauses:
        for key, value in node.args.items():
            if value and key not in known:
                name = _NAMES.get(key, key.rstrip("_").replace("_", " "))
                raise QueryError(f"{name} is not supported", _ONE_TABLE)
    source = select.args.get("from_") or select.args.get("from")
    if source is None or not isinstance(source.this, exp.Table) or source.this.name.lower() != "sketch":
        raise QueryError("the table is called sketch", "write: … from sketch …")
    return select


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
