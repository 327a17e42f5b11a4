from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.encoding.arrow import encode_sets, unit_ids
from dpsketch.encoding.records import Records
from dpsketch.engines.units import UnitSelection
from dpsketch.errors import MergeError
from dpsketch.schema.columns import IdSet

FACTS = {
    "privacy": {"rows": 100, "unit": "id", "max_rows_per_unit": 2},
    "columns": {"x": {"kind": "integer", "lower": 0, "upper": 9}},
}
SCHEMA = dps.Schema.from_dict(FACTS)
RECIPE = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(bins=16), 0.5)])
visits = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "7", None]), st.integers(0, 9)), max_size=25)


def sums(rows: list[tuple[str | None, int]]) -> list[list[int]]:
    table = pa.table(
        {"id": pa.array([r[0] for r in rows], pa.string()), "x": pa.array([r[1] for r in rows], pa.int64())}
    )
    return [part.sums.tolist() for part in dps.accumulate(table, SCHEMA, RECIPE, dps.Local(1, 4)).parts]


@given(visits, st.randoms())
def test_at_most_c_rows_of_each_unit_in_any_order(rows: list[tuple[str | None, int]], random: object) -> None:
    per_unit: dict[str, int] = {}
    for unit, _ in rows:
        if unit is not None:
            per_unit[unit] = per_unit.get(unit, 0) + 1
    expected = sums(rows)
    assert expected[0] == [sum(min(2, count) for count in per_unit.values())]
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sums(shuffled) == expected


