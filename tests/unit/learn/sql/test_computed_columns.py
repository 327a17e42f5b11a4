"""Parts of dates in statements, where the schema has a column for them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

import dpsketch as dps

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
