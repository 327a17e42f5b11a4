from __future__ import annotations

import pytest

import dpsketch as dps
from conftest import MIXED
from dpsketch.learn.sql.clamped import clamped_columns, outside_conditions, with_clamped
from dpsketch.learn.sql.expressions import parse_condition

SCHEMA = dps.Schema.from_dict(MIXED)


@pytest.mark.parametrize(
    ("condition", "at_bound"),
    [
        ("height > 2.5", "height >= 2.5"),
        ("2.5 < height", "height >= 2.5"),
        ("height >= 3", "height >= 2.5"),
        ("height = 3", "height >= 2.5"),
        ("height <> 3", "height < 2.5 OR height >= 2.5"),
        ("not height = 3", "height < 2.5 OR height >= 2.5"),
        ("age <> -4", "age > 0.0 OR age <= 0"),
        ("not height <= 2.5", "height >= 2.5"),
        ("not (height between 1 and 2.5)", "height <= 1.0"),
        ("age between 130 and 140", "age >= 120"),
        ("age < -1", "age <= 0"),
        ("age < 0 and sex = 'Male'", "age <= 0"),
        ("income > 500000", "income >= "),
        ("joined > '2025-01-01'", "joined >= '2025-01-01"),
        ("case when age > 200 then 1 else 0 end = 1", "age >= 120"),
    ],
)
def test_conditions_beyond_a_bound_are_recognised(condition: str, at_bound: str) -> None:
    node = parse_condition(condition, SCHEMA)
    [(name, reason)] = clamped_columns(SCHEMA, node).items()
    assert f"'{name}'" in reason
    assert "clamped to" in reason
    assert at_bound in with_clamped(SCHEMA, node, at_bound=True).sql().replace('"', "")
    assert f"{name} < {name}" in with_clamped(SCHEMA, node, at_bound=False).sql().replace('"', "")


@pytest.mark.parametrize(
    "condition",
    [
        "height >= 2.5",
        "height <= 2.5",
        "height <> 2.5",
        "age <> 30",
        "sex <> 'Male'",
        "not height > 2.5",
        "age between 100 and 130",
        "age > 119",
        "height <= 1",
        "sex = 'Male'",
        "member",
        "age > height",
        "age + 1 > 300",
        "age is null",
    ],
)
def test_other_conditions_are_answered(condition: str) -> None:
    assert clamped_columns(SCHEMA, parse_condition(condition, SCHEMA)) == {}


def test_columns_that_are_used_otherwise() -> None:
    node = parse_condition("height > 2.5 and age > 3", SCHEMA)
    assert list(outside_conditions(SCHEMA, node)) == ["age"]
