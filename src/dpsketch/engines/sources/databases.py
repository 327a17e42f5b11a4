"""Tables and queries of PostgreSQL and SQLite, in constant memory through ADBC."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from dpsketch.engines.sources.data_files import shown
from dpsketch.engines.sources.source import Columns, Progress, check_columns
from dpsketch.errors import DpsketchError, SourceError
from dpsketch.extras import extra

SCHEMES = ("postgresql", "postgres", "sqlite")
_ROWS_AT_ONCE = 1 << 16  # of SQLite; PostgreSQL's driver takes a number of bytes
_HINTS = {  # by the first digits of the SQL state, which has no text of the server in it
    "42P01": ("has no such table", "check the name, and the schema before it: --table visits.patients"),
    "42703": ("has no such column", "check the names in the query"),
    "42601": ("cannot parse the query", "run it in the database's own shell first"),
    "42501": ("does not allow this user to read the table", "grant select on it"),
}


@dataclass(frozen=True)
class Database:
    """A table or a query of a database: `Database("postgresql://host/hospital", table="visits")`.

    The query is public text. Credentials are best kept out of the URL: PGPASSFILE, PGSERVICEFILE. A query is a table
    like any other: its rows are the records, and joins come before the pass (docs/sources.md).
    """

    url: str = field(repr=False)
    query: str | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise SourceError(
                f"{shown(self.url)} is not a database that can be read",
                "postgresql://HOST/DATABASE or sqlite:///PATH; other databases: docs/sources.md",
            )
        if (self.query is None) == (self.table is None):
            raise SourceError(
                f"{self.name} needs a table or a query",
                "dps.Database(URL, table=NAME) or query=SELECT; --table or --query on the command line",
            )

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def name(self) -> str:
        return shown(self.url)

    def columns(self) -> Columns:
        with self._reader(f"select * from {self._rows} limit 0") as reader:
            return [(each.name, each.type) for each in reader.schema]

    def batches(self, wanted: Sequence[str], sets: Collection[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        check_columns(self.name, [name for name, _ in self.columns()], wanted)
        columns = ", ".join(map(_quoted, wanted))
        with self._reader(f"select {columns} from {self._rows}") as reader:
            yield from reader
        progress(1.0)

    @property
    def _rows(self) -> str:
        if self.table is not None:
            return ".".join(map(_quoted, self.table.split(".")))
        assert self.query is not None
        return f"({self.query.strip().rstrip(';')}) as rows_of_the_query"

    @contextmanager
    def _reader(self, statement: str) -> Iterator[pa.RecordBatchReader]:
        """Close the reader, the cursor and the connection, whatever happens."""
        with self._plain_errors("cannot be connected to", "check the host, the port, the user and the password"):
            connection = self._connect()
        if self.query is None:
            texts = f"cannot read the table '{self.table}'", "check the name of the table, and that this is a database"
        else:
            texts = "cannot run the query", "run the query in the database's own shell"
        with self._plain_errors(*texts), closing(connection), closing(connection.cursor()) as cursor:
            if self.scheme == "sqlite":
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_ROWS_AT_ONCE)})
            cursor.execute(statement)
            with cursor.fetch_record_batch() as reader:
                yield reader

    def _connect(self) -> Any:
        with extra():
            if self.scheme == "sqlite":
                from adbc_driver_sqlite import dbapi as sqlite

                path = Path(self.url.removeprefix("sqlite:///"))
                if not path.is_file():  # SQLite would create it
                    raise SourceError(f"there is no file {path}", "sqlite:///data.db, or sqlite:////absolute/data.db")
                return sqlite.connect(f"file:{quote(str(path))}?mode=ro")
            from adbc_driver_postgresql import dbapi as postgresql

            return postgresql.connect(self.url)

    @contextmanager
    def _plain_errors(self, fact: str, hint: str) -> Iterator[None]:
        """Replace errors of the drivers, whose text may contain cells or credentials."""
        try:
            yield
        except (DpsketchError, GeneratorExit):
            raise
        except Exception as error:
            state = getattr(error, "sqlstate", None) or ""
            known = next((text for start, text in _HINTS.items() if state.startswith(start)), (fact, hint))
            raise SourceError(f"{self.name} {known[0]} ({state or type(error).__name__})", known[1]) from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
