"""Answers without noise against the truth; noise is tested in tests/statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer

FACTS = {
    "privacy": {"rows": 20_000},
    "columns": {
        "age": {"kind": "integer", "lower": 0, "upper": 100},
        "height": {"kind": "number", "lower": 1.0, "upper": 2.5},
        "income": {"kind": "number", "lower": 0, "upper": 200_000, "transform": "asinh"},
        "sex": {"kind": "category", "values": ["f", "m"]},
        "member": {"kind": "boolean"},
        "joined": {"kind": "datetime", "lower": "2020-01-01", "upper": "2025-01-01"},
    },
}
PAIR = dps.Part(dps.Histogram(ways=2, columns=["age", "sex"], bins=101), 0.1)


def people(rows: int = 20_000) -> pandas.DataFrame:
    rng = np.random.default_rng(SEED)
    sex = rng.choice(["f", "m"], rows, p=[0.6, 0.4])
    age = np.clip(rng.normal(np.where(sex == "f", 45, 35), 12), 0, 100).round()
    height = np.clip(rng.normal(1.6, 0.1, rows) + 0.12 * (sex == "m"), 1, 2.5)
    income = rng.exponential(30_000, rows)
    member = rng.random(rows) < 0.1 + 0.6 * (age > 40)
    joined = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.uniform(0, 1800, rows), unit="D")
    age = np.where(rng.random(rows) < 0.05, np.nan, age)
    return pandas.DataFrame(
        {"age": age, "height": height, "income": income, "sex": sex, "member": member, "joined": joined}
    )


@pytest.fixture(scope="module")
def frame() -> pandas.DataFrame:
    return people()


@pytest.fixture(scope="module")
def view(frame: pandas.DataFrame) -> dps.View:
    schema = dps.Schema.from_dict(FACTS)
    parts = [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.Histogram(bins=128), 0.4),
        dps.Part(dps.Fourier(size=400), 0.4),
        PAIR,
    ]
    return dps.View(dps.release(dps.accumulate(frame, schema, dps.Recipe(parts)), dps.Budget(math.inf)))


def test_single_columns(view: dps.View, frame: pandas.DataFrame) -> None:
    for name, spread in (("age", 0.02), ("height", 0.002), ("income", 300.0)):
        column = frame[name]
        assert view.mean(name).value == pytest.approx(column.mean(), abs=spread)
        assert view.std(name).value == pytest.approx(column.std(ddof=0), rel=0.02)
        assert view.var(name).value == pytest.approx(column.var(ddof=0), rel=0.04)
        assert view.sum(name).value == pytest.approx(column.sum(), rel=0.01)
        for q in (0.1, 0.5, 0.9):
            wanted = column.quantile(q)
            assert view.quantile(name, q).value == pytest.approx(wanted, rel=0.04)
        at = [column.quantile(0.3), column.quantile(0.8)]
        np.testing.assert_allclose(view.cdf(name, at).value, [(column.dropna() <= a).mean() for a in at], atol=0.012)
        assert abs(view.mean(name).value - column.mean()) < 4 * view.mean(name).stderr or name == "age"
    assert view.mean("age").stderr == 0  # a cell for each value


def test_counts_and_conditions(view: dps.View, frame: pandas.DataFrame) -> None:
    assert view.count().value == len(frame)
    truth = {
        "age > 40": frame.age > 40,
        "not age > 40": frame.age <= 40,
        "age between 20 and 30": frame.age.between(20, 30),
        "age is null": frame.age.isna(),
        "age is not null": frame.age.notna(),
        "sex = 'f'": frame.sex == "f",
        "sex in ('m')": frame.sex == "m",
        "sex <> 'f'": frame.sex != "f",
        "member": frame.member,
        "member is true": frame.member,
        "member = false": ~frame.member,
        "not member": ~frame.member,
        "40 < age": frame.age > 40,
        "age < 20 or age > 60": (frame.age < 20) | (frame.age > 60),
        "joined >= '2022-06-01'": frame.joined >= "2022-06-01",
        "joined < date '2022-06-01'": frame.joined < "2022-06-01",
        "true and age = 30": frame.age == 30,
    }
    for condition, mask in truth.items():
        assert view.count(condition).value == pytest.approx(mask.sum(), abs=60), condition
        assert view.fraction(condition).value == pytest.approx(mask.mean(), abs=0.003), condition


def test_a_table_answers_questions_about_its_columns(view: dps.View, frame: pandas.DataFrame) -> None:
    exact = frame.age[frame.sex == "f"].mean()
    answer = view.mean("age", "sex = 'f'")
    assert answer.how == "table of age × sex"
    assert answer.value == pytest.approx(exact, abs=0.02)
    assert view.count("age > 40 and sex = 'm'").value == pytest.approx(((frame.age > 40) & (frame.sex == "m")).sum())


def test_moments_answer_questions_about_other_columns(view: dps.View, frame: pandas.DataFrame) -> None:
    """Better than independence by far, though approximate: the standard error does not cover this."""
    answer = view.mean("height", "sex = 'm'")
    assert answer.how == "moment-to-moment regression on 400 Fourier frequencies and the marginals"
    assert answer.value == pytest.approx(frame.height[frame.sex == "m"].mean(), abs=0.02)
    exact = (frame.member & (frame.age > 40)).sum()
    independent = frame.member.mean() * (frame.age > 40).sum()
    error = abs(view.count("member and age > 40").value - exact)
    assert error < 0.35 * abs(independent - exact)


def test_one_bit_features_stand_in_for_fourier(frame: pandas.DataFrame) -> None:
    parts = [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.Histogram(bins=128), 0.4),
        dps.Part(dps.OneBitFourier(size=400), 0.5),
    ]
    raw = dps.accumulate(frame, dps.Schema.from_dict(FACTS), dps.Recipe(parts))
    view = dps.View(dps.release(raw, dps.Budget(math.inf)))
    answer = view.mean("height", "sex = 'm'")
    assert answer.how == "moment-to-moment regression on 400 one-bit Fourier frequencies and the marginals"
    exact, independent = frame.height[frame.sex == "m"].mean(), frame.height.mean()
    assert abs(answer.value - exact) < 0.4 * abs(independent - exact)


def test_covariance_and_correlation(view: dps.View, frame: pandas.DataFrame) -> None:
    names = ["age", "height", "income"]
    answer = view.corr(names)
    assert answer.labels == tuple(names)
    np.testing.assert_allclose(answer.value, frame[names].corr(), atol=0.08)
    covariance = view.cov(names).value
    np.testing.assert_allclose(np.diag(covariance), frame[names].var(), rtol=0.04)
    assert (covariance == covariance.T).all()
    assert view.corr().labels == ("age", "height", "income")


def test_dates_and_booleans(view: dps.View, frame: pandas.DataFrame) -> None:
    mean = view.mean("joined")
    assert abs(mean.value - np.datetime64(frame.joined.mean())) < np.timedelta64(2, "D")
    assert abs(view.quantile("joined", 0.5).value - np.datetime64(frame.joined.median())) < np.timedelta64(8, "D")
    assert view.mean("member").value == pytest.approx(frame.member.mean())
    (row,) = view.sql("select avg(joined) as mean, median(joined) from sketch").to_dicts()
    assert row["mean"] == str(mean.value)
    assert 0 < row["mean_stderr"] < 86_400, "places inside bins of two weeks"


def test_dates_in_a_cdf(view: dps.View, frame: pandas.DataFrame) -> None:
    day = "2022-06-01"
    exact = (frame.joined <= day).mean()
    for at in (day, np.datetime64(day), pandas.Timestamp(day).to_pydatetime(), pandas.Timestamp(day).date()):
        assert view.cdf("joined", at).value == pytest.approx(exact, abs=0.01)
    with pytest.raises(QueryError, match="holds dates, got 5"):
        view.cdf("joined", 5)
    with pytest.raises(QueryError, match="holds numbers, got 'x'"):
        view.cdf("age", ["x"])


def test_covariance_over_rows_where_both_are_present() -> None:
    """One column is missing exactly where the other is large: centring by its own mean would be far off."""
    rng = np.random.default_rng(SEED)
    x, y = rng.uniform(0, 4, 4000), rng.uniform(0, 4, 4000)
    far = np.arange(4000) % 2 == 0
    x, y = np.where(far, np.nan, x), np.where(far, 9.0, y)
    columns = {name: {"kind": "number", "lower": 0, "upper": 10} for name in "xy"}
    schema = dps.Schema.from_dict({"privacy": {"rows": 4000}, "columns": columns})
    recipe = dps.Recipe([dps.Part(dps.Histogram(), 0.5), dps.Part(dps.Histogram(ways=2, bins=40), 0.5)])
    raw = dps.accumulate(pa.table({"x": x, "y": y}), schema, recipe)
    view = dps.View(dps.release(raw, dps.Budget(math.inf)))
    exact = np.cov(x[~far], y[~far])[0, 1]
    assert view.cov(["x", "y"]).value[0, 1] == pytest.approx(exact, abs=0.02)


def test_a_column_of_many_labels_does_not_spoil_other_answers() -> None:
    rng = np.random.default_rng(SEED)
    rows = 20_000
    table = pa.table(
        {
            "sex": rng.choice(["f", "m"], rows),
            "age": rng.integers(0, 101, rows),
            "city": [f"c{i}" for i in rng.integers(0, 3000, rows)],
        }
    )
    columns = {
        "sex": {"kind": "category", "values": ["f", "m"]},
        "age": {"kind": "integer", "lower": 0, "upper": 100},
        "city": {"kind": "category", "values": [f"c{i}" for i in range(3000)]},
    }
    schema, budget = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns}), dps.Budget(1.0)
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=budget))
    exact = int(np.sum((table["sex"].to_numpy() == "f") & (table["age"].to_numpy() > 50)))
    errors = []
    for _ in range(2):
        view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))
        answer = view.count("sex = 'f' and age > 50")
        errors.append((answer.value - exact) / answer.stderr)
        rare = view.count("age > 50 and city = 'c2999'")
        assert rare.stderr > 1, "a label that no point has is not known exactly"
    assert abs(np.mean(errors)) < 3.5  # five standard deviations of such a mean


def test_errors_of_discrete_quantiles_match_their_spread() -> None:
    """40 releases: the quantile of an integer column moves about as much as it says."""
    rng = np.random.default_rng(SEED)
    table = pa.table({"x": rng.integers(0, 30, 10_000)})
    columns = {"x": {"kind": "integer", "lower": 0, "upper": 29}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 10_000}, "columns": columns})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.03), dps.Part(dps.Histogram(), 0.05)])
    raw = dps.accumulate(table, schema, recipe)
    views = [dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a")) for _ in range(40)]
    for q in (0.1, 0.5, 0.9):
        answers = [view.quantile("x", q) for view in views]
        moved = np.std([answer.value for answer in answers])
        assert 0.6 < moved / np.mean([answer.stderr for answer in answers]) < 1.7


def test_too_many_frequencies_are_refused() -> None:
    schema = dps.Schema.from_dict(FACTS)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Fourier(size=2001), 0.5)])
    view = dps.View(dps.release(dps.accumulate(people(50), schema, recipe), dps.Budget(math.inf)))
    with pytest.raises(QueryError, match="takes at most 2000 frequencies, this release has 2001"):
        view.count("age > 40 and member")


def test_histograms_between_edges(view: dps.View, frame: pandas.DataFrame) -> None:
    """Also of a release whose cells end elsewhere."""
    ages = view.histogram("age", edges=[30, 50])
    assert ages.labels == ("below 30", "30 to 50", "50 or more", "missing")
    expected = [*np.histogram(frame.age.dropna(), [-np.inf, 30, 50, np.inf])[0], frame.age.isna().sum()]
    assert ages.value == pytest.approx(np.array(expected, float), abs=0.01 * len(frame))
    dates = view.histogram("joined", edges=["2021-01-01", np.datetime64("2023-06-01")])
    assert dates.labels is not None
    assert dates.labels[0] == "below 2021-01-01 00:00"
    early = (frame.joined < "2021-01-01").sum()
    assert dates.value[0] == pytest.approx(early, abs=0.01 * len(frame))


def test_histograms(view: dps.View, frame: pandas.DataFrame) -> None:
    labels = view.histogram("sex")
    assert labels.labels == ("f", "m", "other", "missing")
    assert labels.value.tolist() == pytest.approx([*(frame.sex.value_counts()[["f", "m"]]), 0, 0])
    ages = view.histogram("age", bins=4)
    expected = np.histogram(frame.age.dropna(), bins=4, range=(0, 100))[0]
    np.testing.assert_allclose(ages.value, [*expected, frame.age.isna().sum()], atol=1e-6)


def test_sql(view: dps.View, frame: pandas.DataFrame) -> None:
    table = view.sql("select sex, count(*), avg(age) as mean, count(age) from sketch where age > 30 group by sex")
    assert table.columns == ("sex", "count(*)", "mean", "count(age)")
    assert [row[0] for row in table.rows] == ["f", "m"], "unlisted and missing labels have no records"
    part = frame[frame.age > 30].groupby("sex").age.agg(["count", "mean"])
    assert [row[1].value for row in table.rows] == pytest.approx(part["count"].tolist())
    assert [row[2].value for row in table.rows] == pytest.approx(part["mean"].tolist(), abs=0.03)
    plain = table.to_dicts()[0]
    assert list(plain) == [
        "sex",
        "count(*)",
        "count(*)_stderr",
        "mean",
        "mean_stderr",
        "count(age)",
        "count(age)_stderr",
    ]
    row = view.sql(
        "SELECT Avg(age), sum(income), var_pop(age), stddev(age), median(age), quantile(age, 0.9), count(*) FROM sketch"
    ).rows[0]
    truth = [frame.age.mean(), frame.income.sum(), frame.age.var(), frame.age.std(), frame.age.median(),
             frame.age.quantile(0.9), len(frame)]  # fmt: skip
    assert [cell.value for cell in row] == pytest.approx(truth, rel=0.02)


def test_aggregates_in_several_dialects(view: dps.View) -> None:
    same = {
        "var": ("var(age)", "variance(age)", "var_samp(age)", "var_pop(age)"),
        "std": ("std(age)", "stddev(age)", "stddev_pop(age)", "stddev_samp(age)"),
        "mean": ("avg(age)", "mean(age)"),
        "quantile": (
            "quantile(age, 0.9)",
            "approx_quantile(age, 0.9)",
            "quantile_cont(age, 0.9)",
            "percentile_cont(0.9) within group (order by age)",
            "approx_percentile(age, 0.9)",
        ),
        "count": ("count(*)", "count(1)"),
    }
    for forms in same.values():
        values = {view.sql(f"select {form} from sketch").rows[0][0].value for form in forms}
        assert len(values) == 1, forms


def test_groups_of_booleans_and_two_columns(view: dps.View, frame: pandas.DataFrame) -> None:
    table = view.sql("select sex, member, count(*) from sketch group by sex, member")
    found = {(row[0], row[1]): row[2].value for row in table.rows}
    exact = frame.groupby(["sex", "member"]).size()
    for sex in "fm":
        for member in (False, True):
            assert found[sex, member] == pytest.approx(exact[sex, member], rel=0.25)


def test_what_is_not_in_the_release_is_refused() -> None:
    schema = dps.Schema.from_dict(FACTS)
    marginals = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(columns=["age", "sex"]), 0.5)])
    raw = dps.accumulate(people(100), schema, marginals)
    view = dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))
    with pytest.raises(QueryError, match="says nothing about column 'height'"):
        view.mean("height")
    with pytest.raises(QueryError, match=r"says nothing about age, sex together\nHint: add Part\(Marginals"):
        view.mean("age", "sex = 'f'")
    only = dps.Recipe([dps.Part(dps.Fourier(size=5), 1.0)])
    view = dps.View(
        dps.release(dps.accumulate(people(100), schema, only), dps.Budget(1.0), dps.Ledger("sqlite://"), "a")
    )
    with pytest.raises(QueryError, match="does not hold the number of rows"):
        view.count()


def test_rows_without_a_count_part_come_from_a_histogram(frame: pandas.DataFrame) -> None:
    recipe = dps.Recipe([dps.Part(dps.Histogram(columns=["sex"]), 1.0)])
    raw = dps.accumulate(frame, dps.Schema.from_dict(FACTS), recipe)
    view = dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))
    assert view.count().value == pytest.approx(20_000, abs=60)
    assert view.count("sex = 'f'").stderr > 0


def test_uniform_points_stand_in_for_missing_marginals(frame: pandas.DataFrame) -> None:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Fourier(size=200, columns=["height", "age"]), 0.5)])
    raw = dps.accumulate(frame, dps.Schema.from_dict(FACTS), recipe)
    answer = dps.View(dps.release(raw, dps.Budget(math.inf))).mean("height")
    assert answer.value == pytest.approx(frame.height.mean(), abs=0.03)
    assert abs(answer.value - frame.height.mean()) < 2 * answer.stderr


def test_an_arrow_table_with_no_rows() -> None:
    schema = dps.Schema.from_dict(FACTS)
    empty = pa.table({name: pa.array([], pa.float64()) for name in FACTS["columns"]})
    budget = dps.Budget(1.0)
    raw = dps.accumulate(empty, schema, dps.Recipe.general(schema, rows=100, budget=budget))
    view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))
    assert view.count().value >= 1
    assert view.count("age > 40 and sex = 'f'").stderr > 0


@pytest.mark.parametrize("kind", [dps.Fourier, dps.OneBitFourier])
def test_structured_frequencies_stand_in_for_dense_ones(
    frame: pandas.DataFrame, kind: type[dps.Fourier | dps.OneBitFourier]
) -> None:
    parts = [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.Histogram(bins=128), 0.4),
        dps.Part(kind(size=400, structure="hadamard"), 0.5),
    ]
    raw = dps.accumulate(frame, dps.Schema.from_dict(FACTS), dps.Recipe(parts))
    answer = dps.View(dps.release(raw, dps.Budget(math.inf))).mean("height", "sex = 'm'")
    assert "moment-to-moment regression on 400" in answer.how
    exact, independent = frame.height[frame.sex == "m"].mean(), frame.height.mean()
    assert abs(answer.value - exact) < 0.4 * abs(independent - exact)


@pytest.mark.parametrize("budget", [dps.Budget(3.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.1), dps.Budget(math.inf)])
def test_a_release_of_cells_and_pairs_can_be_opened(
    budget: dps.Budget, frame: pandas.DataFrame, tmp_path: Path
) -> None:
    """Single columns and pairs are answered from their own sums; three columns together are refused."""
    parts = [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.Marginals(bins=16), 0.4),
        dps.Part(dps.Pairs(bins=4), 0.4),
        dps.Part(dps.Pairs(columns=["sex", "member"], groups=[[0, 1, 0, 0], [0, 1, 1]]), 0.1),
    ]
    raw = dps.accumulate(frame, dps.Schema.from_dict(FACTS), dps.Recipe(parts))
    private = () if budget.epsilon == math.inf else (dps.Ledger("sqlite://"), "people")
    dps.release(raw, budget, *private).save(tmp_path / "s.sketch")
    view = dps.open(tmp_path / "s.sketch")
    rows = view.count()
    assert abs(float(rows.value) - 20_000) <= 8 * float(rows.stderr)
    assert view.statement
    answer = view.mean("age")
    assert "marginal of age" in answer.how
    assert abs(answer.value - frame.age.mean()) <= 6 * answer.stderr + 0.2
    answer = view.count("age > 30 and sex = 'f'")
    assert "sums of pairs" in answer.how
    assert abs(answer.value - ((frame.age > 30) & (frame.sex == "f")).sum()) <= 6 * answer.stderr
    with pytest.raises(QueryError, match=r"^this release says nothing about age, member, sex together\n"):
        view.count("age > 30 and sex = 'f' and member")


def test_matrices_need_a_column_with_numbers() -> None:
    schema = dps.Schema.from_dict({"privacy": {"rows": 100}, "columns": {"ok": {"kind": "boolean"}}})
    raw = dps.accumulate(pandas.DataFrame({"ok": [True, False]}), schema, dps.Recipe([dps.Part(dps.Marginals(), 1.0)]))
    view = dps.View(dps.release(raw, dps.Budget(math.inf)))
    for ask in (view.cov, view.corr):
        with pytest.raises(QueryError, match="no column with numbers"):
            ask()
        with pytest.raises(QueryError, match="list of names"):
            ask("ok")


def test_errors_of_tail_quantiles_match_their_spread() -> None:
    """In the tails the noise moves a quantile farther than the density there stays the same."""
    rng = np.random.default_rng(SEED)
    dates = {"kind": "datetime", "lower": "2020-01-01", "upper": "2024-01-01"}
    facts = {"x": {"kind": "number", "lower": 0, "upper": 100}, "t": dates}
    schema = dps.Schema.from_dict({"privacy": {"rows": 2000}, "columns": facts})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Marginals(bins=64), 0.9)])
    x = rng.gamma(3, 10, 2000).clip(0, 100)
    raw = dps.accumulate(pandas.DataFrame({"x": x, "t": [pandas.Timestamp("2021-06-01")] * 2000}), schema, recipe)
    views = [dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a")) for _ in range(8)]
    for q in (0.5, 0.95, 0.99):
        answers = [view.quantile("x", q) for view in views]
        assert min(answer.stderr for answer in answers) > 0.05, q
        off = [(answer.value - np.quantile(x, q)) / answer.stderr for answer in answers]
        assert np.median(np.abs(off)) < 2, q
    assert views[0].histogram("t", 4).labels[1] == "2020-12-31 06:00 to 2021-12-31 12:00"
    with pytest.raises(QueryError, match="holds numbers"):
        views[0].cdf("x", float("nan"))


def test_a_count_without_noise_is_called_exact() -> None:
    """Under replace-one, neighbouring tables have equally many rows."""
    table = pa.table({"a": np.linspace(0, 1, 700)})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Histogram(), 0.9)])
    for relation, how in (("replace-one", "exact count"), ("add-remove", "count")):
        schema = dps.Schema.from_dict(
            {
                "privacy": {"rows": 1000, "relation": relation},
                "columns": {"a": {"kind": "number", "lower": 0, "upper": 1}},
            }
        )
        raw = dps.accumulate(table, schema, recipe)
        counted = dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "d")).count()
        assert counted.how == how
        assert (counted.stderr == 0) == (how == "exact count")


def causes_of(
    parts: list[dps.Part], epsilon: float, ask: Callable[[dps.View], Answer], **more: Any
) -> dict[str, float]:
    """The shares of the causes in the variance of one answer's error, which add up to one."""
    schema = dps.Schema.from_dict(FACTS)
    raw = dps.accumulate(people(2000), schema, dps.Recipe(parts, **more))
    private = () if epsilon == math.inf else (dps.Ledger("sqlite://"), "a")
    answer = ask(dps.View(dps.release(raw, dps.Budget(epsilon), *private)))
    assert sum(share for _, share in answer.causes) == pytest.approx(1)
    shares = [share for _, share in answer.causes]
    assert shares == sorted(shares, reverse=True)
    for cause, share in answer.causes:
        assert share < 0.005 or f"{share:.0%} {cause}" in answer.explain()
    return dict(answer.causes)


