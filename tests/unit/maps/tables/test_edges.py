from __future__ import annotations

import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.encoding.levels import levels_at
from dpsketch.encoding.records import Records
from dpsketch.maps.registry import map_from_dict
from dpsketch.maps.tables.cells import EVERY_CODE
from dpsketch.maps.tables.edges import edge_cells
from dpsketch.maps.tables.histogram import Histogram
from dpsketch.schema.columns import Integer, Number
from dpsketch.schema.schema import Schema

AGE = Integer("age", 0, 120)
PRICE = Number("price", 0.0, 1000.0)


@pytest.mark.parametrize(
    ("column", "edges", "values", "expected"),
    [
        (AGE, (18, 40, 65), [0, 17, 18, 39, 40, 64, 65, 120, -5, 300], [0, 0, 1, 1, 2, 2, 3, 3, 0, 3]),
        (AGE, (16.5, 17.5), [16, 17, 18], [0, 1, 2]),
        (AGE, (1, 120), [0, 1, 119, 120], [0, 1, 1, 2]),
        (PRICE, (0.1, 19.99, 500), [0, 0.09, 0.1, 19.9, 19.99, 499.9, 500, 1000], [0, 0, 1, 1, 2, 2, 3, 3]),
        (PRICE, (1e-9,), [0, 1e-9, 1000], [0, 1, 1]),
        (Number("rate", 0.01, 1e6, "log"), (1, 12_345.678), [0.999, 1, 12_300, 12_345.678], [0, 1, 1, 2]),
        (Integer("id", 0, 10**9), (999_999_937,), [999_900_000, 999_999_937], [0, 1]),
    ],
)
def test_a_value_at_an_edge_is_in_the_cell_above(column: Any, edges: Any, values: Any, expected: list[int]) -> None:
    cells = edge_cells(column, edges)
    codes = column.codes_of(levels_at(column, np.array(values, float)))
    assert cells.cells(codes).tolist() == expected
    assert cells.count == len(edges) + 2
    assert cells.cells(np.array([-32768])).tolist() == [cells.missing]


def test_values_of_codes_are_on_the_side_of_their_cell() -> None:
    """The code of 19.99 rounds it; a question about values from 19.99 on is about its cell nevertheless."""
    edges = (0.1, 19.99, 333.333, 500.0)
    cells = edge_cells(PRICE, edges)
    assert (PRICE.values_of(EVERY_CODE[1:]) != cells.values_of(EVERY_CODE[1:])).any(), "the example is too easy"
    values = cells.values_of(EVERY_CODE[1:])
    assert (np.searchsorted(edges, values, side="right") == cells.cells(EVERY_CODE[1:])).all()
    assert np.isnan(cells.values_of(EVERY_CODE[:1])).all()


def test_single_values_and_cuts() -> None:
    assert edge_cells(AGE, (1, 2, 120)).single.tolist() == [True, True, False, True, True]
    assert edge_cells(AGE, (18, 40)).cut == edge_cells(AGE, (18.0, 40.0)).cut != edge_cells(AGE, (18, 41)).cut


def test_tables_between_edges_match_a_direct_count(rng: np.random.Generator, schema: Schema) -> None:
    bound = Histogram(ways=2, columns=["age", "sex"], edges={"age": [18, 40, 65]}).bind(schema)
    levels = [rng.integers(-1, column.levels, 500) for column in schema.scalars]
    codes = np.stack([column.codes_of(level) for column, level in zip(schema.scalars, levels, strict=True)])
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(codes), sums)
    ages = schema.column("age").values_of(codes[schema.index("age")])
    group = np.where(np.isnan(ages), 4, np.searchsorted([18, 40, 65], ages, side="right"))
    sex = levels[schema.index("sex")]
    expected = np.zeros(bound.shape(0), np.int64)
    np.add.at(expected, (group, np.where(sex < 0, expected.shape[1] - 1, sex)), 1)
    assert bound.shape(0)[0] == 5
    assert (sums == expected.ravel()).all()


