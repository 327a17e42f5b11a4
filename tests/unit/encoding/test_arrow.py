from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch.encoding.arrow import encode_column, encode_sets, texts
from dpsketch.encoding.levels import levels_at, thresholds
from dpsketch.errors import SourceError
from dpsketch.schema.columns import MISSING, Boolean, Category, Column, Datetime, IdSet, Integer, Number

NUMBER = Number("x", 0.0, 10.0)
MOMENTS = Datetime("x", datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC))
SCALARS: list[Column] = [
    NUMBER,
    Number("x", 1e-3, 1e6, "log"),
    Number("x", -10.0, 1e6, "asinh"),
    Integer("x", 0, 9),
    Integer("x", 0, 10**9),
    Category("x", ("a", 7)),
    Boolean("x"),
    MOMENTS,
]


def values(column: Column, array: pa.Array) -> list[float | None]:
    return [None if math.isnan(v) else v for v in column.values_of(encode_column(column, array)).tolist()]


def test_numbers_are_clamped_and_unreadable_ones_missing() -> None:
    cells = ["0", " 10 ", "-3", "99", "1e999", "nan", "inf", "", None, "five", "5,5", "0x10", "1_0", "٣", "+5"]
    expected = [0, 10, 0, 10, None, None, None, None, None, None, None, None, None, None, 5]
    assert values(Integer("x", 0, 10), pa.array(cells)) == expected
    assert values(Integer("x", 0, 10), pa.array([c and c.encode() for c in cells], pa.binary())) == expected


def test_every_stored_type_gives_the_same_codes() -> None:
    integer = Integer("x", 0, 10)
    types = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(5, 2), pa.string(), pa.large_string()]
    for kind in types:
        cells = [None if v is None else str(v) if pa.types.is_string(kind) or pa.types.is_large_string(kind)
                 else Decimal(v) if pa.types.is_decimal(kind) else np.float16(v) if kind == pa.float16() else v
                 for v in [1, 10, None]]  # fmt: skip
        assert values(integer, pa.array(cells, kind)) == [1, 10, None], kind
    assert values(integer, pa.array([1, 10, None]).dictionary_encode()) == [1, 10, None]
    assert values(integer, pa.array([True, False, None])) == [1, 0, None]


def test_huge_integers_clamp() -> None:
    assert values(Integer("x", 0, 10), pa.array([2**64 - 1], pa.uint64())) == [10]
    assert values(NUMBER, pa.array([1.7e308, -1.7e308])) == [10, 0]


def test_categories_booleans_and_dates() -> None:
    labels = values(Category("x", ("a", 7)), pa.array(["a", " a", "7", "7.0", "b", "", None]))
    assert labels == [0, 0, 1, 2, 2, None, None]
    assert values(Category("x", ("a", 7)), pa.array([7.0, 7.5, None])) == [1, 2, None]
    flags = values(Boolean("x"), pa.array(["TRUE", "f", "Yes", "0", "maybe", None]))
    assert flags == [1, 0, 1, 0, None, None]
    assert values(Boolean("x"), pa.array([1, 0, 2, None])) == [1, 0, None, None]
    middle = datetime(2020, 7, 2, tzinfo=UTC)
    stamps = [
        pa.array(["2020-07-02", "2020-07-02T00:00:00Z", "2020-07-02T02:00:00+02:00", "2020-02-31", "soon", None]),
        pa.array([middle] * 3 + [None] * 3, pa.timestamp("ns", tz="UTC")),
        pa.array([middle.date()] * 3 + [None] * 3, pa.date32()),
        pa.array([middle.date()] * 3 + [None] * 3, pa.date64()),
    ]
    for array in stamps:
        found = values(MOMENTS, array)
        assert found[3:] == [None] * 3
        assert all(v is not None and abs(v - middle.timestamp() * 1e6) < 366 * 86400e6 / 65534 for v in found[:3])


def test_text_of_other_types_is_exact() -> None:
    """Unit ids must not collide: a decimal is not a float."""
    big = [Decimal(2**60), Decimal(2**60 + 1), None]
    assert texts(pa.array(big, pa.decimal128(20, 0))).to_pylist() == [str(2**60), str(2**60 + 1), None]
    assert texts(pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(5, 2))).to_pylist() == ["1.5", "2"]
    assert texts(pa.array([7.0, 0.5, float("nan")])).to_pylist() == ["7", "0.5", None]
    assert texts(pa.array([b" ab"], pa.large_binary())).to_pylist() == ["ab"]
    assert len(texts(pa.array([b"\xff\xfe"], pa.large_binary()))) == 1
    assert texts(pa.array([5], pa.date32())).to_pylist() == ["5"]
    with pytest.raises(SourceError, match="of type list"):
        texts(pa.array([[1]]))


def test_dates_within_a_day_do_not_raise() -> None:
    assert values(MOMENTS, pa.Array.from_buffers(pa.date64(), 1, pa.array([86_400_123]).buffers())) == [
        MOMENTS.bounds[0]
    ]


def test_extreme_bounds() -> None:
    wide = Number("x", -1e290, 1e290, "asinh")
    assert np.all(np.diff(thresholds("asinh", wide.lower, wide.upper)) > 0)
    tiny = Number("x", 1e-290, 1e290, "log")
    ends = tiny.values_of(encode_column(tiny, pa.array([1e-290, 1.0, 1e290])))
    np.testing.assert_allclose(ends, [1e-290, 1.0, 1e290], rtol=0.03)


