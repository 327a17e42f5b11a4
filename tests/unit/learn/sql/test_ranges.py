from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from conftest import MIXED
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.aggregates import formula_of
from dpsketch.learn.sql.expressions import number
from dpsketch.learn.sql.ranges import ANYTHING, expression_range
from dpsketch.learn.sql.statement import parse_select

SCHEMA = dps.Schema.from_dict(MIXED)


def _node(text: str):
    return parse_select(f"select {text} from sketch").expressions[0]


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("age", (0, 120)),
        ("-age + 10", (-110, 10)),
        ("age - height", (-2.5, 119)),
        ("age * -2", (-240, 0)),
        ("age / height", (0, 120)),
        ("height / age", (1 / 120, math.inf)),
        ("abs(age - 50)", (0, 70)),
        ("case when age > 40 then 1 else 0 end", (0, 1)),
        ("case when age > 40 then height end", (1, 2.5)),
        ("age > 40", (0, 1)),
        ("least(age, 50)", (0, 120)),
        ("sqrt(age)", (0, math.sqrt(120))),
        ("power(age, 2)", ANYTHING),
    ],
)
def test_ranges_of_expressions_hold_at_random_points(text: str, range_: tuple[float, float]) -> None:
    low, high = expression_range(SCHEMA, _node(text))
    assert (low, high) == pytest.approx(range_)
    rng = np.random.default_rng(1)
    codes = {column.name: rng.integers(-32767, 32768, 1000).astype(np.int16) for column in SCHEMA.scalars}
    values = number(_node(text), Frame(SCHEMA, codes))
    values = values[np.isfinite(values)]
    assert low <= values.min()
    assert values.max() <= high


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("count(*)", (0, math.inf)),
        ("avg(age)", (0, 120)),
        ("avg(age) - median(height)", (-2.5, 119)),
        ("stddev(age)", (0, 60)),
        ("var(age)", (0, 3600)),
        ("corr(age, height)", (-1, 1)),
        ("covar_pop(age, height)", (-45, 45)),
        ("sum(age) / count(*)", (0, math.inf)),
        ("sum(age - 50)", ANYTHING),
        ("round(avg(height), 1)", (1, 2.5)),
        ("regr_slope(age, height)", ANYTHING),
        ("ln(avg(height))", (0, math.log(2.5))),
    ],
)
def test_ranges_of_formulas(text: str, range_: tuple[float, float]) -> None:
    assert formula_of(SCHEMA, _node(text)).possible == pytest.approx(range_)
