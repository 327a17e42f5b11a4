"""Predicted errors, against those of real releases; the noise of both is seeded here, which the library cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from conftest import MIXED
from dpsketch.cli.demo import make_table
from dpsketch.encoding.rows import encode
from dpsketch.errors import BudgetError, QueryError, RecipeError
from dpsketch.learn.estimators.joint import bootstrap
from dpsketch.learn.estimators.joint import from_release as released
from dpsketch.learn.points import Frame
from dpsketch.planning.forecast import Forecast
from dpsketch.planning.prediction import Prediction
from dpsketch.planning.simulation import SimulatedTable, simulated_table
from dpsketch.planning.usual_queries import usual_queries
from dpsketch.schema.columns import MISSING

SMALL = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Histogram(bins=16), 0.9)])
ONE = [dps.Budget(1.0)]


def test_simulated_cells_obey_the_schema_and_depend_on_each_other(schema: dps.Schema) -> None:
    table = simulated_table(schema, 20_000, np.random.default_rng(0))
    codes = encode(schema, table.combine_chunks().to_batches()[0]).codes
    missing = (codes == MISSING).mean(axis=1)
    assert np.all((missing == 0) | (abs(missing - 0.01) < 0.005))
    frame = Frame(schema, dict(zip([column.name for column in schema.scalars], codes, strict=True)))
    for column in schema.scalars:
        shares = np.bincount(frame.levels(column.name) + 1) / frame.size
        assert 0.02 < shares.max() < 0.99 or column.levels > 1000
        values = frame.values(column.name)
        assert np.nanstd(values) > 0
    both = ~np.isnan(frame.values("age")) & ~np.isnan(frame.values("height"))
    ages, heights = frame.values("age")[both], frame.values("height")[both]
    assert 0.02 < abs(np.corrcoef(ages, heights)[0, 1]) < 0.95


def test_a_simulated_table_follows_from_its_seed(schema: dps.Schema) -> None:
    one, same, other = (simulated_table(schema, 100, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


def test_sets_and_units_are_simulated() -> None:
    facts = {
        "privacy": {"unit": "person", "max_rows_per_unit": 3},
        "columns": {"x": {"kind": "boolean"}, "bought": {"kind": "set", "universe": 50}},
    }
    schema = dps.Schema.from_dict(facts)
    sampled = dps.Recipe(SMALL.parts, sampling=dps.RowSampling(rate=0.5))
    for recipe in (SMALL, sampled):
        (found,) = dps.plan(schema, ["select count(*) from sketch"], ONE, 3000, recipe, 2).predictions
        assert found.typical == 3000
        assert 0 < found.error < 1000


def truth_of(table: pa.Table, query: str) -> float:
    with duckdb.connect() as connection:
        connection.register("sketch", table)
        ((value,),) = connection.sql(query.replace("stddev", "stddev_pop")).fetchall()
        return float(value)


TRUTHS = [
    "select count(*) from sketch",
    "select avg(age) from sketch where member",
    "select count(*) from sketch where sex = 'Male' and height > 1.4",
    "select sum(income) / count(*) from sketch where joined > '2021-01-01'",
    "select corr(age, height) from sketch",
    "select stddev(height) from sketch where not member",
    "select median(age) from sketch",
]


@pytest.mark.parametrize("query", TRUTHS)
def test_the_truth_is_what_duckdb_says(query: str, schema: dps.Schema) -> None:
    table = simulated_table(schema, 5000, np.random.default_rng(4))
    ((answer,),) = SimulatedTable(schema, table).sql(query).rows
    assert answer.value == pytest.approx(truth_of(table, query), rel=1e-4)
    assert answer.stderr < 1e-9


def test_more_rows_than_are_simulated(seeded: None, schema: dps.Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share's error falls with the rows; a count's does not, and its answers are as large as declared."""
    monkeypatch.setattr("dpsketch.planning.forecast.MOST_ROWS", 2000)
    queries = ["select count(*) from sketch where member", "select count_if(member) / count(*) from sketch"]
    few, many = (dps.plan(schema, queries, ONE, rows, SMALL, 20) for rows in (2000, 100_000))
    (few_count, few_share), (many_count, many_share) = few.predictions, many.predictions
    assert many_count.typical == pytest.approx(50 * few_count.typical)  # type: ignore[operator]
    assert few_count.error / 2 < many_count.error < 2 * few_count.error
    assert many_share.typical == pytest.approx(few_share.typical)
    assert few_share.error / many_share.error == pytest.approx(50, rel=0.1)