def test_equal_edges_have_equal_descriptions(schema: Schema) -> None:
    one = Histogram(columns=["age", "joined"], edges={"joined": [date(2021, 1, 1)], "age": (18, 40.0)})
    two = Histogram(columns=["age", "joined"], edges={"age": np.array([18.0, 40]), "joined": ["2021-01-01T00:00Z"]})
    assert one == two
    assert hash(one) == hash(two)
    assert map_from_dict(one.to_dict()) == one
    assert one.to_dict()["edges"] == {"age": [18, 40], "joined": ["2021-01-01T00:00:00+00:00"]}
    assert one.bind(schema).fingerprint() == two.bind(schema).fingerprint()
    other = Histogram(columns=["age", "joined"], edges={"age": [18, 41], "joined": [datetime(2021, 1, 1)]})
    assert other.bind(schema).fingerprint() != one.bind(schema).fingerprint()


def test_no_edges_change_nothing(schema: Schema) -> None:
    plain = Histogram(bins=8)
    assert Histogram(bins=8, edges={}) == plain
    assert "edges" not in plain.to_dict()


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([18, 40], "edges must list numbers for each of some columns"),
        ({"age": 18}, "the edges of column 'age' must be a list of 1 to 32768 values"),
        ({"age": []}, "must be a list of 1 to 32768 values"),
        ({"age": [18, True]}, "an edge of column 'age' must be a number or a date, got True instead"),
        ({"age": ["young"]}, "must be a number or a date, got 'young' instead"),
        ({"age": [float("nan")]}, "must be a number or a date"),
        ({"age": [40, 18]}, "the edges of column 'age' must rise, got 40, 18 instead"),
        ({"age": [18, "2020-01-01"]}, "must rise"),
        ({"sex": [1]}, "column 'sex' has edges but no cells"),
    ],
)
def test_edges_are_checked_in_a_recipe(edges: Any, message: str) -> None:
    with pytest.raises(dps.RecipeError, match=message):
        Histogram(columns=["age", "joined"], edges=edges)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({"sex": [1]}, "column 'sex' has labels, which are cells of their own\nHint: leave out its edges"),
        ({"age": ["2020-01-01"]}, "the edges of column 'age' must be numbers, got 2020-01-01"),
        ({"joined": [3]}, "the edges of column 'joined' must be dates, such as '2024-01-31', got 3 instead"),
        ({"age": [-1, 18]}, "must be above its lower bound and at most its upper bound, got -1, 18 instead"),
        ({"age": [18, 1000]}, "must be above its lower bound and at most its upper bound"),
        ({"age": [18, 18.5, 18.7]}, "no value of column 'age' lies from 18.5 to 18.7"),
        ({"nobody": [1]}, "no column 'nobody'"),
    ],
)
def test_edges_are_checked_on_a_schema(schema: Schema, edges: Any, message: str) -> None:
    with pytest.raises(dps.DpsketchError, match=message):
        dps.Recipe([dps.Part(Histogram(edges=edges), 1.0)]).bind(schema)


def test_edges_in_a_recipe_file(tmp_path: Path, schema: Schema) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[[parts]]\nmap = "histogram"\nshare = 1.0\ncolumns = ["age", "joined"]\n'
        "edges = {age = [18, 40, 65], joined = [2020-01-01, 2021-06-30]}\n"
    )
    recipe = dps.Recipe.load(path)
    [part] = recipe.parts
    dates = ["2020-01-01", date(2021, 6, 30)]
    assert part.map == Histogram(columns=["age", "joined"], edges={"age": [18, 40, 65], "joined": dates})
    assert dps.Recipe.from_dict(recipe.to_dict()) == recipe
    assert "edges" in recipe.to_dict()["parts"][0]


PEOPLE = dps.Schema.from_dict(
    {
        "privacy": {"rows": 5000},
        "columns": {
            "age": {"kind": "integer", "lower": 0, "upper": 120},
            "price": {"kind": "number", "lower": 0, "upper": 1000},
            "city": {"kind": "category", "values": ["a", "b"]},
        },
    }
)
PRICES = np.array([19.99, 20.0, 499.5, 333.333])


def people(random: np.random.Generator) -> pa.Table:
    """Few values, many of them at an edge."""
    ages = random.choice([5, 17, 18, 39, 40, 64, 65, 90], 5000)
    return pa.table(
        {
            "age": pa.array(ages, mask=random.random(5000) < 0.1),
            "price": random.choice(PRICES, 5000),
            "city": random.choice(["a", "b"], 5000),
        }
    )