def test_errors_are_told_apart_by_cause() -> None:
    count = dps.Part(dps.Count(), 0.1)
    fourier = dps.Part(dps.Fourier(size=30, columns=["age", "height"]), 0.5)
    where = "age < 30 and height > 1.7"
    exact = causes_of([count, fourier], math.inf, lambda view: view.fraction(where))
    assert "what the sums do not resolve" in exact
    assert not any("noise" in cause for cause in exact)
    noisy = causes_of([count, fourier], 0.01, lambda view: view.fraction(where))
    assert noisy["privacy noise"] > 0.05
    assert 0 < noisy["what the sums do not resolve"] < 0.95
    one = dps.Part(dps.Histogram(columns=["height"], bins=8), 0.5)
    assert causes_of([one], 0.1, lambda view: view.fraction("height <= 1.0"))["privacy noise"] > 0.9
    assert causes_of([one], 0.1, lambda view: view.histogram("height", 4))["privacy noise"] > 0.9
    tables = [dps.Part(each(columns=["age", "height"], bins=8), 0.4) for each in (dps.Marginals, dps.Pairs)]
    joint = causes_of([count, *tables], 1.0, lambda view: view.fraction("age < 30 and height < 1.6"))
    assert {"privacy noise and bias of the fit", "what the tables do not show"} <= set(joint)
    rows = causes_of([count], 1.0, lambda view: view.count())
    assert set(rows) == {"privacy noise of the number of records"}
    sampled = causes_of([count], 10.0, lambda view: view.count(), sampling=dps.RowSampling(rate=0.1))
    assert sampled["the sampling of rows"] > 0.9


def test_causes_in_statements_and_of_arrays(view: dps.View) -> None:
    ((answer,),) = view.sql("select avg(income) from sketch").rows
    assert answer.causes == view.mean("income").causes
    assert dict(view.histogram("height", 5).causes) == {"where records lie inside cells": 1.0}
    assert view.histogram("height", 4).causes == ()  # no noise, and cells end where bins do: no error
    assert "its causes are not told apart" in view.cov(["age", "height"]).explain()