def actual_errors(
    table: pa.Table, schema: dps.Schema, queries: Sequence[str], budget: dps.Budget, recipe: dps.Recipe, releases: int
) -> list[float]:
    """Root mean squares of the distance to what DuckDB says of the table."""
    ledger = dps.Ledger("sqlite://")
    truth = [truth_of(table, query) for query in queries]
    answers = []
    for release in range(releases):
        raw = dps.accumulate(table, schema, recipe)
        view = dps.View(dps.release(raw, budget, ledger, f"table {release}"))
        answers.append([view.sql(query).rows[0][0].value for query in queries])
    return np.sqrt(np.mean((np.array(answers) - truth) ** 2, axis=0)).tolist()


HOSPITAL = {
    "privacy": {"rows": 20_000},
    "columns": {
        "age": {"kind": "integer", "lower": 0, "upper": 110},
        "smoker": {"kind": "boolean"},
        "sex": {"kind": "category", "values": ["female", "male"]},
    },
}
HOSPITAL_QUERIES = [
    "select avg(age) from sketch",
    "select count(*) from sketch where smoker",
    "select count(*) from sketch where smoker and sex = 'male'",
]
OCCUPANCY_COLUMNS = ("temperature", "co2", "occupancy")
OCCUPANCY_QUERIES = [
    "select avg(temperature) from sketch",
    "select count(*) from sketch where occupancy = '1'",
    "select count(*) from sketch where occupancy = '1' and temperature > 21",
]


@pytest.fixture(params=["simulated otherwise", "real"])
def known(request: pytest.FixtureRequest, dataset_path: Path) -> tuple[pa.Table, dps.Schema, list[str]]:
    """A table, its schema and queries about it."""
    if request.param == "simulated otherwise":
        return pa.table(make_table(20_000)), dps.Schema.from_dict(HOSPITAL), HOSPITAL_QUERIES
    facts = dps.Schema.load(dataset_path / "schemas" / "occupancy.toml").to_dict()
    facts["columns"] = {name: facts["columns"][name] for name in OCCUPANCY_COLUMNS}
    return pq.read_table(dataset_path / "occupancy.parquet"), dps.Schema.from_dict(facts), OCCUPANCY_QUERIES


def near(predicted: Forecast, actual: list[float], factor: float) -> list[bool]:
    return [
        error / factor < each.error < factor * error for each, error in zip(predicted.predictions, actual, strict=True)
    ]


def test_errors_from_tables_are_predicted(seeded: None, known: tuple[pa.Table, dps.Schema, list[str]]) -> None:
    """Within a factor of 1.5; a prediction for three times the budget is not."""
    table, schema, queries = known
    queries = [query.replace("> 21", ">= 21") for query in queries]  # at the edge of `both_ways`
    pair = ["smoker", "sex"] if "smoker" in queries[2] else ["occupancy", "temperature"]
    recipe = dps.Recipe([*SMALL.parts[:1], dps.Part(dps.Histogram(bins=64), 0.5), dps.Part(both_ways(pair), 0.4)])
    actual = actual_errors(table, schema, queries, dps.Budget(0.05), recipe, 60)
    right, wrong = (dps.plan(schema, queries, [dps.Budget(epsilon)], None, recipe, 25) for epsilon in (0.05, 0.15))
    assert all(near(right, actual, 1.5)), (actual, right)
    assert not any(near(wrong, actual, 1.5)), (actual, wrong)


def both_ways(columns: list[str]) -> dps.Histogram:
    # With an edge where the question is, its error is that of the noise.
    edges = {"temperature": [15 + step / 4 for step in range(1, 60)]} if "temperature" in columns else None
    return dps.Histogram(ways=2, columns=columns, edges=edges)


