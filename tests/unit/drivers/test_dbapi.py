"""The database API: what PEP 249 asks for, on a read-only sketch."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpsketch as dps
from dpsketch import dbapi
from dpsketch.drivers.dbapi import Connection

BY_CITY = "select city, member, avg(age) as m, avg(since) as d from sketch group by city, member order by city, member"


@pytest.fixture(scope="module")
def connection(view: dps.View) -> Connection:
    return dbapi.connect(view)


def test_the_module_says_what_it_is() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    for name in ("DataError", "OperationalError", "IntegrityError", "InternalError", "ProgrammingError"):
        assert issubclass(getattr(dbapi, name), dbapi.DatabaseError)
    assert issubclass(dbapi.NotSupportedError, dbapi.DatabaseError)
    assert issubclass(dbapi.DatabaseError, dbapi.Error)
    assert issubclass(dbapi.InterfaceError, dbapi.Error)
    assert issubclass(dbapi.Error, dps.DpsketchError)
    assert issubclass(dbapi.Warning, Exception)


def test_rows_are_plain_values_with_their_types(connection: Connection, view: dps.View) -> None:
    cursor = connection.cursor().execute(BY_CITY)
    assert cursor.description is not None
    assert [(name, code) for name, code, *_ in cursor.description] == [
        ("city", "VARCHAR"),
        ("member", "BOOLEAN"),
        ("m", "DOUBLE"),
        ("m_stderr", "DOUBLE"),
        ("d", "TIMESTAMP"),
        ("d_stderr", "INTERVAL"),
    ]
    assert cursor.description[0][1] == dbapi.STRING != cursor.description[2][1]
    assert cursor.description[2][1] == dbapi.NUMBER
    assert cursor.description[4][1] == dbapi.DATETIME
    first = cursor.fetchone()
    answer = view.sql(BY_CITY).rows[0][2]
    assert first is not None
    assert first[:4] == ("north", False, answer.value, answer.stderr)
    assert [type(cell) for cell in first[4:]] == [datetime, timedelta]
    assert cursor.rowcount == 1 + len(cursor.fetchmany(2)) + len(cursor.fetchall())
    assert cursor.fetchone() is None
    assert cursor.fetchmany() == []
    assert cursor.table is not None
    assert cursor.table["m"][0].interval()


def test_without_errors_rows_are_as_long_as_the_select_list(view: dps.View) -> None:
    with dbapi.connect(view, errors="none") as connection:
        [(count,)] = connection.cursor().execute("SELECT COUNT(*) AS count FROM sketch")
        assert count == view.count().value


@pytest.mark.parametrize(
    ("condition", "parameters", "written"),
    [
        ("age > ?", [40], "age > 40"),
        ("age > ? and city = ?", (40, "north"), "age > 40 and city = 'north'"),
        ("city = :city", {"city": "north"}, "city = 'north'"),
        ("since < ?", [date(2010, 1, 1)], "since < '2010-01-01'"),
        ("since < ?", [datetime(2010, 1, 1, 12)], "since < '2010-01-01 12:00'"),
        ("Cost > ?", [np.float64(20.5)], "Cost > 20.5"),
        ("Cost > ?", [-1], "Cost > -1"),
        ("member = ?", [True], "member = true"),
        ("age > ? /* ? */ and city in ('north', ?) -- ?", [40, "south"], "age > 40 and city in ('north', 'south')"),
    ],
)
def test_parameters_are_literals(view: dps.View, condition: str, parameters: object, written: str) -> None:
    text = "select count(*) from sketch where "
    [(found,)] = dbapi.connect(view, "none").cursor().execute(text + condition, parameters)
    [(expected,)] = dbapi.connect(view, "none").cursor().execute(text + written)
    assert found == expected


def test_a_limit_may_be_a_parameter(connection: Connection) -> None:
    assert len(connection.cursor().execute(BY_CITY + " limit ? offset ?", [2, 1]).fetchall()) == 2


def test_what_is_not_known_is_null_and_its_reason_a_message(connection: Connection) -> None:
    cursor = connection.cursor().execute("select avg(age) as m from sketch where city = 'north' and Cost > 99.9999")
    [(value, _)] = cursor.fetchall()
    assert value is None
    assert cursor.messages[0][0] is dbapi.Warning
    assert cursor.messages[0][1].startswith("m not known: ")


@pytest.mark.parametrize(
    ("statement", "parameters", "kind", "message"),
    [
        ("select * from sketch", (), dbapi.NotSupportedError, "a sketch holds no rows to select\nHint: ask for aggreg"),
        ("select sketch.* from sketch limit 10", (), dbapi.NotSupportedError, "a sketch holds no rows"),
        ("select age, city as c from sketch", (), dbapi.NotSupportedError, "a sketch holds no rows"),
        (
            "select count(*) from sketch where city = ?",
            ["it's; drop table sketch"],
            dbapi.ProgrammingError,
            "column 'city' has no listed value 'it's; drop table sketch'",
        ),
        ("delete from sketch", (), dbapi.ProgrammingError, "only one select statement is supported"),
        ("select from where", (), dbapi.ProgrammingError, "not valid SQL"),
        ("select now()", (), dbapi.ProgrammingError, "a statement without from may only hold constants"),
        ("select count(*) from sketch where age > ?", (), dbapi.ProgrammingError, "has 1 parameter, got 0 values"),
        ("select count(*) from sketch where age > :a", {"b": 1}, dbapi.ProgrammingError, "no value for parameter 'a'"),
        ("select count(*) from sketch where age > ?", ([1],), dbapi.ProgrammingError, "got list instead"),
        ("describe sketch", (1,), dbapi.ProgrammingError, "only a select statement has parameters"),
        (
            "select x from (select count(*) as n from sketch) as t",
            (),
            dbapi.ProgrammingError,
            "the sub-select has no column 'x'\nHint: its columns are n",
        ),
    ],
)
def test_refusals(
    connection: Connection, statement: str, parameters: object, kind: type[dbapi.Error], message: str
) -> None:
    with pytest.raises(kind) as raised:
        connection.cursor().execute(statement, parameters)
    assert message in str(raised.value)


def test_wrong_use(connection: Connection, view: dps.View, tmp_path: Path) -> None:
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect(tmp_path / "none.sketch")
    with pytest.raises(dbapi.InterfaceError, match="errors must be columns or none, got 'both' instead"):
        dbapi.connect(view, errors="both")
    cursor = connection.cursor()
    with pytest.raises(dbapi.InterfaceError, match="there is no result"):
        cursor.fetchone()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="the cursor is closed"):
        cursor.execute("select 1")
    closed = dbapi.connect(view)
    closed.close()
    with pytest.raises(dbapi.InterfaceError, match="the connection is closed"):
        closed.cursor()


def test_the_rest_of_the_interface(connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.setinputsizes([])
    cursor.setoutputsize(1)
    connection.commit()
    connection.rollback()
    assert cursor.executemany("select ?", [(1,), (2,)]).fetchall() == [(2,)]
    assert cursor.execute("describe sketch").fetchall()[0] == ("age", "integer", "18 to 90")


def test_pandas_reads_from_a_connection(connection: Connection) -> None:
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        frame = pd.read_sql("select city, count(*) as n from sketch group by city order by city", connection)
    assert list(frame.columns) == ["city", "n", "n_stderr"]
    assert frame["n"].sum() == pytest.approx(4000, rel=0.05)
