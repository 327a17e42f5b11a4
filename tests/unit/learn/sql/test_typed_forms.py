"""SQL as people type it: every form is answered as DuckDB answers it on the same table, or refused in exact words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas
import pytest

import dpsketch as dps
from conftest import SEED

LABELS = ["ant", "Bee", "b_t"]
FACTS = {
    "privacy": {"rows": 2000},
    "columns": {
        "a": {"kind": "integer", "lower": 0, "upper": 9},
        "c": {"kind": "category", "values": LABELS},
        "e": {"kind": "category", "values": list(reversed(LABELS))},
        "m": {"kind": "boolean"},
        # a level a minute, so that every record lies at a level
        "d": {"kind": "datetime", "lower": "2024-01-01", "upper": "2024-02-15T12:14:00"},
    },
}
ROWS = 2000


def table() -> pandas.DataFrame:
    rng = np.random.default_rng(SEED)
    c, e = (rng.choice([*LABELS, None], ROWS, p=[0.5, 0.25, 0.2, 0.05]) for _ in range(2))
    days = np.minimum(rng.integers(0, 45, ROWS), rng.integers(0, 45, ROWS))
    minutes = rng.choice([7, 8, 8, 9, 12, 17, 17, 23], ROWS) * 60 + rng.integers(0, 12, ROWS) * 5 + 2
    minutes += (c == "ant") * 30 - 30
    d = np.datetime64("2024-01-01", "us") + (days * 1440 + minutes).astype("m8[m]")
    frame = pandas.DataFrame({"a": rng.integers(0, 10, ROWS), "c": c, "e": e, "m": rng.random(ROWS) < 0.3, "d": d})
    frame.loc[rng.random(ROWS) < 0.04, "d"] = None
    return frame


@pytest.fixture(scope="module")
def view() -> dps.View:
    """Cells so small that answers are exact, without noise."""
    tables = [["d"], ["a", "c", "e", "m"], ["c", "d"]]
    parts = [dps.Part(dps.Histogram(ways=len(names), columns=names, bins=1 << 15), 0.3) for names in tables]
    raw = dps.accumulate(table(), dps.Schema.from_dict(FACTS), dps.Recipe([dps.Part(dps.Count(), 0.1), *parts]))
    return dps.View(dps.release(raw, dps.Budget(math.inf)))


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register("sketch", table())
        yield connection


# ruff: noqa: E501
# A statement, and how DuckDB spells it where that differs.
ANSWERED: list[tuple[str, str | None]] = [
    # parts of dates
    ("select count(*) from sketch where year(d) = 2024", None),
    ("select count(*) from sketch where month(d) = 2", None),
    ("select count(*) from sketch where day(d) between 3 and 9", None),
    ("select count(*) from sketch where hour(d) < 9 or hour(d) = 17", None),
    ("select count(*) from sketch where dayofweek(d) in (0, 6)", None),
    ("select count(*) from sketch where isodow(d) = 7 and c = 'ant'", None),
    ("select count(*) from sketch where quarter(d) = 1 and week(d) = 2 and minute(d) >= 30", None),
    ("select count(*) from sketch where extract(hour from d) = 8", None),
    ("select count(*) from sketch where extract(dow from d) = 1", None),
    ("select count(*) from sketch where date_part('day', d) = 31", None),
    ("select count(*) from sketch where dayofyear(d) <= 10", None),
    ("select avg(hour(d)), avg(day(d) * 2) from sketch", None),
    ("select sum(case when hour(d) >= 12 then 1 else 0 end) from sketch", None),
    ("select c, avg(hour(d)) from sketch group by c", None),
    ("select hour(d), count(*) from sketch group by hour(d) order by 1", None),
    ("select month(d) as month, count(*) from sketch where month(d) is not null group by month order by month", None),
    ("select dayofweek(d) as w, count(*) as n from sketch where d is not null group by w having n > 250 order by w", None),
    ("select hour(d) >= 12 as late, count(*) from sketch where d is not null group by late order by 2", None),
    # calendar units and intervals
    ("select count(*) from sketch where d = date '2024-01-05'", "select count(*) from sketch where d::date = '2024-01-05'"),
    ("select count(*) from sketch where d = '2024-01-05'", "select count(*) from sketch where d::date = '2024-01-05'"),
    ("select count(*) from sketch where d <> date '2024-01-05'", "select count(*) from sketch where d::date <> '2024-01-05'"),
    (
        "select count(*) from sketch where d in ('2024-01-05', '2024-01-07')",
        "select count(*) from sketch where d::date in ('2024-01-05', '2024-01-07')",
    ),
    ("select count(*) from sketch where d::date = '2024-01-05'", None),
    ("select count(*) from sketch where cast(d as date) between '2024-01-05' and '2024-01-06'", None),
    ("select count(*) from sketch where d::date > '2024-01-05' and d::date <= '2024-01-31'", None),
    ("select count(*) from sketch where date_trunc('month', d) = date '2024-02-01'", None),
    ("select count(*) from sketch where date_trunc('month', d) = date '2024-02-02'", None),
    ("select count(*) from sketch where date_trunc('month', d) <> date '2024-02-01'", None),
    ("select count(*) from sketch where date_trunc('week', d) >= '2024-01-10'", None),
    ("select count(*) from sketch where date_trunc('hour', d) < timestamp '2024-01-10 12:00:00'", None),
    ("select count(*) from sketch where year(d) >= 2023.5 and year(d) < 2025", None),
    ("select count(*) from sketch where d >= date '2024-01-05' + interval '7 days'", None),
    ("select count(*) from sketch where d + interval 1 month > timestamp '2024-02-10 00:00:00'", None),
    ("select count(*) from sketch where d - interval '2 hours' < '2024-01-10'", None),
    ("select count(*) from sketch where date_diff('day', d, date '2024-01-20') > 3", None),
    ("select avg(date_diff('hour', timestamp '2024-01-01 00:00:00', d)) from sketch", None),
    (
        "select date_trunc('month', d) as month, count(*) from sketch group by month order by month",
        "select strftime(date_trunc('month', d), '%Y-%m-%d') as month, count(*) from sketch group by month order by month",
    ),
    (
        "select d::date as day, count(*) from sketch where d < '2024-01-08' group by day order by day",
        "select strftime(d, '%Y-%m-%d') as day, count(*) from sketch where d < '2024-01-08' group by day order by day",
    ),
    (
        "select date_trunc('week', d) as w, count(*) from sketch group by w having w >= '2024-02-01' order by w",
        "select strftime(date_trunc('week', d), '%Y-%m-%d') as w, count(*) from sketch group by w having w >= '2024-02-01' "
        "order by w",
    ),
    # names of tables, sub-selects and with
    ("select s.c, count(*) from sketch s where s.a > 3 group by s.c", None),
    ("select count(*) from sketch as s where s.m and sketch.a > 3", "select count(*) from sketch where m and a > 3"),
    ("select count(*), avg(a) from (select * from sketch where m) t where t.a > 2", None),
    ("select c, avg(z) from (select c, a * 2 as z from sketch where m) t group by c", None),
    ("select avg(z) as mean from (select a + 1 as z from sketch where a > 1) where z < 7", None),
    ("with t as (select * from sketch where m) select count(*) from t", None),
    ("with t as (select a as x from sketch), u as (select x from t where x > 2) select avg(x), count(*) from u", None),
    ("with t as (select hour(d) as h, c from sketch where c = 'Bee') select h, count(*) from t group by h order by h", None),
    # labels
    ("select distinct c from sketch where c is not null order by c desc", None),
    ("select distinct m, c from sketch where c = 'ant' order by m", None),
    ("select c from sketch where a > 2 group by c order by c", None),
    ("select distinct avg(a) from sketch", None),
    ("select distinct c, count(*) from sketch group by c", None),
    ("select c, m, sum(a) from sketch group by all", None),
    ("select count(distinct c), count(distinct a), approx_count_distinct(m) from sketch", None),
    ("select m, count(distinct c) from sketch where c <> 'Bee' group by m order by m", None),
    ("select count(*) from sketch where c like 'b%'", None),
    ("select count(*) from sketch where c ilike 'b%' and a > 2", None),
    ("select count(*) from sketch where c not like '%t'", None),
    ("select count(*) from sketch where not c like 'a_t'", None),
    ("select count(*) from sketch where c like 'b!_%' escape '!'", None),
    ("select avg((c like '%e%')::int) from sketch", None),
    ("select count(*) from sketch where starts_with(c, 'B') or contains(c, 'n')", None),
    ("select count(*) from sketch where lower(c) = 'bee' or left(c, 1) = 'a'", None),
    ("select count(*) from sketch where upper(c) in ('ANT', 'BEE') and substring(e, 2, 1) <> 'n'", None),
    ('select count(*) from sketch where c = "ant"', "select count(*) from sketch where c = 'ant'"),
    ('select count(*) from sketch where c in ("ant", "Bee")', "select count(*) from sketch where c in ('ant', 'Bee')"),
    ("select count(*) from sketch where c = e", None),
    ("select count(*), avg(a) from sketch where c <> e", None),
    ("select c, e, count(*) from sketch where c <> e group by c, e order by 3 desc limit 3", None),
    ("select c, count(*) from sketch where c in ('ant', 'Bee') and c is not null group by c", None),
    ("select a, count(*) from sketch where a between 3 and 5 group by a order by a", None),
    ("select mode(c), count(*) from sketch where a > 2", None),
    # shares, buckets, errors
    ("select c, count(*) / sum(count(*)) over () as share from sketch where a > 1 group by c", None),
    ("select c, round(100.0 * count(*) / sum(count(*)) over (), 1) from sketch group by c", None),
    ("select c, m, sum(a) / sum(sum(a)) over (partition by c) from sketch group by c, m order by c, m", None),
    ("select c, count(*) * 100.0 / (select count(*) from sketch) from sketch where m group by c", None),
    ("select avg(a) - (select avg(a) from sketch where m) from sketch where c = 'ant'", None),
    ("with t as (select * from sketch where m) select count(*) / (select count(*) from t) from t where a > 3", None),
    (
        "select width_bucket(a, 2, 8, 3) as w, count(*) from sketch group by w order by w",
        "select case when a < 2 then 0 when a >= 8 then 4 else floor((a - 2) / 2) + 1 end as w, count(*) from sketch "
        "group by w order by w",
    ),
    ("select count(*) from sketch where width_bucket(a, 0, 10, 5) = 2", "select count(*) from sketch where a in (2, 3)"),
    ("select count(*) from sketch fetch first 1 rows only", None),
    ("from sketch select count(*) where m", None),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "spelled"), ANSWERED, ids=[each[0] for each in ANSWERED])
def test_answers_are_those_of_duckdb(
    statement: str, spelled: str | None, view: dps.View, database: duckdb.DuckDBPyConnection
) -> None:
    found = [row for row in view.sql(statement).rows if not _is_empty(row)]
    wanted = database.sql(spelled or statement).fetchall()
    if "order by" not in statement:
        found, wanted = ([*sorted(rows, key=lambda row: _text(row))] for rows in (found, wanted))
    assert len(found) == len(wanted)
    for row, truth in zip(found, wanted, strict=True):
        for cell, true in zip(row, truth, strict=True):
            if isinstance(cell, dps.Answer):
                low, high = cell.interval()
                assert low - 1e-6 <= float(true) <= high + 1e-6, (cell, true)
                assert cell.value == pytest.approx(float(true), rel=1e-6, abs=1e-6)
            else:
                assert cell == (str(true).lower() if isinstance(true, bool) else true)


def _is_empty(row: tuple[Any, ...]) -> bool:
    """Whether a group has no record: such groups are shown here, and not in DuckDB."""
    answers = [cell for cell in row if isinstance(cell, dps.Answer)]
    return len(row) > len(answers) > 0 and all(cell.value == 0 or math.isnan(cell.value) for cell in answers)


def _text(row: tuple[Any, ...]) -> str:
    return str([str(cell).lower() for cell in row if cell is None or isinstance(cell, str | bool)])
