"""Every Arrow layout of a column gives the codes of the plain one: whole, sliced and with rows filtered out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.fuzz.layouts import LISTS, SCALARS, Column, Rows, without_row

import dpsketch as dps
from dpsketch.encoding.arrow import encode_column, encode_sets, unit_ids
from dpsketch.encoding.records import Records
from dpsketch.engines.units import UnitSelection
from dpsketch.errors import SourceError
from dpsketch.schema.columns import Boolean, Category, Datetime, IdSet, Integer, Number, as_moment

IDS = [[1, 2], [50, 51, 52], [3], None, [4, 99, 4], [5, 6], [7], None, [8, 9]]
CELLS = [b"7", b"a", None, b"7.5", b" true", b"", b"2021-01-01", b"\xc3\xa9", b"other", b"7"]
SETS = IdSet("x", universe=60)
COLUMNS = [
    Integer("x", 0, 10),
    Number("x", 0, 10, missing=5.0),
    Category("x", ("a", "é", 7)),
    Boolean("x"),
    Datetime("x", as_moment("2020-01-01"), as_moment("2022-01-01")),
]


def cuts(rows: Rows, layout: Callable[[Rows], Column]) -> Iterator[tuple[list[Any], Column]]:
    """Rows with their column: whole, sliced, and without one of the rows."""
    rows, column = list(rows), layout(rows)
    yield rows, column
    yield rows[2:7], column.slice(2, 5)
    yield [], column.slice(3, 0)
    for row in (0, 1, len(rows) - 1):
        yield rows[:row] + rows[row + 1 :], without_row(column, row)
        yield rows[1:row] + rows[row + 1 :], without_row(column, row).slice(min(row, 1))


@pytest.mark.parametrize("name", LISTS)
def test_sets_do_not_depend_on_the_layout(name: str) -> None:
    for rows, column in cuts(IDS, LISTS[name]):
        found, plain = (encode_sets(SETS, array) for array in (column, pa.array(rows, pa.list_(pa.int64()))))
        assert found.offsets.tolist() == plain.offsets.tolist()
        assert found.ids.tolist() == plain.ids.tolist()


@pytest.mark.parametrize("name", SCALARS)
def test_codes_do_not_depend_on_the_layout(name: str) -> None:
    for rows, stored in cuts(CELLS, SCALARS[name]):
        for column in COLUMNS:
            plain = encode_column(column, pa.array(rows, pa.large_binary()))
            assert encode_column(column, stored).tolist() == plain.tolist(), column.kind


@pytest.mark.parametrize("name", SCALARS)
def test_units_do_not_depend_on_the_layout(name: str) -> None:
    privacy = {"rows": 10, "unit": "id", "max_rows_per_unit": 1}
    schema = dps.Schema.from_dict({"privacy": privacy, "columns": {"x": {"kind": "boolean"}}})
    recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    for rows, stored in cuts(CELLS, SCALARS[name]):
        people = {cell.strip() for cell in rows if cell is not None and cell.strip()}
        table = pa.table({"id": stored, "x": pa.nulls(len(rows))})
        assert dps.accumulate(table, schema, recipe).parts[0].sums.tolist() == [len(people)]


@pytest.mark.parametrize("name", LISTS)
def test_a_row_less_stays_within_the_sensitivity(name: str) -> None:
    schema = dps.Schema.from_dict({"privacy": {"rows": 9}, "columns": {"x": SETS.to_dict()}})
    recipe = dps.Recipe([dps.Part(dps.Race(("x",), 50, 1000, 0, dps.MinHash()), 1.0)])
    (race,) = recipe.bind(schema).maps

    def sums(column: Column) -> np.ndarray:
        return dps.accumulate(pa.table({"x": column}), schema, recipe).parts[0].sums.astype(np.int64)

    column = LISTS[name](IDS)
    for row in range(len(IDS)):
        assert np.abs(sums(column) - sums(without_row(column, row))).sum() <= race.sensitivity(schema.relation).l1


def damaged() -> dict[str, pa.Array]:
    numbers, items = pa.array([41, 42]), pa.array([413, 414, 415])
    offsets = pa.py_buffer(np.array([0, 4_000_000, 3], np.int64))
    short = pa.array([1, 2], pa.int32())
    ends = np.array([1, 2, 3], np.int32)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends), items)
    ends[0] = 4137  # in the array's own memory: Arrow refuses to build such an array
    return {
        "index": pa.DictionaryArray.from_arrays(pa.array([0, 4137]), numbers, safe=False),
        "unsigned index": pa.DictionaryArray.from_arrays(pa.array([2**64 - 1], pa.uint64()), numbers, safe=False),
        "negative index": pa.DictionaryArray.from_arrays(pa.array([-1]), numbers, safe=False),
        "run ends": runs,
        "text": pa.Array.from_buffers(pa.large_string(), 2, [None, offsets, pa.py_buffer(b"4137")]),
        "list": pa.Array.from_buffers(pa.large_list(pa.int64()), 2, [None, offsets], children=[items]),
        "view": pa.ListViewArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array([4137, 1], pa.int32()), items),
        "negative view": pa.ListViewArray.from_arrays(pa.array([-5, 2], pa.int32()), short, items),
    }


@pytest.mark.parametrize("name", list(damaged()))
def test_damaged_buffers_are_refused_without_their_content(name: str) -> None:
    array = damaged()[name]
    with pytest.raises(SourceError) as refused:
        encode_sets(SETS, array) if "list" in str(array.type) else encode_column(COLUMNS[0], array)
    assert str(refused.value).startswith("a column's Arrow buffers contradict each other")
    assert "41" not in str(refused.value)


def test_long_labels_are_read_once_for_any_number_of_rows() -> None:
    """Decoding these rows would take a terabyte."""
    label = b"x" * (1 << 20)
    stored = pa.DictionaryArray.from_arrays(pa.array(np.arange(1 << 20) % 2), pa.array([label, b"a"]))
    codes = encode_column(COLUMNS[2], stored)
    assert codes[:4].tolist() == encode_column(COLUMNS[2], pa.array(["other", "a"] * 2)).tolist()
    selection = UnitSelection(1)
    selection.add(unit_ids(stored, "text"), Records(codes[None, :]))
    assert sum(len(records) for _, records in selection.kept()) == 2


def test_lists_of_lists_are_refused() -> None:
    with pytest.raises(SourceError, match="is a set of ids, but the table holds list"):
        encode_sets(SETS, pa.array([[[1]], [[2]]]))
