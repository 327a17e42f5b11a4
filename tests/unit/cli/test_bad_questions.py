"""What a user can get wrong in questions, and the exact words they get back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_commands import Case, check_message, name_of, sql

AGGREGATES = (
    "avg, sum, count, count(distinct c), count_if, var, stddev, median, quantile(column, q), mode, covar_pop, corr, "
    "regr_slope(y, x), regr_intercept(y, x)"
)
FUNCTIONS = (
    "Hint: expressions use +, -, *, /, %, power, abs, sign, sqrt, exp, ln, log, round, floor, ceil, least, greatest, "
    "coalesce, nullif, case, if, cast, width_bucket, year, month, day, hour, dayofweek, date_trunc, date_diff"
)
ONE_TABLE = "Hint: a sketch is one table; use aggregates, where, group by, having, order by and limit"
TEXTS = "Hint: compare labels of a category: sex like 'F%', sex in ('Female', 'Male'), lower(sex) = 'female'"
OVER = "Hint: shares of the total are count(*) / sum(count(*)) over (), or over (partition by a key of group by)"
MORE = (
    f"{AGGREGATES}; between them use +, -, *, /, abs, sqrt, exp, ln, log, power, round, floor, ceil, least, greatest, "
    "coalesce, nullif, cast, stderr"
)
KEYS = "Hint: group by a category, boolean or integer column, or by an expression of one column with few values"
CONDITIONS = "Hint: conditions use and, or, not, =, <>, <, <=, >, >=, between, in, like, ilike, is null"
CASES = [
    sql("select avg(agee) from sketch", "there is no column 'agee'\nHint: did you mean 'age'?"),
    sql("select avg(zzz) from sketch", "there is no column 'zzz'\nHint: the columns are age, sex, joined, member"),
    sql(
        "select min(age) from sketch",
        "min is one person's value and cannot be released\nHint: ask for a quantile such as 0.01 or 0.99 instead",
    ),
    sql(
        "select max(age) from sketch",
        "max is one person's value and cannot be released\nHint: ask for a quantile such as 0.01 or 0.99 instead",
    ),
    sql("select age from sketch", f"column 'age' is neither aggregated nor in group by\nHint: use {AGGREGATES}"),
    sql("select *, count(*) from sketch", f"'*' is not supported in the select list\nHint: use {AGGREGATES}"),
    sql(
        "select distinct * from sketch",
        "distinct rows are single records, which cannot be read\nHint: name a column: select distinct c",
    ),
    sql("select avg(age) from people", "the table is called sketch\nHint: write: … from sketch …"),
    sql(
        "select avg(age) from sketch join other using (age)",
        f"join is not supported\n{ONE_TABLE}",
    ),
    sql(
        "select avg(age) from sketch tablesample 10 percent",
        f"a sample is not supported\n{ONE_TABLE}",
    ),
    sql("select sex, avg(age) from sketch group by all qualify 1 = 1", f"qualify is not supported\n{ONE_TABLE}"),
    sql(
        "select count(*) from sketch where " + " or ".join(["age = 1"] * 900),
        "the statement is too long\nHint: use between, or in with a list of values",
    ),
    sql(
        "select percentile_cont(0.9) within group (order by age desc) from sketch",
        "'age DESC' is not supported\nHint: leave out: desc",
    ),
    sql(
        "select count(*) from sketch where age between symmetric 60 and 40",
        "'(age BETWEEN 60 AND 40 OR age BETWEEN 40 AND 60)' is not supported\nHint: leave out: symmetric",
    ),
    sql("select count(age, sex) from sketch", "'COUNT(age, sex)' is not supported\nHint: leave out: expressions"),
    sql("select std(age, 1) from sketch", "'STD(age, 1)': std takes 1 argument, got 2"),
    sql(
        "select avg(age, 1) from sketch",
        "a function has too many arguments\nHint: avg(x), round(x, 2), corr(x, y), regr_slope(y, x)",
    ),
    sql(
        "select corr(age) from sketch",
        "a function or operator lacks an argument\nHint: power(x, 2), corr(x, y), regr_slope(y, x)",
    ),
    sql(
        "select avg(other.age) from sketch",
        "there is no table 'other'\nHint: write the column's name alone: age",
    ),
    sql(
        "select sex, count(*) as sex from sketch group by sex",
        "two entries of the select list have the same name\nHint: name them apart: avg(age) as mean_age",
    ),
    sql("drop table sketch", "only one select statement is supported\nHint: write: select avg(age) from sketch"),
    sql(
        "select avg(age from sketch",
        "the statement is not valid SQL\nHint: write: select avg(age) from sketch where sex = 'Female'",
    ),
    sql(
        "select avg(sex) from sketch",
        "column 'sex' is a category and has no numeric value\nHint: count it, or group by it",
    ),
    sql(
        "select sum(joined) from sketch",
        "the sum of dates in column 'joined' is not defined\nHint: ask for the mean or a quantile",
    ),
    sql(
        "select avg(age * sex) from sketch",
        "column 'sex' is a category and has no numeric value\nHint: compare it: case when sex = … then 1 else 0 end",
    ),
    sql(
        "select avg(age + joined) from sketch",
        "dates of column 'joined' cannot be used in arithmetic\n"
        "Hint: compare them: case when joined > '2024-01-31' then 1 else 0 end",
    ),
    sql(
        "select avg(joined) - 1 from sketch",
        "dates of column 'joined' cannot be used in arithmetic\nHint: ask for each in its own column",
    ),
    sql(
        "select corr(age, sex) from sketch",
        "column 'sex' is a category and has no numeric value\nHint: count it, or group by it",
    ),
    sql(
        "select regr_slope(age, joined) from sketch",
        "the covariance of dates in column 'joined' is not defined\nHint: ask for the mean or a quantile",
    ),
    sql("select avg(sin(age)) from sketch", f"the function 'sin' is not known here\n{FUNCTIONS}"),
    *(
        sql(
            f"select {written} as m, count(*) from sketch group by 1",
            "dates are not written as text here\n"
            "Hint: group by year(d), month(d) or date_trunc('month', d), and format the result",
        )
        for written in ("strftime(joined, '%Y-%m')", "to_char(joined, 'YYYY')", "date_format(joined, '%Y')")
    ),
    sql("select avg(shout(age)) from sketch", f"the function 'shout' is not known here\n{FUNCTIONS}"),
    sql("select avg('old') from sketch", "'old' is not a number that can be used here"),
    sql("select avg(age like 'x') from sketch", f"column 'age' holds integers, not texts\n{TEXTS}"),
    sql(
        "select avg(cast(age as varchar)) from sketch",
        "'CAST(age AS TEXT)' is not supported\nHint: cast to int or double",
    ),
    sql(
        "select avg(round(age, member)) from sketch",
        "'ROUND(age, member)' must round to a whole number of decimals, at most 15",
    ),
    sql(
        "select avg(exp(age * 1000)) from sketch",
        "'exp(age * 1000)' is too large at some values of its columns\nHint: limit it: least(…, 1000)",
    ),
    sql(
        "select avg(sum(age)) from sketch",
        "'SUM(age)' is an aggregate inside an expression of columns\n"
        "Hint: use one aggregate alone, and having for conditions on it",
    ),
    sql(
        "select count(*) from sketch where avg(age) > 3",
        "'AVG(age)' is an aggregate inside an expression of columns\n"
        "Hint: use one aggregate alone, and having for conditions on it",
    ),
    sql("select sum(age) over () from sketch", f"the window 'SUM(age) OVER ()' is not supported\n{OVER}"),
    sql(
        "select (select age from sketch) from sketch",
        "'(SELECT age FROM sketch)' is not one number of all records\n"
        "Hint: write (select avg(x) from sketch), with where but without group by",
    ),
    sql(
        "select count(*) from sketch where age > (select avg(age) from sketch)",
        "a select inside a select is not supported\nHint: a sketch is one table; ask two questions",
    ),
    sql("select avg(distinct age) from sketch", "distinct is not supported\nHint: count each label with group by"),
    sql(
        "select distinct sex from sketch group by sex, member",
        "distinct is not supported with other keys in group by\nHint: select all keys, or leave it out",
    ),
    sql(
        "with t as (select sex, count(*) as n from sketch group by sex) select avg(n) from t",
        "a select of groups or of single answers cannot be selected from\n"
        "Hint: a sub-select may pick columns and rows of sketch; put group by, having, distinct and limit into the "
        "outer select",
    ),
    sql(
        "select avg(age) from sketch union select 1",
        "only one select statement is supported\nHint: write: select avg(age) from sketch",
    ),
    sql(
        "select mode(age) + 1 from sketch",
        "mode is a label, not a number\nHint: give it an entry of the select list: select mode(c), count(*)",
    ),
    sql("select kurtosis(age) from sketch", f"the aggregate 'KURTOSIS(age)' is not supported\nHint: use {AGGREGATES}"),
    sql("select 1 from sketch", f"'1' is not supported in the select list\nHint: use {AGGREGATES}"),
    sql(
        "select power(avg(age), avg(age)) from sketch",
        "'AVG(age)' must be a number here\nHint: power(avg(x), 2), log(2, avg(x))",
    ),
    sql(
        "select sin(avg(age)) from sketch",
        f"the function 'sin' is not known here\nHint: aggregates are {MORE}",
    ),
    sql(
        "select avg(age) from sketch having sex = 'Male'",
        "column 'sex' is neither aggregated nor in group by\nHint: put conditions on columns in where",
    ),
    sql(
        "select avg(age) as mean from sketch having mean",
        "column 'avg(age)' is not boolean\nHint: compare it with a value: avg(age) = …",
    ),
    sql(
        "select avg(age) from sketch order by 2",
        "order by 2: the select list has no such entry\nHint: entries are numbered from 1",
    ),
    sql(
        "select avg(age) from sketch group by 2",
        "group by 2: the select list has no such entry\nHint: entries are numbered from 1",
    ),
    sql(
        "select avg(age) from sketch order by sex",
        f"column 'sex' is neither aggregated nor in group by\nHint: use {AGGREGATES}",
    ),
    sql(
        "select avg(age) from sketch limit 1.5",
        "'LIMIT 1.5' is not supported\nHint: write a whole number: limit 10 offset 5",
    ),
    sql("select avg(age) from sketch group by age + joined", f"group by 'age + joined' is not supported\n{KEYS}"),
    sql("select avg(age), count(*) from sketch group by 1", f"group by 'AVG(age)' is an aggregate\n{KEYS}"),
    sql(
        "select count(*) from sketch where sex = 'Femal'",
        "column 'sex' has no listed value 'Femal'\nHint: did you mean 'Female' or 'Male'?",
    ),
    sql(
        "select count(*) from sketch where sex < 'Male'",
        "column 'sex' is a category and has no order\nHint: compare it with = or <>",
    ),
    sql(
        "select count(*) from sketch where age = 'old'",
        "column 'age' holds numbers, got 'old'\nHint: write the number without quotes",
    ),
    sql(
        "select count(*) from sketch where joined > 'soon'",
        "column 'joined' holds dates, got 'soon'\nHint: write dates as '2024-01-31'",
    ),
    sql("select count(*) from sketch where age", "column 'age' is not boolean\nHint: compare it with a value: age = …"),
    sql("select count(*) from sketch where sex like age", f"'age' must be a text here\n{TEXTS}"),
    sql(
        "select count(*) from sketch where regexp_matches(sex, 'F.*')",
        f"'REGEXP_LIKE(sex, 'F.*')' is not a supported condition\n{CONDITIONS}",
    ),
    sql("select quantile(age, 2) from sketch", "a quantile is between 0 and 1, got 2\nHint: the median is 0.5"),
    sql(
        "select joined, count(*) from sketch group by joined",
        "column 'joined' has too many values to group by\n"
        "Hint: group by date_trunc('month', joined), year(joined) or the like",
    ),
    sql(
        "select count(distinct joined) from sketch",
        "column 'joined' has more than 1000 values: how many of them occur is not known\n"
        "Hint: count intervals with group by: floor(x / 10), width_bucket(x, 0, 100, 10), date_trunc('month', d)",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_message(
    case: Case, bad_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_message(case, bad_folder, monkeypatch, capsys)
