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
from dpsketch.errors import QueryError

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
OVER = "shares of the total are count(*) / sum(count(*)) over (), or over (partition by a key of group by)"
TRIVIAL = (
    "a sub-select may pick columns and rows of sketch; put group by, having, distinct and limit into the outer select"
)
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
                assert cell == true


# A statement, the fact and the hint that refuse it.
REFUSED: list[tuple[str, str, str]] = [
    ("select count(*) from sketch where second(d) = 3", "dates of column 'd' are rounded to 1 minutes by its bounds: their second is not known",
     'declare a column of it before the next release: from = "d", part = "second"'),
    ("select count(*) from sketch where extract(century from d) = 20", "'EXTRACT(CENTURY FROM d)': there is no part 'century'",
     "parts are year, quarter, month, week, day, dayofyear, dayofweek, isodow, hour, minute, second"),
    ("select count(*) from sketch where date_trunc('decade', d) = '2020-01-01'", "'DATE_TRUNC('DECADE', d)': there is no unit 'decade'",
     "units are year, quarter, month, week, day, hour, minute, second"),
    ("select avg(year(a)) from sketch", "column 'a' is not a column of dates", "columns of dates are d"),
    ("select avg(year('soon')) from sketch", "'soon' is not a date", "write dates as '2024-01-31'"),
    ("select count(*) from sketch where d > now()", "a question does not know today's date", "write it: date '2024-01-31'"),
    ("select count(*) from sketch where d > current_date", "a question does not know today's date", "write it: date '2024-01-31'"),
    ("select count(*) from sketch where d > date '2024-01-01' + interval '1 day 2 hours'",
     "'CAST('2024-01-01' AS DATE) + INTERVAL '1 day 2 hours'' is not supported", "write one unit: d + interval '3 days'"),
    ("select d, count(*) from sketch group by d", "column 'd' has too many values to group by", "group by date_trunc('month', d), year(d) or the like"),
    ("select count(*) from sketch where c = a", "columns 'c' and 'a' cannot be compared", "compare two numbers, or two categories that list the same labels"),
    ("select count(*) from sketch where c like a", "'a' must be a text here", "compare labels of a category: sex like 'F%', sex in ('Female', 'Male'), lower(sex) = 'female'"),
    ("select count(*) from sketch where left(c, a) = 'x'", "the lengths of texts are whole numbers", "left(c, 1), substring(c, 1, 2)"),
    ("select count(*) from sketch where c like 'a' escape '!!'", "'c LIKE 'a'': the escape must be a single character", "escape '!'"),
    ("select count(*) from sketch where c = \"nope\"", "column 'c' has no listed value 'nope'", "the listed values are ant, Bee, b_t, other"),
    ("select count(*) from sketch where \"nope\" = 1", "there is no column 'nope'", "the columns are a, c, e, m, d"),
    ("select count(*) over () from sketch", "the window 'COUNT(*) OVER ()' is not supported", OVER),
    ("select row_number() over (order by a) from sketch", "the window 'ROW_NUMBER() OVER (ORDER BY a)' is not supported", OVER),
    ("select c, sum(count(*)) over (order by c) from sketch group by c", "the window 'SUM(COUNT(*)) OVER (ORDER BY c)' is not supported", OVER),
    ("select c, sum(avg(a)) over () from sketch group by c", "'AVG(a)' of the groups does not add up to that of all records", OVER),
    ("select c, count(*) / sum(count(*)) over (partition by m) from sketch group by c", "partition by m: this is no key of group by", "partition by a key, or by none"),
    ("select count(*) from (select c, count(*) from sketch group by c) t", "a select of groups or of single answers cannot be selected from", TRIVIAL),
    ("select count(*) from (select c from sketch limit 3) t", "a select of groups or of single answers cannot be selected from", TRIVIAL),
    ("with recursive t as (select 1) select 1 from t", "with recursive is not supported", TRIVIAL),
    ("with t as (select 1 union select 2) select count(*) from t", "'t AS (SELECT 1 UNION SELECT 2)' is not supported", TRIVIAL),
    ("select avg(x) from (select a as z from sketch) t", "the sub-select has no column 'x'", "its columns are z"),
    ("select avg(t.a) from sketch s", "there is no table 't'", "write the column's name alone: a"),
    ("select count(*) / (select count(*) from sketch group by c) from sketch", "'(SELECT COUNT(*) FROM sketch GROUP BY c)' is not one number of all records",
     "write (select avg(x) from sketch), with where but without group by"),
    ("select count(*) from sketch where c in (select c from sketch)", "a select inside a condition is not supported",
     "list the values: c in ('a', 'b')"),
    ("select distinct on (c) c from sketch", "distinct on is not supported", "list labels with select distinct c, or group by them"),
    ("select count(distinct (c, e)) from sketch", "count(distinct …) takes one column", "list the combinations: select distinct a, b"),
    ("select count(distinct a + 1) from sketch", "'a + 1' is no column: its values cannot be counted", "group by it instead"),
    ("select mode(c) from sketch order by mode(c)", "mode is a label, not a number", "give it an entry of the select list: select mode(c), count(*)"),
    ("select avg(width_bucket(a, 5, 1, 3)) from sketch", "'WIDTH_BUCKET(a, 5, 1, 3)' is not supported",
     "write rising bounds and a whole number of buckets: width_bucket(age, 0, 100, 10)"),
    ("select count(*) from sketch fetch first 10 percent rows only", "'FETCH FIRST 10 PERCENT ROWS ONLY' is not supported", "write a whole number: limit 10 offset 5"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "fact", "hint"), REFUSED, ids=[each[0] for each in REFUSED])
