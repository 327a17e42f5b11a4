"""Results of statements are sequences of rows, and leave for other libraries with their types."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.learn.answer import Answer
from dpsketch.learn.answer_table import Table

GROUPED = "select {key} as k, count(*) as n, avg(since) as day from sketch group by {key} order by {key}"


@pytest.fixture(scope="module")
def cities(view: dps.View) -> Table:
    return view.sql("select city, avg(age) as mean_age from sketch group by city order by city")


def test_a_table_is_a_sequence_of_rows(cities: Table) -> None:
    assert len(cities) == len(cities.rows)
    first, *others = cities
    assert first == cities[0] == {"city": "north", "mean_age": cities.rows[0][1]}
    assert cities[-1] == others[-1]
    assert cities["city"] == tuple(row["city"] for row in cities)
    assert isinstance(cities["mean_age"][0], Answer)
    assert [row["city"] for row in cities[:2]] == ["north", "south"]
    assert isinstance(cities[:2], Table)
    with pytest.raises(dps.QueryError, match=r"the table has no column 'age'\nHint: its columns are city, mean_age"):
        cities["age"]
    with pytest.raises(IndexError):
        cities[len(cities)]


@pytest.mark.parametrize(
    ("key", "kind", "labels"),
    [
        ("grade", pa.int64(), [0, 1]),
        ("member", pa.bool_(), [False, True]),
        ("age > 54", pa.bool_(), [False, True]),
        ("city", pa.string(), ["north", "south", "west"]),
        ("grade * 0.5", pa.float64(), [0, 0.5]),
    ],
)
def test_labels_keep_their_types(view: dps.View, key: str, kind: pa.DataType, labels: list[object]) -> None:
    table = view.sql(GROUPED.format(key=key))
    arrow = table.to_arrow()
    assert arrow.column_names == ["k", "n", "n_stderr", "day", "day_stderr"]
    assert arrow.schema.types == [kind, pa.float64(), pa.float64(), pa.timestamp("us", "UTC"), pa.duration("us")]
    for found in (arrow["k"].to_pylist(), [row["k"] for row in table], [row["k"] for row in table.to_dicts()]):
        present = [label for label in found if label is not None]
        assert present == labels
        assert {type(label) for label in present} <= {type(label) for label in labels}
    assert json.dumps(table.to_dicts())
    assert view.sql(GROUPED.format(key=key) + " limit 0").to_arrow().schema.types == arrow.schema.types


def test_values_and_errors_are_those_of_the_answers(view: dps.View) -> None:
    table = view.sql(GROUPED.format(key="grade"))
    arrow = table.to_arrow()
    assert arrow["n"].to_pylist() == [answer.value for answer in table["n"]]
    assert arrow["n_stderr"].to_pylist() == [answer.stderr for answer in table["n"]]
    for moment, span, answer in zip(arrow["day"], arrow["day_stderr"], table["day"], strict=True):
        assert np.datetime64(moment.as_py().replace(tzinfo=None)) == answer.value
        assert np.timedelta64(span.as_py()) == answer.stderr


def test_frames(view: dps.View) -> None:
    table = view.sql(GROUPED.format(key="member"))
    frame = table.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert [str(kind) for kind in frame.dtypes] == [
        "boolean",
        "float64",
        "float64",
        "datetime64[us, UTC]",
        "timedelta64[us]",
    ]
    assert str(view.sql(GROUPED.format(key="grade")).to_pandas()["k"].dtype) == "Int64"
    polars = table.to_polars()
    assert polars.schema["k"] == pl.Boolean
    assert polars.schema["day"] == pl.Datetime("us", "UTC")
    assert polars.equals(pl.DataFrame(table))  # by the Arrow interface


def test_duckdb_reads_a_table(view: dps.View) -> None:
    table = view.sql(GROUPED.format(key="grade"))
    [(total, first)] = duckdb.sql("select sum(n), min(k) from table_of_groups", connection=_duck(table)).fetchall()
    assert total == pytest.approx(sum(answer.value for answer in table["n"]))
    assert first == 0


def _duck(table: Table) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("table_of_groups", table)
    return connection


def test_what_is_not_known_is_null_with_its_reason() -> None:
    unknown = Answer(np.nan, 30.0, raw=-3.0, possible=(18.0, 90.0), reason="too few")
    table = Table(("city", "m"), (("north", Answer(40.0, 1.0)), (None, unknown)), ())
    assert table.to_arrow().to_pylist() == [
        {"city": "north", "m": 40.0, "m_stderr": 1.0, "m_reason": None, "m_low": None, "m_high": None},
        {"city": None, "m": None, "m_stderr": 30.0, "m_reason": "too few", "m_low": 18.0, "m_high": 90.0},
    ]
    assert table.to_arrow().to_pylist() == table.to_dicts()
    assert table.to_arrow(raw=True)["m"].to_pylist() == [40.0, -3.0]


def test_dates_that_are_not_known() -> None:
    nothing = Answer(
        np.datetime64("NaT"), np.timedelta64("NaT"), raw=np.datetime64("NaT"), possible=(-np.inf, np.inf), reason="few"
    )
    table = Table(("day",), ((nothing,),), ())
    assert table.to_arrow()["day"].to_pylist() == [None]
    assert table.to_arrow()["day_low"].to_pylist() == [None]


def test_dates_that_label_groups() -> None:
    number, kinds = Answer(5.0, 1.0), ("date", "estimate")
    table = Table(("month", "n"), (("2020-01-01", number), ("2020-02-01", number), (None, number)), (), kinds)
    months = table.to_arrow()["month"]
    assert months.type == pa.timestamp("us", "UTC")
    assert [month and month.isoformat()[:10] for month in months.to_pylist()] == ["2020-01-01", "2020-02-01", None]
    assert table.to_dicts()[0]["month"] == "2020-01-01"


def test_booleans_are_shown_as_in_sql(view: dps.View) -> None:
    table = view.sql("select member, count(*) as n from sketch where member group by member order by n desc limit 1")
    assert table["member"] == (True,)
    assert "\ntrue " in repr(table)
    assert "<td>true</td>" in table._repr_html_()


def test_a_description_is_text(view: dps.View) -> None:
    assert view.sql("describe sketch").to_arrow().schema.types == [pa.string()] * 3
