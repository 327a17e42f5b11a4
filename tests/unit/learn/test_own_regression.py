"""The regression of the moment-to-moment paper on points of one's own."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pandas
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.errors import QueryError

ROWS = 20_000


@cache
def table() -> pandas.DataFrame:
    rng = np.random.default_rng(SEED)
    x, y = rng.beta(2, 5, ROWS), rng.normal(0, 1, ROWS).clip(-5, 5)
    return pandas.DataFrame({"x": x, "y": y, "z": rng.choice(["a", "b"], ROWS)})


@cache
def view(*names: str) -> dps.View:
    numbers = {"x": (0, 1), "y": (-5, 5)}
    columns: dict[str, Any] = {
        name: {"kind": "number", "lower": low, "upper": high} for name, (low, high) in numbers.items()
    }
    columns["z"] = {"kind": "category", "values": ["a", "b"]}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    parts = [dps.Part(dps.Count(), 0.1), dps.Part(dps.Fourier(size=60, columns=names or None), 0.9)]
    return dps.View(dps.release(dps.accumulate(table(), schema, dps.Recipe(parts)), dps.Budget(math.inf)))


def test_by_default_it_is_the_paper_s() -> None:
    paper = dps.View(view().released, method="ridge-paper").fraction("x <= 0.3")
    answer = view().regression().expect("x <= 0.3")
    assert answer.raw == pytest.approx(paper.raw, abs=0.02)
    assert answer.stderr > paper.stderr
    assert dict(answer.causes)["what the sums do not resolve"] == pytest.approx(1)


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"intercept": True, "count": 2000},
        {"domain": {"x": (0.0, 0.9)}, "ridge": 1e-4},
        {"points": "fitted", "intercept": True},
        {"points": table()[:3000], "intercept": True, "ridge": 1e-6},
    ],
    ids=repr,
)
def test_an_expectation_is_the_weighted_sum_over_the_points(terms: dict[str, Any]) -> None:
    regression = view().regression(**terms)
    points, weights = regression.points.to_pandas(), regression.weights
    assert len(points) == len(weights)
    square = regression.expect(lambda rows: np.nan_to_num(rows["y"]) ** 2, ["y"])
    share = regression.expect("x <= 0.3 and z = 'a'")
    assert square.raw == pytest.approx(weights @ points.y.fillna(0) ** 2)
    assert share.raw == pytest.approx(weights @ ((points.x <= 0.3) & (points.z == "a")))
    assert abs(square.raw - (table().y ** 2).mean()) < 3 * square.stderr
    assert abs(share.raw - ((table().x <= 0.3) & (table().z == "a")).mean()) < 3 * share.stderr
    assert regression.ridge == terms.get("ridge", regression.ridge)
    if "intercept" in terms:
        assert weights.sum() == pytest.approx(1)


def test_points_lie_in_the_domain() -> None:
    regression = view().regression(domain={"x": (0.25, 0.5)}, count=500)
    points = regression.points.to_pandas()
    assert 0.2499 < points.x.min() < 0.26
    assert 0.49 < points.x.max() < 0.5001
    assert points.y.min() < -4.9
    assert regression.columns == ("x", "y", "z")
    assert "500 points" in repr(regression)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"points": "even"}, "points must be a table"),
        ({"points": table()[:5], "count": 3}, "count and domain are of uniform points"),
        ({"points": table()[:0]}, "1 to 131,072 points"),
        ({"count": 0}, "count must be a whole number"),
        ({"ridge": -1.0}, "ridge must be a number above 0"),
        ({"domain": {"w": (0, 1)}}, "the sums have no column 'w'"),
        ({"domain": {"x": (0.5, 2)}}, "must rise, inside 0 to 1"),
        ({"domain": {"x": 0.5}}, "must be two numbers"),
        ({"domain": {"z": (0, 1)}}, "has no numbers to bound"),
        ({"columns": ["w"]}, "w"),
    ],
)
def test_what_is_refused(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        view().regression(**terms)


def test_columns_that_sums_lack() -> None:
    with pytest.raises(QueryError, match="says nothing about"):
        view("x", "y").regression(["z"])
    with pytest.raises(QueryError, match="this regression has no column 'z'"):
        view("x", "y").regression(count=64).expect("z = 'a'")
    count = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    raw = dps.accumulate(table(), view().schema, count)
    with pytest.raises(QueryError, match="no sums for a regression"):
        dps.View(dps.release(raw, dps.Budget(math.inf))).regression()
