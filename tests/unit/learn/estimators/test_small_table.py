"""Errors of tables say what cells of several values hide."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest

import dpsketch as dps

ROWS = 6000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "hours": {"kind": "integer", "lower": 1, "upper": 99},
            "price": {"kind": "number", "lower": 0, "upper": 16},
            "day": {"kind": "datetime", "lower": "2001-01-01", "upper": "2001-07-01"},
            "late": {"kind": "integer", "lower": -60, "upper": 180},
            "city": {"kind": "category", "values": ["a", "b"]},
        },
    }
)
DAYS = {"day": ["2001-01-08", "2001-03-01"], "late": [0, 15], "price": [8.0]}


@pytest.fixture(scope="module")
def frame() -> pandas.DataFrame:
    """Half of all hours are 40, and a third of all prices 6.159; days are even."""
    random = np.random.default_rng(5)
    start = pandas.Timestamp("2001-01-01")
    return pandas.DataFrame(
        {
            "hours": np.where(random.random(ROWS) < 0.5, 40, random.integers(1, 100, ROWS)),
            "price": np.where(random.random(ROWS) < 0.33, 6.159, random.uniform(0, 16, ROWS)),
            "day": start + pandas.to_timedelta(random.uniform(0, 181, ROWS), unit="D"),
            "late": np.where(random.random(ROWS) < 0.2, 31, random.integers(-60, 181, ROWS)),
            "city": random.choice(["a", "b"], ROWS),
        }
    )


def released(frame: pandas.DataFrame, **of: object) -> dps.View:
    recipe = dps.Recipe([dps.Part(dps.Histogram(**of), 1.0)])  # type: ignore[arg-type]
    return dps.View(dps.release(dps.accumulate(frame, SCHEMA, recipe), dps.Budget(math.inf)))


@pytest.fixture(scope="module")
def bins(frame: pandas.DataFrame) -> dps.View:
    return released(frame, bins=16)


@pytest.fixture(scope="module")
def edges(frame: pandas.DataFrame) -> dps.View:
    return released(frame, edges=DAYS, columns=["day", "late", "price"])


def check(view: dps.View, frame: pandas.DataFrame, condition: str) -> None:
    found = view.count(condition.replace("==", "="))
    truth = len(frame.query(condition))
    assert found.stderr > 1, condition
    assert abs(found.value - truth) < 4 * found.stderr, condition


@pytest.mark.parametrize(
    "condition",
    ["hours == 40", "hours < 40", "hours <= 40", "price > 6.159", "price >= 6.159", "price >= 6.15 and price < 6.16"],
)
def test_a_heavy_value_inside_a_bin(bins: dps.View, frame: pandas.DataFrame, condition: str) -> None:
    check(bins, frame, condition)


@pytest.mark.parametrize("name", ["hours", "price"])
def test_moments_and_quantiles_of_heavy_values(bins: dps.View, frame: pandas.DataFrame, name: str) -> None:
    column = frame[name]
    for found, truth in (
        (bins.mean(name), column.mean()),
        (bins.std(name), column.std(ddof=0)),
        (bins.quantile(name, 0.5), column.median()),
    ):
        assert found.stderr > 0
        assert abs(found.value - truth) < 4 * found.stderr


@pytest.mark.parametrize(
    "condition",
    [
        "day >= '2001-03-05' and day < '2001-03-06'",
        "day >= '2001-03-05 10:00' and day < '2001-03-05 10:01'",
        "late == 31",
        "late > 30 and late < 32",
        "late != 31 and late >= 15",
        "price > 6.159 and price < 6.16",
        "price >= 6.159 and price < 6.1591",
    ],
)
def test_short_spans_inside_a_wide_cell(edges: dps.View, frame: pandas.DataFrame, condition: str) -> None:
    check(edges, frame, condition)


def test_groups_by_day_inside_wide_cells(edges: dps.View, frame: pandas.DataFrame) -> None:
    groups = edges.sql("select day::date as d, count(*) as n from sketch group by 1").to_dicts()
    truth = frame.day.dt.date.astype(str).value_counts()
    assert len(groups) > 180
    assert all(abs(row["n"] - truth.get(str(row["d"])[:10], 0)) < 4 * row["n_stderr"] for row in groups)
    assert min(row["n_stderr"] for row in groups) > 1


def test_tables_of_two_columns(frame: pandas.DataFrame) -> None:
    view = released(frame, ways=2, columns=["late", "city"], edges={"late": [0, 15]})
    check(view, frame, "late == 31 and city == 'a'")
    check(view, frame, "late > 30 and late < 32 and city == 'a'")
    both = released(frame, ways=2, columns=["late", "price"], edges={"late": [0, 15], "price": [8.0]})
    check(both, frame, "price >= 6.159 and price < 6.1591 and late > 30 and late < 32")
    assert both.count("price >= 8 and late < 15").stderr == 0


@pytest.mark.parametrize("condition", ["price < 8", "price >= 4 and price < 12", "city == 'a'"])
def test_no_error_at_the_edges_of_bins(bins: dps.View, frame: pandas.DataFrame, condition: str) -> None:
    found = bins.count(condition.replace("==", "="))
    assert found.value == pytest.approx(len(frame.query(condition)), abs=2)  # codes round prices
    assert found.stderr == pytest.approx(0, abs=1e-6)


def test_many_spans_of_few_cells(bins: dps.View) -> None:
    """More numbers than points find: every span has an error."""
    counts = bins.histogram("price", edges=np.linspace(4.01, 4.99, 1000).tolist())
    assert np.min(counts.stderr[1:-2]) > 1
