"""Databases and lake tables give the same sums as the table that was stored in them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.catalog
import pytest
from adbc_driver_postgresql import dbapi as postgresql
from adbc_driver_sqlite import dbapi as sqlite
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

import dpsketch as dps
from dpsketch.engines.readers import source_columns
from postgres_server import Server


def bytes_of(raw: dps.RawSketch) -> list[bytes]:
    return [part.sums.tobytes() for part in raw.parts]


@pytest.fixture
def expected(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> list[bytes]:
    return bytes_of(dps.accumulate(table, schema, recipe, dps.Local(threads=1)))


def in_sqlite(table: pa.Table, path: Path) -> Path:
    with sqlite.connect(str(path)) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("people", _plain(table))
        connection.commit()
    return path


def in_postgresql(table: pa.Table, url: str) -> str:
    with postgresql.connect(url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("people", _plain(table))
        connection.commit()
    return url


def _plain(table: pa.Table) -> pa.Table:
    """Dates as timestamps, and missing ages as nulls: databases have no others."""
    ages = pc.if_else(pc.is_nan(table["age"]), None, table["age"])
    return table.set_column(table.column_names.index("age"), "age", ages)


def in_iceberg(table: pa.Table, folder: Path) -> Any:
    folder.mkdir()
    catalog = SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    catalog.create_namespace("home")
    stored = table.set_column(table.column_names.index("joined"), "joined", table["joined"].cast(pa.date32()))
    created = catalog.create_table("home.people", stored.schema)
    created.append(stored)
    return created


def test_sqlite(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes], tmp_path: Path) -> None:
    url = f"sqlite:///{in_sqlite(table, tmp_path / 'people.db')}"
    whole = dps.Database(url, table="people")
    assert bytes_of(dps.accumulate(whole, schema, recipe)) == expected
    assert [name for name, _ in source_columns(whole)[0]] == table.column_names
    asked = dps.Database(url, query="select * from people where height > 0;")
    assert bytes_of(dps.accumulate(asked, schema, recipe)) == expected
    with sqlite3.connect(tmp_path / "people.db") as connection:
        cursor = connection.execute("select * from people")
        assert bytes_of(dps.accumulate(cursor, schema, recipe)) == expected


def test_postgresql(
    table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes], postgres: Server
) -> None:
    url = in_postgresql(table, postgres.new_database())
    assert bytes_of(dps.accumulate(dps.Database(url, table="people"), schema, recipe)) == expected
    numeric = "select age::numeric(6, 0), height, income, sex, member, joined from people"
    assert bytes_of(dps.accumulate(dps.Database(url, query=numeric), schema, recipe)) == expected
    with postgresql.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("select * from people")
        assert bytes_of(dps.accumulate(cursor, schema, recipe)) == expected


def test_delta(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes], tmp_path: Path) -> None:
    """Rows that were deleted, and files that were replaced, are not read."""
    lake = tmp_path / "lake"
    write_deltalake(lake, table.slice(0, 300))
    write_deltalake(lake, table, mode="overwrite")
    write_deltalake(lake, table.slice(0, 10).set_column(3, "sex", pa.array(["deleted"] * 10)), mode="append")
    DeltaTable(lake).delete("sex = 'deleted'")
    for source in (lake, str(lake), f"delta://{lake}"):
        assert bytes_of(dps.accumulate(source, schema, recipe)) == expected
        assert [name for name, _ in source_columns(source)[0]] == table.column_names


def test_iceberg(
    table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{tmp_path}/warehouse/catalog.db")
    created = in_iceberg(table, tmp_path / "warehouse")
    created.append(created.scan().to_arrow().slice(0, 10).set_column(3, "sex", pa.array(["deleted"] * 10)))
    created.delete("sex = 'deleted'")
    folder = Path(created.location().removeprefix("file://"))
    assert bytes_of(dps.accumulate(folder, schema, recipe)) == expected
    assert [name for name, _ in source_columns(folder)[0]] == table.column_names
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # otherwise read when the package is imported
    assert bytes_of(dps.accumulate("iceberg://test/home.people", schema, recipe)) == expected


def test_of_a_lake_table_half_deleted_half_is_read(tmp_path: Path) -> None:
    table = pa.table({"x": list(range(1000))})
    lake = tmp_path / "lake"
    write_deltalake(lake, table)
    DeltaTable(lake).delete("x % 2 = 0")
    columns = {"x": {"kind": "integer", "lower": 0, "upper": 999}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 1000}, "columns": columns})
    raw = dps.accumulate(lake, schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]))
    assert raw.parts[0].sums.tolist() == [500]


SECRET = "pass-word-7"


def refused(source: Any, schema: dps.Schema, recipe: dps.Recipe) -> str:
    with pytest.raises(dps.DpsketchError) as error:
        dps.accumulate(source, schema, recipe)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None
    return error.value.fact


def test_what_is_wrong_with_a_database_is_said_in_one_line(
    table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path, postgres: Server
) -> None:
    url = in_postgresql(table, postgres.new_database())
    unreachable = f"postgresql://owner:{SECRET}@127.0.0.1:1/postgres"
    name = "postgresql:///postgres"
    cannot = {
        "postgresql://127.0.0.1:1/postgres cannot be connected to (OperationalError)": dps.Database(
            unreachable, table="people"
        ),
        f"{name} has no such table (42P01)": dps.Database(url, table=f"{SECRET}"),
        f"{name} has no such column (42703)": dps.Database(url, query="select nothing from people"),
        f"{name} cannot parse the query (42601)": dps.Database(url, query="select select"),
        f"{name} cannot run the query (OSError)": dps.Database(
            url, query="select sex::int as age, height, income, sex, member, joined from people"
        ),
        f"{name} has no column 'age'": dps.Database(url, query="select sex from people"),
        f"there is no file {tmp_path}/no.db": dps.Database(f"sqlite:///{tmp_path}/no.db", table="people"),
    }
    small = in_sqlite(table, tmp_path / "people.db")
    for path in (small, tmp_path / "text.db"):
        (tmp_path / "text.db").write_text("no database " * 100)
        absent = dps.Database(f"sqlite:///{path}", table="persons")
        cannot[f"sqlite:///{path} cannot read the table 'persons' (ProgrammingError)"] = absent
    for fact, source in cannot.items():
        assert refused(source, schema, recipe) == fact
    assert not (tmp_path / "no.db").exists()


def test_a_wrong_password_is_printed_nowhere(schema: dps.Schema, recipe: dps.Recipe, postgres: Server) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role guest login password 'another'")
        rules = Path(str(connection.execute("show hba_file").fetchone()[0]))  # type: ignore[index]
        trusted = rules.read_text()
        rules.write_text("local all guest scram-sha-256\n" + trusted)
        connection.execute("select pg_reload_conf()")
    wrong = dps.Database(url.replace("owner@", f"guest:{SECRET}@"), table="people")
    try:
        fact = "postgresql:///postgres cannot be connected to (OperationalError)"
        assert refused(wrong, schema, recipe) == fact
    finally:
        rules.write_text(trusted)


def test_a_database_needs_a_table_or_a_query() -> None:
    for options in ({}, {"table": "a", "query": "b"}):
        with pytest.raises(dps.DpsketchError, match="postgresql://host/db needs a table or a query"):
            dps.Database(f"postgresql://owner:{SECRET}@host/db", **options)
    with pytest.raises(dps.DpsketchError, match="mysql://host/db is not a database that can be read"):
        dps.Database(f"mysql://owner:{SECRET}@host/db", table="a")
    assert SECRET not in repr(dps.Database(f"postgresql://owner:{SECRET}@host/db", table="a"))
