from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch.errors import SchemaError
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Category, Integer, Number
from dpsketch.schema.schema import Schema


@given(st.integers(2, 65535), st.data())
def test_levels_survive_the_way_to_codes_and_back(levels: int, data: st.DataObject) -> None:
    column = Integer("x", 0, levels - 1)
    level = np.array([data.draw(st.integers(0, levels - 1)), 0, levels - 1, -1])
    codes = column.codes_of(level)
    assert codes[1] == LOWEST
    assert codes[2] == HIGHEST
    assert codes[3] == MISSING
    assert column.levels_of(codes).tolist() == level.tolist()


def test_values_in_the_users_units() -> None:
    ends = np.array([LOWEST, HIGHEST, MISSING], np.int16)
    assert Number("x", 3.0, 8.0).values_of(ends)[:2].tolist() == [3.0, 8.0]
    assert np.isnan(Number("x", 3.0, 8.0).values_of(ends)[2])
    np.testing.assert_allclose(Number("x", 1.0, 1e6, "log").values_of(ends)[:2], [1.0, 1e6])
    np.testing.assert_allclose(Number("x", -5.0, 1e6, "asinh").values_of(ends)[:2], [-5.0, 1e6])
    assert Integer("x", -3, 200_000).values_of(ends)[:2].tolist() == [-3, 200_000]


def test_a_declared_other_is_the_bucket() -> None:
    assert Category("x", ("a", "other", "b")).labels == ("a", "other", "b")
    assert Category("x", ("a", "b")).labels == ("a", "b", "other")


def test_dict_round_trip(schema: Schema) -> None:
    assert Schema.from_dict(schema.to_dict()) == schema


def test_a_unit_column_is_not_data() -> None:
    facts = {
        "privacy": {"unit": "id", "max_rows_per_unit": 2},
        "columns": {"id": {"kind": "integer", "lower": 0, "upper": 9}},
    }
    with pytest.raises(SchemaError, match="must not be declared as data"):
        Schema.from_dict(facts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": {"a": {"kind": []}}}, r"columns.a.kind must be one of .*, got \[\] instead"),
        (
            {"columns": {"a\x1b[2J": {"kind": "boolean"}}},
            r"columns.a\\u001b\[2J: 'a\\u001b\[2J' has a character that cannot",
        ),
        (
            {"privacy": {"unit": "\r", "max_rows_per_unit": 1}},
            r"privacy.unit: '\\u000d' has a character that cannot be seen",
        ),
        ({"csv": {"columns": ["a\n"]}}, r"csv.columns: 'a\\u000a' has a character that cannot be seen"),
        ({"\x07": 1}, r"^\\u0007 is not a known key"),
        ({"privacy": {"unit_kind": "integer"}}, "privacy.unit_kind is set but privacy.unit is 'row'"),
        ({"privacy": {"unit": "id", "max_rows_per_unit": 1, "unit_kind": []}}, 'unit_kind must be "text" or "integer"'),
    ],
)
def test_wrong_facts_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_dict({"columns": {"a": {"kind": "boolean"}}} | change)


def test_deeply_nested_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("a = " + "[" * 50_000 + "]" * 50_000)
    with pytest.raises(SchemaError, match="nested too deeply"):
        Schema.load(tmp_path / "s.toml")
