"""Parts of dates in statements, where the schema has a column for them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

import dpsketch as dps
from dpsketch.learn.sql.expressions import parse_condition

COLUMNS = {
    "pickup": {"kind": "datetime", "lower": "2000-01-01", "upper": "2030-01-01"},
    "pickup_hour": {"from": "pickup", "part": "hour"},
    "day": {"from": "pickup", "part": "date"},
    "end_year": {"from": "end", "part": "year", "lower": 2020, "upper": 2026},
}
TABLE = pa.table(
    {
        "pickup": np.array(["2024-03-01T07:59", "2024-03-01T08:00", "2024-04-02T08:30", "NaT"], "M8[us]"),
        "end": ["2024-03-01", "2025-03-01", "2025-04-02", None],
    }
)


def view() -> dps.View:
    schema = dps.Schema.from_dict({"privacy": {"rows": 4}, "columns": COLUMNS})
    tables = [["pickup"], ["pickup_hour", "end_year"], ["day"]]
    parts = [dps.Part(dps.Histogram(ways=len(names), columns=names, bins=4096), 0.3) for names in tables]
    return dps.View(dps.release(dps.accumulate(TABLE, schema, dps.Recipe(parts)), dps.Budget(math.inf)))


def test_parts_are_read_from_their_columns() -> None:
    asked = view()
    for condition in ("hour(pickup) = 8", "extract(hour from pickup) >= 8", "date_part('hour', pickup) in (8, 9)"):
        answer = asked.count(condition)
        assert round(answer.value) == 2
        assert answer.stderr == 0
        assert "pickup_hour" in answer.how
    rows = asked.sql("select hour(pickup) as h, count(*) as n from sketch group by h having n > 0 order by h").rows
    assert [(hour, round(count.value)) for hour, count in rows] == [(7, 1), (8, 2), (None, 1)]
    [row] = asked.sql("select hour(pickup), count(*) from sketch where hour(pickup) = 7 group by 1").to_dicts()
    assert row["hour(pickup)"] == 7
    assert round(asked.count('hour(pickup) = 8 and year("end") = 2025').value) == 2


def test_days_are_read_from_theirs() -> None:
    asked = view()
    assert asked.count("pickup::date = '2024-03-01'").how == asked.count("day < '2024-03-02'").how
    assert "day" in asked.count("pickup::date = '2024-03-01'").how


def test_plans_simulate_computed_columns() -> None:
    schema = dps.Schema.from_dict({"privacy": {"rows": 500}, "columns": COLUMNS})
    question = 'select avg(pickup_hour) from sketch where year("end") = 2022'
    assert dps.plan(schema, [question], [dps.Budget(1.0)], simulations=1).predictions


def test_a_computed_column_is_missing_where_its_source_is() -> None:
    """Then a question is about one column, whose table is exact here; no table has both."""
    asked = view()
    for condition in ("pickup is not null", "not (pickup is null)", "PICKUP notnull"):
        counted = asked.sql(
            f"select pickup_hour, count(*) n from sketch where {condition} group by 1 having n > 0"
        ).rows
        assert [(hour, round(count.value), count.stderr) for hour, count in counted] == [(7, 1, 0), (8, 2, 0)]
    answer = asked.count("pickup_hour = 8 and pickup is not null")
    assert (round(answer.value), answer.stderr) == (2, 0)
    assert round(asked.count("pickup_hour is null and pickup is not null").value) == 0
    mean = asked.mean("pickup_hour", where="pickup is not null")
    assert (round(mean.value, 6), mean.stderr, mean.how) == (round(23 / 3, 6), 0, asked.mean("pickup_hour").how)
    [row] = asked.sql(
        "select count(pickup), count(*) filter (where pickup is null) n, avg(pickup_hour) a from sketch"
    ).rows
    assert [round(row[0].value), round(row[1].value)] == [3, 1]
    table = asked.sql("select pickup_hour, count(pickup) from sketch group by 1 order by count(pickup) desc limit 1")
    assert table.columns[1] == "count(pickup)"
    assert table.rows[0][0] == 8


def test_other_questions_about_the_source_are_about_the_source() -> None:
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 4}, "columns": COLUMNS | {"length": {"kind": "number", "lower": 0, "upper": 9}}}
    )

    def meant(text: str) -> str:
        return parse_condition(text, schema).sql("duckdb")

    assert meant("pickup is not null and pickup_hour = 8") == 'NOT "pickup_hour" IS NULL AND pickup_hour = 8'
    for same in (
        "NOT pickup IS NULL",
        "NOT pickup IS NULL AND length > 1",
        "NOT pickup IS NULL AND pickup > '2024-01-01' AND pickup_hour = 8",
        "NOT length IS NULL AND pickup_hour = 8",
    ):
        assert meant(same) == same


def test_ratios_may_be_missing_where_their_sources_are_not() -> None:
    columns = {name: {"kind": "number", "lower": 0, "upper": 9} for name in ("a", "b")}
    columns |= {"r": {"ratio": ["a", "b"], "lower": 0, "upper": 9}, "old": {"from": "a", "edges": [5]}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 4}, "columns": columns})
    assert parse_condition("NOT a IS NULL AND r > 1", schema).sql() == "NOT a IS NULL AND r > 1"
    assert parse_condition("a IS NULL OR old = '5+'", schema).sql() == "\"old\" IS NULL OR old = '5+'"