def test_thresholds_do_not_depend_on_threads() -> None:
    """mpmath's global precision is shared by threads; ours is not."""
    import sys
    from concurrent.futures import ThreadPoolExecutor

    expected = thresholds.__wrapped__("log", 0.5, 77.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: thresholds.__wrapped__("log", 0.5, 77.0), range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert all((bounds == expected).all() for bounds in found)


def test_declared_replacement_of_missing_numbers() -> None:
    assert values(Integer("x", 0, 10, missing=0), pa.array([None, "x", "3"])) == [0, 0, 3]
    assert values(Number("x", 0, 10, missing=10), pa.array([None, 0.0])) == [10, 0]


@pytest.mark.parametrize(
    ("transform", "lower", "upper"),
    [
        ("log", 0.37, 91234.5),
        ("asinh", 0.37, 91234.5),
        ("asinh", 0.0, 1e-70),
        ("log", 5e-324, 1e-300),
        ("asinh", -1e80, 5.0),
    ],
)
def test_thresholds_are_the_rounded_boundaries(transform: str, lower: float, upper: float) -> None:
    import mpmath

    bounds = thresholds(transform, lower, upper)
    assert np.all(np.diff(bounds) >= 0)
    there, back = (mpmath.log, mpmath.exp) if transform == "log" else (mpmath.asinh, mpmath.sinh)
    with mpmath.workprec(3000):
        low, high = there(mpmath.mpf(lower)), there(mpmath.mpf(upper))
        for level in [1, 77, 30_000, 65_532]:
            exact = back(low + (high - low) * (level + mpmath.mpf(1) / 2) / 65534)
            assert bounds[level] == float(exact)
    assert bounds[-1] == upper


@pytest.mark.parametrize(
    "column",
    [Number("x", 0, 400_000), Number("x", 1, 1e6, "log"), Number("x", -5, 1e6, "asinh"), Integer("x", 0, 10**6)],
)
def test_numbers_between_the_bounds_are_at_neither(column: Number | Integer) -> None:
    """A release counts the records at a bound: those at 0 dollars, without those that earn a few."""
    near = (1e-9, 1.0) if isinstance(column, Number) else (1, 1)
    low, high = float(column.lower), float(column.upper)
    levels = levels_at(column, np.array([low - 1, low, low + near[0], low + near[1], high - near[0], high, high + 1]))
    assert list(levels[[0, 1, 5, 6]]) == [0, 0, column.levels - 1, column.levels - 1]
    assert (levels[2:5] >= 1).all()
    assert (levels[2:5] <= column.levels - 2).all()


def test_integers_with_a_level_each_are_rounded_as_they_were() -> None:
    assert list(levels_at(Integer("x", 0, 10), np.array([0.3, 0.7, 9.6]))) == [0, 1, 10]


def test_transformed_values_come_back() -> None:
    column = Number("x", 1e-3, 1e6, "log")
    cells = np.geomspace(1e-3, 1e6, 500)
    np.testing.assert_allclose(column.values_of(encode_column(column, pa.array(cells))), cells, rtol=3e-4)


cell_texts = st.one_of(st.none(), st.text(max_size=12), st.floats().map(str), st.integers().map(str), st.sampled_from(
    ["a", "7", "true", "2020-03-01", "1e400", "-0", ".5", "5.", "\x00", "😀", "NaN", "Infinity"]))  # fmt: skip


@given(st.lists(cell_texts, min_size=1, max_size=8))
def test_no_text_raises_and_none_depends_on_its_neighbours(cells: list[str | None]) -> None:
    for column in SCALARS:
        together = encode_column(column, pa.array(cells, pa.string()))
        alone = [encode_column(column, pa.array([cell], pa.string()))[0] for cell in cells]
        assert together.tolist() == alone


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=5))
def test_no_bytes_raise(cells: list[bytes]) -> None:
    for column in SCALARS:
        encode_column(column, pa.array(cells, pa.binary()))
        assert len(texts(pa.array(cells, pa.large_binary()))) == len(cells)


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), min_size=1, max_size=8))
def test_no_float_raises(cells: list[float | None]) -> None:
    for column in SCALARS:
        together = encode_column(column, pa.array(cells, pa.float64()))
        assert together.tolist() == [encode_column(column, pa.array([c], pa.float64()))[0] for c in cells]


def test_other_types_are_missing_and_nested_ones_refused() -> None:
    for array in [pa.nulls(2), pa.array([1, 2], pa.duration("s")), pa.array([1, 2], pa.time32("s"))]:
        for column in (NUMBER, MOMENTS, Boolean("x")):
            assert encode_column(column, array).tolist() == [MISSING, MISSING]
    with pytest.raises(SourceError, match="declared as number, but the table holds list"):
        encode_column(NUMBER, pa.array([[1]]))


def test_sets_go_to_the_overflow_id() -> None:
    sets = encode_sets(IdSet("x", universe=10), pa.array([[3, 1, 3], [], None, [99, -1, 2, None]]))
    assert sets.offsets.tolist() == [0, 2, 2, 2, 4]
    assert sets.ids.tolist() == [1, 3, 2, 10]