@pytest.mark.parametrize("known", ["real"], indirect=True)
def test_errors_of_the_general_recipe_are_predicted(
    known: tuple[pa.Table, dps.Schema, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a factor of 5: what its mixture makes of a table depends on the table; see docs/answers.md. One of the
    predictions is more than three times the error of this table; the cause is not known.

    Two refits, each four times, in place of eight: they tell standard errors, which are not looked at here.
    """
    monkeypatch.setattr(released, "refits", lambda sums, fitted: 4 * bootstrap.refits(sums, fitted, 2))
    table, schema, queries = known
    budget = dps.Budget(1.0)
    actual = actual_errors(table, schema, queries, budget, dps.Recipe.general(schema, budget=budget), 6)
    found = dps.plan(schema, queries, [budget], simulations=6)
    assert all(near(found, actual, 5)), (actual, found)


def test_groups_dates_and_empty_selections(seeded: None, schema: dps.Schema) -> None:
    queries = [
        "select sex, count(*), avg(age) as years from sketch group by sex",
        "select avg(joined) from sketch",
        "select avg(age) from sketch where height > 9",
    ]
    budgets = [dps.Budget(2.0), dps.Budget(0.5)]
    found = dps.plan(schema, queries, budgets, 5000, SINGLE, 2)
    assert list(found.answers()) == [f"count(*) in {queries[0]}", f"years in {queries[0]}", *queries[1:]]
    counts, years, joined, nobody = found.answers().values()
    assert [each.budget.epsilon for each in counts] == [0.5, 2.0]
    assert counts[0].error > 2 * counts[1].error > 0
    assert 0 < counts[0].typical < 5000  # type: ignore[operator]
    assert 10 < years[0].typical < 100  # type: ignore[operator]
    assert np.datetime64("2020") < joined[0].typical < np.datetime64("2025")
    assert np.isnan(joined[0].relative)
    assert np.isnan(nobody[0].typical)  # type: ignore[arg-type]
    assert joined[0].to_dict()["relative"] is None
    assert joined[0].texts[1].endswith(("days", "hours"))
    assert nobody[0].texts == ("no such rows", "-")
    assert found.enough()[queries[1]] is None


SINGLE = dps.Recipe(
    [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.Histogram(bins=16), 0.4),
        dps.Part(dps.Histogram(ways=2, columns=["sex", "age"], bins=16), 0.25),
        dps.Part(dps.Histogram(ways=2, columns=["age", "height"], bins=16), 0.25),
    ]
)


def test_the_least_budget_that_is_enough_and_the_plot(tmp_path: Path) -> None:
    def prediction(epsilon: float, error: float, query: str = "q") -> Prediction:
        return Prediction(query, "a", dps.Budget(epsilon), -10.0, error, error / 2, error * 2, "")

    found = Forecast((prediction(10, 0.1), prediction(1, 0.5), prediction(0.1, 3.0), prediction(1, 2.0, "r")))
    assert found.enough() == {"q": dps.Budget(1), "r": None}
    assert found.enough(0.02) == {"q": dps.Budget(10), "r": None}
    found.plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_no_ledger_is_written(schema: dps.Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shares: list[float] = []
    dps.plan(schema, ["select count(*) from sketch"], ONE, 100, SMALL, 2, progress=shares.append)
    assert not list(tmp_path.iterdir())
    assert shares == [0.5, 1.0]


def test_the_usual_queries_can_be_asked(schema: dps.Schema) -> None:
    assert usual_queries(schema) == [
        'select avg("age") from sketch',
        'select count(*) from sketch where "age" > 60 and "joined" > \'2022-07-02 12:00\'',
        'select corr("age", "height") from sketch',
    ]
    simulated = SimulatedTable(schema, simulated_table(schema, 1000, np.random.default_rng(0)))
    for query in usual_queries(schema):
        assert np.isfinite(simulated.sql(query).rows[0][0].value)
    only = dps.Schema.from_dict({"columns": {"a b": {"kind": "category", "values": ["it's"]}}})
    assert usual_queries(only) == ["select count(*) from sketch where \"a b\" = 'it''s'"]
    sets = dps.Schema.from_dict({"columns": {"s": {"kind": "set", "universe": 5}}})
    assert usual_queries(sets) == ["select count(*) from sketch"]


MEAN = "select avg(age) from sketch"


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"queries": []}, QueryError, "a plan needs a query"),
        ({"queries": ["avg(age)"]}, QueryError, "only one select statement"),
        ({"queries": ["select avg(wage) from sketch"]}, QueryError, "wage"),
        ({"queries": [MEAN + " where sex = 'X'"]}, QueryError, "no listed value"),
        ({"queries": ["select sex, avg(age) from sketch group by sex limit 1"]}, QueryError, "about all groups"),
        ({"budgets": []}, BudgetError, "a plan needs a budget"),
        ({"budgets": [dps.Budget(float("inf"))]}, BudgetError, "private releases"),
        ({"simulations": 0}, RecipeError, "simulations must be a whole number from 1"),
        ({"rows": 0}, RecipeError, "rows must be a whole number"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], kind: type[Exception], words: str, schema: dps.Schema) -> None:
    wanted = {"queries": [MEAN], "budgets": ONE, "recipe": SMALL, "simulations": 1, "rows": 50}
    with pytest.raises(kind, match=words):
        dps.plan(schema, **(wanted | changes))


def test_rows_must_be_declared() -> None:
    with pytest.raises(RecipeError, match="must be declared"):
        dps.plan(dps.Schema.from_dict({"columns": MIXED["columns"]}), [MEAN], ONE)
