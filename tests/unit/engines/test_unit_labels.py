from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.encoding.arrow import encode_column
from dpsketch.engines.unit_labels import LONGEST_LABEL, as_label, label_counts
from dpsketch.errors import SourceError
from dpsketch.schema.columns import Category

COLUMNS = {"x": {"kind": "integer", "lower": 0, "upper": 9}}
ROWS = dps.Schema.from_dict({"columns": COLUMNS})
UNITS = dps.Schema.from_dict({"privacy": {"unit": "id", "max_rows_per_unit": 2}, "columns": COLUMNS})
visits = st.lists(st.tuples(st.sampled_from(["a", "b", "7", " 7", None]), st.sampled_from("uvwxyz")), max_size=30)


def counted(source: Any, schema: dps.Schema = ROWS) -> Counter[str]:
    return label_counts(source, schema, "origin", lambda share: None)


def of_units(rows: list[tuple[str | None, str]], size: int = 1000) -> Counter[str]:
    table = pa.table({"id": pa.array([row[0] for row in rows], pa.string()), "origin": [row[1] for row in rows]})
    return counted((batch for batch in table.to_batches(size)), UNITS)


def test_labels_are_the_texts_that_a_category_compares() -> None:
    table = pa.table({"origin": [" JFK", "JFK\t", "jfk", "7", None, "", "  ", "other"]})
    assert counted(table) == {"JFK": 2, "jfk": 1, "7": 1, "other": 1}


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([7.0, 0.5, None, float("nan"), 7.0]),
        pa.array([True, False, None]),
        pa.array([7, 8, None]),
        pa.array(["Zürich", " Zürich ", "\x07", "a\nb", "\u00a0x", "x" * 200, None]),
        pa.array([b"\xff", b"ok"], pa.binary()),
        pa.array(["a", "b", "a", None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", " a", "b"])),
        pa.nulls(3),
    ],
    ids=["floats", "booleans", "integers", "texts", "bytes", "dictionary", "equal after stripping", "nothing"],
)
def test_the_encoder_finds_every_label_as_often(cells: pa.Array) -> None:
    counts = counted(pa.table({"origin": cells}))
    column = Category("origin", (*sorted(counts), "sentinel"))
    levels = column.levels_of(encode_column(column, cells))
    for place, label in enumerate(sorted(counts)):
        assert (levels == place).sum() == counts[label]
    assert sum(counts.values()) <= np.count_nonzero(levels >= 0)  # what cannot be a label is "other"


def test_what_a_schema_could_not_declare_is_no_label() -> None:
    assert as_label(b"a" * LONGEST_LABEL) == "a" * LONGEST_LABEL
    for cell in (b"a" * (LONGEST_LABEL + 1), b"", b"\xff", "\u00a0x".encode(), b"a\nb", "a\u202eb".encode()):
        assert as_label(cell) is None


@given(visits, st.randoms())
def test_units_count_once_for_at_most_c_labels_in_any_order(rows: list[Any], random: Any) -> None:
    counts = of_units(rows)
    by_unit: dict[str, set[str]] = {}
    for unit, label in rows:
        if unit is not None:
            by_unit.setdefault(unit.strip(), set()).add(label)
    assert sum(counts.values()) == sum(min(2, len(labels)) for labels in by_unit.values())
    assert all(count <= sum(label in labels for labels in by_unit.values()) for label, count in counts.items())
    shuffled = rows * 2
    random.shuffle(shuffled)
    assert of_units(shuffled, 3) == counts


@given(visits, st.lists(st.sampled_from("uvwxyz!?"), max_size=6))
def test_a_unit_more_changes_the_counts_by_its_own_labels(rows: list[Any], extra: list[str]) -> None:
    new: list[tuple[str | None, str]] = [("new", label) for label in extra]
    alone = of_units(new)
    assert of_units(rows + new) == of_units(rows) + alone
    assert sum(alone.values()) == min(2, len(set(extra)))  # attains the sensitivity


def test_which_labels_a_unit_counts_for_is_not_the_same_for_all() -> None:
    counts = of_units([(str(unit), label) for unit in range(300) for label in "uvwxyz"])
    assert sum(counts.values()) == 600
    assert all(60 < counts[label] < 140 for label in "uvwxyz")  # 100 expected, six standard deviations are 49


def test_lists_have_no_labels() -> None:
    with pytest.raises(SourceError, match="which has no labels\nHint: name a column of text or numbers"):
        counted(pa.table({"origin": [["secret"]]}))


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(SourceError, match="origin"):
        counted(pa.table({"x": [1]}))
