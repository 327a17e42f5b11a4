"""Names of columns as people type them."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.schema.schema import Schema


def with_schema_names(expression: exp.Expr, schema: Schema, aliases: Collection[str] = ()) -> exp.Expr:
    """Spell columns as the schema does: as in SQL, unquoted names ignore case. Aliases are kept."""
    names = {column.name for column in schema.columns}
    for node in expression.find_all(exp.Column):
        if node.name in names or node.name in aliases or not isinstance(node.this, exp.Identifier) or node.this.quoted:
            continue
        fitting = sorted(name for name in names if name.lower() == node.name.lower())
        if len(fitting) > 1:
            spelled = " or ".join(f'"{name}"' for name in fitting)
            raise QueryError(f"column {node.name} is ambiguous: {spelled}", "write the one you mean as it is spelled")
        if fitting:
            node.set("this", exp.to_identifier(fitting[0]))
    return expression
