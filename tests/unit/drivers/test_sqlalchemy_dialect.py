"""The dialect of SQLAlchemy: reflection, and the statements that dashboards and notebooks send."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry

from dpsketch.drivers.sqlalchemy_dialect import Dialect

ROOT = Path(__file__).parents[3]
# Statements of other programs with the names of their tables and columns replaced by ours, and the rows they return.
SENT = {
    # Superset, tests/unit_tests/db_engine_specs/test_base.py::test_cte_query_parsing
    "SELECT 1 as cnt": 1,
    # tests/integration_tests/sqla_models_tests.py: a metric and a filter of time
    "SELECT count(*) AS count\nFROM sketch\nWHERE since >= '2010-01-01 00:00:00.000000'\n  AND since < '2011-01-01'": 1,
    # tests/integration_tests/sqla_models_tests.py: filters by operators
    "SELECT city AS city, count(*) AS count\nFROM sketch\nWHERE age IN (20, 30) GROUP BY city": 2,
    # superset-frontend/src/SqlLab/fixtures.ts: a limit around the statement of a user
    "SELECT * \nFROM (SELECT city, avg(age) AS m FROM sketch GROUP BY city) AS inner_qry \n LIMIT 1000": 2,
    # superset/models/helpers.py, VIRTUAL_TABLE_ALIAS: columns of a saved statement
    "SELECT city AS city, m AS m\nFROM\n  (SELECT city, avg(age) AS m FROM sketch GROUP BY city) AS virtual_table\n"
    "ORDER BY m DESC\nLIMIT 1": 1,
    # superset/models/helpers.py, values_for_column: what a filter offers
    "SELECT DISTINCT city AS column_values FROM sketch LIMIT 10000": 2,
    # Metabase, test/metabase/driver/sql/query_processor_test.clj: default-select-test
    'SELECT "source".* FROM (SELECT city, count(*) AS n FROM sketch GROUP BY city) AS "source"': 2,
    # not-null-test, with the schema that Metabase writes before its tables
    'SELECT COUNT(*) AS "count" FROM "public"."sketch" WHERE "public"."sketch"."since" IS NOT NULL': 1,
    # handle-named-aggregations-test
    'SELECT "public"."sketch"."member" AS "member", AVG("public"."sketch"."age") AS "avg_2" FROM "public"."sketch" '
    'GROUP BY "public"."sketch"."member" ORDER BY "avg_2" ASC, "public"."sketch"."member" ASC': 2,
}


@pytest.fixture(scope="module")
def engine(path: Path) -> Iterator[sa.Engine]:
    registry.register("dpsketch", "dpsketch.drivers.sqlalchemy_dialect", "Dialect")  # as the entry point does
    engine = sa.create_engine(f"dpsketch:///{path}?errors=none")
    yield engine
    engine.dispose()


def test_the_entry_point_leads_to_the_dialect() -> None:
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["sqlalchemy.dialects"]
    module, _, name = entries["dpsketch"].partition(":")
    assert getattr(import_module(module), name) is Dialect


def test_reflection(engine: sa.Engine) -> None:
    found = sa.inspect(engine)
    assert (found.get_schema_names(), found.default_schema_name) == (["main"], "main")
    assert found.get_table_names() == found.get_table_names("main") == ["sketch"]
    assert found.get_table_names("other") == found.get_view_names() == []
    assert found.has_table("sketch")
    assert not found.has_table("people")
    assert [(column["name"], str(column["type"])) for column in found.get_columns("sketch")] == [
        ("age", "BIGINT"),
        ("city", "VARCHAR"),
        ("since", "TIMESTAMP"),
        ("member", "BOOLEAN"),
        ("Cost", "DOUBLE"),
    ]
    assert found.get_pk_constraint("sketch")["constrained_columns"] == []
    for asked in (found.get_foreign_keys, found.get_indexes, found.get_unique_constraints, found.get_check_constraints):
        assert asked("sketch") == []
    assert str(found.get_table_comment("sketch")["text"]).startswith("A release with epsilon 20")
    with pytest.raises(sa.exc.NoSuchTableError):
        found.get_columns("people")
    assert set(sa.Table("sketch", sa.MetaData(), autoload_with=engine).columns.keys()) >= {"age", "Cost"}


@pytest.mark.parametrize("statement", SENT)
def test_statements_of_dashboards(engine: sa.Engine, statement: str) -> None:
    with engine.connect() as connection:
        assert len(connection.exec_driver_sql(statement).fetchall()) == SENT[statement]


def test_superset_previews_are_refused(engine: sa.Engine) -> None:
    """tests/unit_tests/db_engine_specs/test_base.py::test_select_star: columns of rows, limits as parameters."""
    with engine.connect() as connection:
        with pytest.raises(sa.exc.NotSupportedError, match="Hint: ask for aggregates"):
            connection.exec_driver_sql("SELECT\n  age\nFROM sketch\nLIMIT ?\nOFFSET ?", (100, 0))
        with pytest.raises(sa.exc.NotSupportedError, match="Hint: ask for aggregates"):
            connection.exec_driver_sql("SELECT * FROM sketch LIMIT 100")


def test_wrappers_sort_limit_and_rename(engine: sa.Engine) -> None:
    inner = "(select city, member, count(*) as n from sketch group by city, member) as t"
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"select n as total, city from {inner} order by 1 desc limit 2").fetchall()
        assert rows[0].total > rows[1].total
        assert rows[0].city == rows[1].city == "north"
        nested = f"select * from (select * from {inner} order by n limit 3) as u order by n desc limit 1 offset 1"
        every = connection.exec_driver_sql(f"select t.* from {inner} order by t.n").fetchall()
        assert connection.exec_driver_sql(nested).fetchall() == [every[1]]


def test_expressions_of_sqlalchemy(engine: sa.Engine) -> None:
    sketch = sa.Table("sketch", sa.MetaData(), autoload_with=engine)
    number, cost = sa.func.count(), sa.func.avg(sketch.c.Cost).label("cost")
    statement = sa.select(sketch.c.city, number, cost).where(sketch.c.age > 40, sketch.c.city.in_(["north"]))
    with engine.connect() as connection:
        [row] = connection.execute(statement.group_by(sketch.c.city).limit(1)).fetchall()
        assert row.city == "north"
        assert row.cost == pytest.approx(50, abs=5)
        assert connection.scalar(sa.select(1)) == 1
        assert engine.dialect.do_ping(connection.connection.dbapi_connection)
        connection.commit()


def test_pandas_reads_with_errors(path: Path, engine: sa.Engine) -> None:
    with_errors = sa.create_engine(f"dpsketch:///{path}")
    statement = sa.text("select member, avg(age) as m from sketch where age > :least group by member order by member")
    frame = pd.read_sql(statement, with_errors, params={"least": 30})
    assert list(frame.columns) == ["member", "m", "m_stderr"]
    assert frame["member"].tolist()[:2] == [False, True]
    assert list(pd.read_sql("select avg(since) as d from sketch", engine).dtypes.astype(str)) == ["datetime64[us]"]


@pytest.mark.parametrize("address", ["dpsketch://", "dpsketch://host/a.sketch", "dpsketch:///a.sketch?mode=rw"])
def test_addresses(engine: sa.Engine, address: str) -> None:
    with pytest.raises(sa.exc.ArgumentError, match="an address looks like dpsketch:///folder"):
        sa.create_engine(address).connect()
    with pytest.raises(sa.exc.OperationalError):
        sa.create_engine("dpsketch:///none.sketch").connect()