@given(visits, st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_a_unit_more_changes_nothing_of_the_others(rows: list[tuple[str | None, int]], extra: list[int]) -> None:
    """The difference is exactly the new unit's own sketch, so it stays within the sensitivity."""
    before, after = sums(rows), sums(rows + [("new", x) for x in extra])
    alone = sums([("new", x) for x in extra])
    assert (np.array(after[1]) - before[1]).tolist() == alone[1]
    assert after[0][0] - before[0][0] == min(2, len(extra))


def test_ids_are_compared_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if every unit has the same hash key, units stay apart."""
    monkeypatch.setattr("dpsketch.engines.units._keys", lambda ids: np.ones(len(ids), np.uint64))
    assert sums([(unit, 3) for unit in "abc" for _ in range(5)])[0] == [6]


def test_equal_hashes_are_ordered_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsketch.engines.units._row_hashes", lambda keys, records: np.zeros(len(records), np.uint64))
    rows: list[tuple[str | None, int]] = [("a", x) for x in (5, 3, 9, 1)]
    assert sums(rows) == sums(rows[::-1])


def test_equal_hashes_and_codes_are_ordered_by_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsketch.engines.units._row_hashes", lambda keys, records: np.zeros(len(records), np.uint64))
    lists = [[3], [], [1, 2], [9], [1]]
    kept = []
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        sets = encode_sets(IdSet("items", universe=10), pa.array([lists[place] for place in order]))
        selection = UnitSelection(2)
        selection.add(unit_ids(pa.array(["a"] * 5), "text"), Records(np.zeros((1, 5), np.int16), {"items": sets}))
        ((_, records),) = selection.kept()
        kept.append((records.sets["items"].offsets.tolist(), records.sets["items"].ids.tolist()))
    assert kept[0] == kept[1]


def test_long_inputs_are_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsketch.engines.units._SLACK", 10)
    selection = UnitSelection(2)
    for start in range(0, 400, 20):
        codes = np.arange(start, start + 20, dtype=np.int16)[None, :]
        selection.add(unit_ids(pa.array([f"u{i % 5}" for i in range(20)]), "text"), Records(codes))
        assert sum(bucket._waiting for bucket in selection._buckets) <= 5 * 11
    assert sum(len(records) for _, records in selection.kept()) == 10


def test_dropped_units_are_gone_wherever_their_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsketch.engines.units._SLACK", 3)
    selection = UnitSelection(1)
    names = [f"u{i}" for i in range(30)]
    for start in range(0, 30, 5):
        ids = unit_ids(pa.array(names[start : start + 5]), "text")
        selection.drop(ids.take(np.array([0, 1, 2])))
        selection.add(ids, Records(np.zeros((1, 5), np.int16)))
        selection.drop(ids.take(np.array([0, 3])))
    assert sum(len(records) for _, records in selection.kept()) == 6


def counted(kind: str, *ids: pa.Array) -> int:
    """How many people there are in several tables with these ids."""
    schema = dps.Schema.from_dict(
        {**FACTS, "privacy": {"rows": 9, "unit": "id", "max_rows_per_unit": 1, "unit_kind": kind}}
    )
    tables = [pa.table({"id": column, "x": pa.nulls(len(column))}) for column in ids]
    return int(dps.accumulate(iter(tables), schema, RECIPE).parts[0].sums[0])


def test_an_integer_id_is_one_person_however_it_is_written() -> None:
    sevens = pa.array(["7", "7.0", " +7", "007", "7e0", "70E-1", ".7e1", "7."])
    numbers = [pa.array([7, 7], pa.uint8()), pa.array([7.0], pa.float32()), pa.array([Decimal("7.0")])]
    assert counted("integer", sevens, *numbers, sevens.dictionary_encode()) == 1
    assert counted("text", pa.array(["7"]), pa.array(["7.0"])) == 2


def test_integer_ids_are_exact_and_others_are_nobody() -> None:
    big = 2**64
    ids = [str(big), str(big + 1), f"{big}.0", f"-{big}", "0", "-0", "-0.0", str(2**53), str(2**53 + 1)]
    assert counted("integer", pa.array(ids)) == 6
    nobody = ["7.5", "a", "", "1e999999999", "-", "7 7", "0x7", "nan", None, "7e-1"]
    assert counted("integer", pa.array(nobody)) == 0


def test_the_choice_is_spread_over_a_units_rows() -> None:
    """The kept value is not always the smallest: over many units each of ten values is kept about equally often."""
    rows: list[tuple[str | None, int]] = [(f"unit{u}", x) for u in range(600) for x in range(10)]
    kept = np.array(sums(rows)[1][:10])
    assert kept.sum() == 1200
    assert kept.min() > 70
    assert kept.max() < 175


def test_integer_and_text_ids_are_the_same_unit() -> None:
    number = pa.table({"id": pa.array([7, 7, 7]), "x": pa.array([1, 2, 3])})
    text = pa.table({"id": pa.array(["7", "7", " 7"]), "x": pa.array([1, 2, 3])})
    one, two = (dps.accumulate(t, SCHEMA, RECIPE) for t in (number, text))
    assert one.parts[1].sums.tolist() == two.parts[1].sums.tolist()


def test_large_decimal_ids_stay_apart() -> None:
    ids = pa.array([Decimal(2**60 + i) for i in range(20)], pa.decimal128(20, 0))
    raw = dps.accumulate(pa.table({"id": ids, "x": pa.array([1] * 20)}), SCHEMA, RECIPE)
    assert raw.parts[0].sums.tolist() == [20]


def test_objects_name_the_same_unit_as_arrow_cells() -> None:
    import pandas

    cells = [7, 7.0, "7", " 7", b"7", Decimal("7.0"), np.int8(7), np.float32(7)]
    frames = [pandas.Series(cells, dtype=object), pandas.Categorical([7, 7.0, "7", "z"][:3])]
    for ids in frames:
        frame = pandas.DataFrame({"id": ids, "x": range(len(ids))})
        assert dps.accumulate(frame, SCHEMA, RECIPE).parts[0].sums.tolist() == [2]

    class Frame(pandas.DataFrame):
        pass

    mixed = Frame({"id": ["a", "b"], "x": pandas.Series([1, b"2"], dtype=object)})
    assert dps.accumulate(mixed, SCHEMA, RECIPE).parts[0].sums.tolist() == [2]


def test_units_without_scalar_columns() -> None:
    facts = {"privacy": FACTS["privacy"], "columns": {"items": {"kind": "set", "universe": 5}}}
    table = pa.table({"id": ["a", "a", "a", "b"], "items": [[1], [2], [3], [4]]})
    raw = dps.accumulate(table, dps.Schema.from_dict(facts), dps.Recipe([dps.Part(dps.Count(), 1.0)]))
    assert raw.parts[0].sums.tolist() == [3]


def test_merging_units_needs_a_declaration() -> None:
    table = pa.table({"id": ["a", "b"], "x": [1, 2]})
    one, two = dps.accumulate(table, SCHEMA, RECIPE), dps.accumulate(table, SCHEMA, RECIPE)
    with pytest.raises(MergeError, match="units of column 'id' may have rows in both"):
        one.merge(two)
    assert one.merge(two, disjoint_units=True).parts[0].sums.tolist() == [4]
    first, second = (dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a") for raw in (one, two))
    with pytest.raises(MergeError, match="units of column 'id' may have rows in both"):
        first.merge(second)
    assert first.merge(second, disjoint_units=True).private


def test_a_unit_in_two_parts_of_a_partition_is_in_neither() -> None:
    """So that parts of a column that is declared constant are disjoint, whatever the table says."""
    facts = {
        "privacy": {"rows": 10, "unit": "id", "max_rows_per_unit": 2, "constant_per_unit": ["side"]},
        "columns": {"side": {"kind": "category", "values": ["left", "right"]}},
    }
    table = pa.table(
        {
            "id": ["a", "a", "b", "c", "c", "d", None],
            "side": ["left", "right", "left", "left", None, "right", "left"],
        }
    )
    parts = [dps.Part(dps.Count(), 1.0)]
    counts = {}
    for constant in (True, False):
        privacy = (
            dict(facts["privacy"]) if constant else {k: v for k, v in facts["privacy"].items() if "const" not in k}
        )
        schema = dps.Schema.from_dict(facts | {"privacy": privacy})
        for rows in (1, 100):
            for value in ("left", "right", "other"):
                recipe = dps.Recipe(parts, only=dps.Only("side", value))
                raw = dps.accumulate(table, schema, recipe, dps.Local(batch_rows=rows))
                counts[constant, value, rows] = int(raw.parts[0].sums[0])
    for rows in (1, 100):
        assert [counts[True, value, rows] for value in ("left", "right", "other")] == [2, 1, 0]
        assert [counts[False, value, rows] for value in ("left", "right", "other")] == [3, 2, 0]