def test_refusals_name_the_reason_and_what_works(statement: str, fact: str, hint: str, view: dps.View) -> None:
    with pytest.raises(QueryError) as refused:
        view.sql(statement)
    assert (refused.value.fact, refused.value.hint) == (fact, hint)


def test_parts_that_cells_do_not_resolve_have_wide_errors(view: dps.View) -> None:
    """Cells of 17 hours hide at which hour records are: the truth may be anything from none to all of them."""
    part = dps.Part(dps.Histogram(columns=["d"], bins=64), 1.0)
    marginals = dps.Part(dps.Marginals(bins=64), 1.0)
    for parts in ([part], [marginals]):
        raw = dps.accumulate(table(), dps.Schema.from_dict(FACTS), dps.Recipe(parts))
        coarse = dps.View(dps.release(raw, dps.Budget(math.inf)))
        for condition in ("hour(d) = 8", "hour(d) = 3", "dayofweek(d) = 2", "minute(d) < 30"):
            truth, found = view.count(condition), coarse.count(condition)
            low, high = found.interval()
            assert low <= truth.value <= high
            assert found.stderr > 90
        assert coarse.count("day(d) between 1 and 31").stderr < 1e-6


def test_errors_as_numbers(view: dps.View) -> None:
    raw = dps.accumulate(table(), dps.Schema.from_dict(FACTS), dps.Recipe([dps.Part(dps.Marginals(), 1.0)]))
    noisy = dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "errors"))
    [row] = noisy.sql("select sum(a) as s, stderr(sum(a)) as e, sum(a) - 2 * stderr(sum(a)) as low from sketch").rows
    assert row[1].value == pytest.approx(row[0].stderr)
    assert row[1].stderr == 0
    assert row[2].value == pytest.approx(row[0].value - 2 * row[0].stderr)


def test_labels_that_noise_hides_are_not_counted(view: dps.View) -> None:
    """With an error of hundreds, none to all of the labels may be present; no label is the most common for sure."""
    raw = dps.accumulate(table(), dps.Schema.from_dict(FACTS), dps.Recipe([dps.Part(dps.Marginals(), 1.0)]))
    hidden = dps.View(dps.release(raw, dps.Budget(0.003), dps.Ledger("sqlite://"), "hidden"))
    [row] = hidden.sql("select count(distinct a) as n, mode(a) as most from sketch").rows
    low, high = row[0].interval()
    assert low <= 10 <= high + 1e-9
    assert high - low > 5
    assert row[1] is None
    assert len(hidden.sql("select distinct a from sketch").rows) < 10


def test_many_groups_are_listed_if_where_allows_them() -> None:
    """Only groups that where allows count, and a thousand are not too many."""
    labels = [f"a{place}" for place in range(60)]
    columns = {name: {"kind": "category", "values": labels} for name in ("origin", "destination")}
    columns |= {"code": {"kind": "integer", "lower": 0, "upper": 60_000}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 100}, "columns": columns})
    frame = pandas.DataFrame({"origin": ["a0", "a1", "a1"], "destination": ["a1", "a2", "a2"], "code": [5, 7, 7]})
    parts = [
        dps.Part(dps.Histogram(ways=2, columns=["origin", "destination"]), 0.5),
        dps.Part(dps.Histogram(columns=["code"]), 0.5),
    ]
    view = dps.View(dps.release(dps.accumulate(frame, schema, dps.Recipe(parts)), dps.Budget(math.inf)))
    top = view.sql("select origin, destination, count(*) from sketch group by 1, 2 order by 3 desc limit 2").rows
    assert [(one, two, round(count.value)) for one, two, count in top] == [("a1", "a2", 2), ("a0", "a1", 1)]
    apart = view.sql("select origin, destination, count(*) from sketch where origin <> destination group by 1, 2").rows
    assert len(apart) == 60 * 59
    inside = view.sql("select code, count(*) from sketch where code between 3 and 9 group by code").rows
    assert [code for code, _ in inside] == list(range(3, 10))
    with pytest.raises(QueryError, match="group by would make 60002 groups, more than 10000") as refused:
        view.sql("select code, count(*) from sketch group by code")
    assert refused.value.hint == "group by fewer columns, or allow fewer labels in where"


def _is_empty(row: tuple[Any, ...]) -> bool:
    """Whether a group has no record: such groups are shown here, and not in DuckDB."""
    answers = [cell for cell in row if isinstance(cell, dps.Answer)]
    return len(row) > len(answers) > 0 and all(cell.value == 0 or math.isnan(cell.value) for cell in answers)


def _text(row: tuple[Any, ...]) -> str:
    return str([str(cell).lower() for cell in row if cell is None or isinstance(cell, str | bool)])
