from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from dpsketch.errors import SchemaError
from dpsketch.schema.columns import LOWEST, Boolean, Category, Column, Datetime, IdSet, Integer, Number
from dpsketch.schema.schema import Schema

DATE = Datetime("x", datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 1, 31, tzinfo=UTC))
COLUMNS = [
    Number("x", 1, 9),
    Number("x", 1, 9, "log"),
    Number("x", -4, 9, "asinh"),
    Integer("x", 0, 9),
    DATE,
    Category("x", ("a", "b")),
    Boolean("x"),
    IdSet("x", 9),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.kind} {column.scale}")
def test_what_values_mean_is_consistent(column: Column) -> None:
    assert column.arithmetic == (column.numeric and not column.dates)
    assert column.averaged or not column.numeric
    assert column.scale is None or column.arithmetic


def test_models_measure_dates_in_days() -> None:
    low, high = DATE.values_of(np.array([LOWEST, -LOWEST])) / DATE.unit
    assert high - low == 30


@pytest.mark.parametrize("column", COLUMNS[:5], ids=lambda column: f"{column.kind} {column.scale}")
def test_levels_are_equidistant_after_the_transform(column: Column) -> None:
    values = column.values_of(column.codes_of(np.arange(0, column.levels, max(column.levels // 9, 1))))
    scaled = column.scaled(values)
    np.testing.assert_allclose(np.diff(scaled), scaled[1] - scaled[0], rtol=1e-6)
    np.testing.assert_allclose(column.unscaled(scaled), values)
    step = 1e-6 * (scaled[-1] - scaled[0])
    slopes = (column.unscaled(scaled + step) - column.unscaled(scaled - step)) / (2 * step)
    np.testing.assert_allclose(column.unscaled_slopes(scaled), slopes, rtol=1e-5)


@pytest.mark.parametrize(
    ("labels", "in_order"),
    [
        (("Husband", "Own-child", "Wife"), False),
        (("10th", "11th", "Bachelors"), False),
        (("low", "medium", "high"), True),
        (("0-17", "18-64", "65+"), True),
        ((1, 2, 3), True),
        (("a", "b", "c", "d"), True),
        (("A", "B", "C"), True),
        (("F", "M"), False),
    ],
)
def test_an_alphabetical_list_says_nothing_about_the_order_of_labels(labels: tuple[str, ...], in_order: bool) -> None:
    assert Category("x", labels).in_order is in_order
    for declared in (True, False):
        assert Category("x", labels, declared).in_order is declared


def test_an_order_may_be_declared() -> None:
    facts = {"columns": {"x": {"kind": "category", "values": ["high", "low"], "ordered": False}}}
    column = Schema.from_dict(facts).column("x")
    assert isinstance(column, Category)
    assert not column.in_order
    assert column.to_dict()["ordered"] is False
    assert "ordered" not in Category("x", ("high", "low")).to_dict()
    with pytest.raises(SchemaError, match=r"x\.ordered must be true or false, got 'yes' instead"):
        Schema.from_dict({"columns": {"x": facts["columns"]["x"] | {"ordered": "yes"}}})
