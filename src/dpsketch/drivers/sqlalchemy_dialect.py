"""A dialect for SQLAlchemy: create_engine("dpsketch:///a.sketch"), with ?errors=none for programs that expect no more
columns than they selected. Reflection shows one table, sketch, with the declared columns.
"""

from __future__ import annotations

from typing import Any

from dpsketch.drivers import dbapi
from dpsketch.drivers.statements import SCHEMA
from dpsketch.extras import extra
from dpsketch.schema.columns import Column

with extra():
    from sqlalchemy import exc, pool, types
    from sqlalchemy.engine.default import DefaultDialect

TABLE = "sketch"
_TYPES: dict[str, Any] = {
    "number": types.Double,
    "integer": types.BigInteger,
    "category": types.String,
    "boolean": types.Boolean,
    "datetime": types.TIMESTAMP,
}


class Dialect(DefaultDialect):
    """Read-only access to a released sketch."""

    name = "dpsketch"
    driver = "dbapi"
    default_paramstyle = dbapi.paramstyle
    supports_statement_cache = True
    supports_native_boolean = True
    supports_sane_rowcount = False
    supports_alter = False

    @classmethod
    def import_dbapi(cls) -> Any:
        return dbapi

    @classmethod
    def get_pool_class(cls, url: Any) -> type[pool.Pool]:
        return pool.StaticPool  # threads share a view, and with it the fits that answers need

    def create_connect_args(self, url: Any) -> tuple[list[Any], dict[str, Any]]:
        unknown = set(url.query) - {"errors"}
        if url.host or not url.database or unknown:
            raise exc.ArgumentError(
                "an address looks like dpsketch:///folder/a.sketch or dpsketch:////absolute/a.sketch?errors=none"
            )
        return [url.database], dict(url.query)

    def do_ping(self, dbapi_connection: Any) -> bool:
        return dbapi_connection.view is not None

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        from importlib.metadata import version

        return tuple(int(part) for part in version("dpsketch").split(".")[:3] if part.isdigit())

    def _get_default_schema_name(self, connection: Any) -> str:
        return SCHEMA

    def get_schema_names(self, connection: Any, **_: Any) -> list[str]:
        return [SCHEMA]

    def get_table_names(self, connection: Any, schema: str | None = None, **_: Any) -> list[str]:
        return [TABLE] if schema in (None, SCHEMA) else []

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> bool:
        return table_name.lower() == TABLE and schema in (None, SCHEMA)

    def get_columns(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> list[Any]:
        self._check_table(connection, table_name, schema)
        view = connection.connection.dbapi_connection.view
        return [_reflected(column) for column in view.schema.columns]

    def get_table_comment(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        self._check_table(connection, table_name, schema)
        view = connection.connection.dbapi_connection.view
        return {"text": f"A release with {view.released.promise}: aggregates alone, each with its standard error."}

    def get_pk_constraint(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        self._check_table(connection, table_name, schema)
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> list[Any]:
        return self._none_of(connection, table_name, schema)

    def get_indexes(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> list[Any]:
        return self._none_of(connection, table_name, schema)

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> list[Any]:
        return self._none_of(connection, table_name, schema)

    def get_check_constraints(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> list[Any]:
        return self._none_of(connection, table_name, schema)

    def get_view_names(self, connection: Any, schema: str | None = None, **_: Any) -> list[str]:
        return []

    def _none_of(self, connection: Any, table_name: str, schema: str | None) -> list[Any]:
        self._check_table(connection, table_name, schema)
        return []

    def _check_table(self, connection: Any, table_name: str, schema: str | None) -> None:
        if not self.has_table(connection, table_name, schema):
            raise exc.NoSuchTableError(table_name)


def _reflected(column: Column) -> dict[str, Any]:
    kind = _TYPES.get(column.kind, types.NullType)
    return {"name": column.name, "type": kind(), "nullable": True, "default": None, "autoincrement": False}