@pytest.fixture(scope="module")
def released() -> tuple[pa.Table, dps.View]:
    table = people(np.random.default_rng(3))
    edges = {"age": [18, 40, 65], "price": [20, 333.333]}
    recipe = dps.Recipe(
        [dps.Part(dps.Histogram(ways=2, edges=edges), share=0.6), dps.Part(dps.Histogram(edges=edges), share=0.4)]
    )
    raw = dps.accumulate(table, PEOPLE, recipe)
    return table, dps.View(dps.release(raw, dps.Budget(math.inf)))


def truth(table: pa.Table, condition: str) -> int:
    return len(table.to_pandas().query(condition))


@pytest.mark.parametrize(
    "condition",
    [
        "age < 18",
        "age >= 65",
        "age >= 18 and age < 65",
        "price < 20",
        "price >= 333.333",
        "price >= 20 and age < 40",
        "city == 'a' and age >= 40",
    ],
)
def test_questions_at_the_edges_are_exact(released: tuple[pa.Table, dps.View], condition: str) -> None:
    """Without noise there is no error at all."""
    table, view = released
    count = view.count(condition.replace("==", "="))
    assert count.value == pytest.approx(truth(table, condition), abs=0.1)
    assert count.stderr < 0.1
    assert view.fraction(condition.replace("==", "=")).stderr < 1e-4


def test_histograms_at_the_edges_are_exact(released: tuple[pa.Table, dps.View]) -> None:
    table, view = released
    counts = view.histogram("age", edges=[18, 40, 65])
    assert counts.labels == ("below 18", "18 to 40", "40 to 65", "65 or more", "missing")
    ages = table.to_pandas().age
    expected = [*np.bincount(np.searchsorted([18, 40, 65], ages.dropna(), side="right")), ages.isna().sum()]
    assert counts.value == pytest.approx(np.array(expected, float), abs=0.1)
    assert (np.array(counts.stderr) < 0.1).all()
    prices = view.histogram("price", edges=[20, 333.333])
    assert prices.value[1] == pytest.approx((table["price"].to_numpy() == 20.0).sum(), abs=0.1)


def test_groups_at_the_edges_are_exact(released: tuple[pa.Table, dps.View]) -> None:
    table, view = released
    groups = view.sql(
        "select case when age < 18 then 1 when age < 40 then 2 when age < 65 then 3 else 4 end as g, count(*) as n "
        "from sketch where age >= 0 group by g"
    ).to_dicts()
    ages = table.to_pandas().age.dropna()
    expected = np.bincount(np.searchsorted([18, 40, 65], ages, side="right"))
    assert [row["n"] for row in groups] == pytest.approx(expected.tolist(), abs=0.1)


def test_errors_inside_a_cell_cover_where_its_records_are(released: tuple[pa.Table, dps.View]) -> None:
    """Nobody between 18 and 39: that half of the group lies above 28 is a guess."""
    table, view = released
    inside = view.fraction("age >= 28")
    actual = truth(table, "age >= 28") / 5000
    assert abs(inside.value - actual) < 2 * inside.stderr
    assert inside.stderr > 0.02
    mean = view.mean("age")
    assert abs(mean.value - table["age"].to_pandas().mean()) < 2 * mean.stderr


def test_edges_of_questions_are_checked(released: tuple[pa.Table, dps.View]) -> None:
    _, view = released
    with pytest.raises(dps.QueryError, match="column 'city' has labels, which have no edges"):
        view.histogram("city", edges=[1])
    with pytest.raises(dps.QueryError, match="edges must be a list of 1 to 10000 values"):
        view.histogram("age", edges=[])
    with pytest.raises(dps.QueryError, match="edges of column 'age' must rise"):
        view.histogram("age", edges=[40, 18])


def test_densities_need_even_cells(released: tuple[pa.Table, dps.View]) -> None:
    """Cells of any width have no grid to smooth over."""
    _, view = released
    with pytest.raises(dps.QueryError, match="this release holds no density of age, price"):
        dps.KernelDensity(columns=["age", "price"], bandwidth=0.1).fit(view)
