"""Questions to hashed counters follow the rules of the table's own cells."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 500},
        "columns": {
            "size": {"kind": "number", "lower": 0, "upper": 10, "missing": 3.0},
            "grade": {"kind": "category", "values": [7, 8]},
            "member": {"kind": "boolean"},
            "joined": {"kind": "datetime", "lower": "2020-01-01", "upper": "2024-01-01"},
            "tags": {"kind": "set", "universe": 20},
        },
    }
)
CELLS: dict[str, object] = {"size": 4.0, "grade": 7, "member": True, "joined": dt.datetime(2022, 1, 1), "tags": [1, 2]}


def view(map_: dps.FeatureMap, epsilon: float = float("inf"), **cells: object) -> dps.View:
    """A release of 500 equal records."""
    columns = {name: [cell] * 500 for name, cell in (CELLS | cells).items()}
    raw = dps.accumulate(pd.DataFrame(columns), SCHEMA, dps.Recipe([dps.Part(map_, 1.0)]))
    private = epsilon < float("inf")
    return dps.View(dps.release(raw, dps.Budget(epsilon), dps.Ledger("sqlite://") if private else None, "d"))


def hashed(column: str) -> dps.Race:
    return dps.Race([column], 300, 50, hash=dps.Euclidean(0.001) if column != "tags" else dps.MinHash())


@pytest.mark.parametrize(
    ("column", "cell", "asked"),
    [
        ("size", None, [None, np.nan, np.inf, 3.0, "3", "nonsense"]),
        ("size", 25.0, [10, 10.0, 99, "1e3", np.float32(11)]),
        ("grade", 7.0, [7, 7.0, "7", np.int8(7)]),
        ("grade", "nine", ["other", 9, "x"]),
        ("grade", None, [None, np.nan]),
        ("member", "yes", [True, 1, 1.0, "yes", "True", np.bool_(True)]),
        ("member", None, [None, "maybe"]),
        ("joined", None, [None, "hello", pd.NaT]),
        (
            "joined",
            "2022-01-01",
            ["2022-01-01", dt.datetime(2022, 1, 1), np.datetime64("2022-01-01"), pd.Timestamp("2022")],
        ),
        ("tags", [1, 2, 2, 99], [[1, 2, 20], [2, 1, 777], np.array([1, 2, -1]), ["1", "2", "x"], {1, 2, 1.5}]),
        ("tags", None, [[], None, np.array([])]),
    ],
)
def test_equal_cells_meet(column: str, cell: object, asked: list[object]) -> None:
    asking = view(hashed(column), **{column: cell})
    for one in asked:
        for points in ({column: [one]}, pd.DataFrame({column: pd.Series([one], dtype=object)})):
            assert asking.kernel_sum(points).value[0] == pytest.approx(500, rel=1e-6), (one, type(points))


def test_different_cells_do_not_meet() -> None:
    for column, cell in (("size", 9), ("grade", 8), ("member", False), ("joined", "2023-05-05"), ("tags", [5, 6])):
        assert abs(view(hashed(column)).kernel_sum({column: [cell]}).value[0]) < 60


def test_a_matrix_and_a_mapping_agree(rng: np.random.Generator) -> None:
    asking = view(dps.Race(["size", "grade"], 200, 50, hash=dps.Euclidean(0.5)))
    numbers = rng.uniform(-2, 12, 30)
    numbers[:2] = np.nan, np.inf
    matrix = asking.kernel_sum(np.stack([numbers, np.zeros(30)], axis=1)).value
    assert np.allclose(matrix, asking.kernel_sum({"size": numbers, "grade": [7] * 30}).value)


def test_the_standard_error_never_falls_below_the_noise() -> None:
    """A single row has no spread, two may agree by chance; the noise is known all the same."""
    for rows in (1, 2, 50):
        asking = view(dps.Race(["size"], rows, 50), epsilon=1.0)
        answer = asking.kernel_sum([[4.0]])
        least = np.sqrt(asking.released.parts[0].noise_variance / rows)
        assert answer.stderr[0] >= 0.99 * least


def test_groups_are_asked_by_label() -> None:
    asking = view(dps.Grouped(dps.Race(["size"], 100, 50), "grade"))
    assert asking.kernel_sum([[4.0]], group=7).value[0] == pytest.approx(500)
    assert asking.kernel_sum([[4.0]], group="8").value[0] == pytest.approx(0, abs=1e-9)
    assert asking.count().value == pytest.approx(500)
    with pytest.raises(QueryError, match="counters for each label of 'grade'"):
        asking.kernel_sum([[4.0]])
    with pytest.raises(QueryError, match="this part has no groups"):
        view(dps.Race(["size"], 3, 50)).kernel_sum([[4.0]], group=7)


def test_the_number_of_rows_comes_from_the_counters() -> None:
    answer = view(dps.Race(["size"], 50, 20), epsilon=1.0).count()
    assert abs(answer.value - 500) < 6 * answer.stderr


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({"grade": [7]}, "the rows lack column 'size'"),
        ({"size": [1, 2], "grade": [7]}, "different lengths"),
        ([[1.0]], "a point has 2 numbers: size, grade"),
        ([["a", "b"]], "the points are not numbers"),
        (np.zeros((2, 2, 2)), "a point has 2 numbers"),
    ],
)
def test_wrong_points_are_refused(points: object, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        view(dps.Race(["size", "grade"], 3, 50)).kernel_sum(points)


def test_wrong_sets_are_refused() -> None:
    for points in ({"tags": ["ab"]}, {"tags": 5}):
        with pytest.raises(QueryError, match="does not hold lists of ids"):
            view(hashed("tags")).kernel_sum(points)


def test_other_releases_say_what_is_missing() -> None:
    with pytest.raises(QueryError, match="holds no RACE part"):
        view(dps.Count()).kernel_sum([[1.0]])
    with pytest.raises(QueryError, match="part 5 is not a RACE part"):
        view(dps.Race(["size"], 3, 50)).kernel_sum([[1.0]], part=5)


def test_a_table_without_any_set_is_read() -> None:
    """Columns that hold nothing have no type: one record must not decide whether a table is read."""
    table = pa.table({name: pa.nulls(3) for name in CELLS})
    assert dps.accumulate(table, SCHEMA, dps.Recipe([dps.Part(hashed("tags"), 1.0)])).parts[0].sums.sum() == 900


def test_raw_files_are_for_their_owner_only(tmp_path: Path) -> None:
    table = pa.table({name: pa.nulls(3) for name in CELLS})
    dps.accumulate(table, SCHEMA, dps.Recipe([dps.Part(dps.Count(), 1.0)])).save(tmp_path / "a.raw")
    assert (tmp_path / "a.raw").stat().st_mode & 0o077 == 0


def test_matrices_have_the_codes_of_table_cells(rng: np.random.Generator) -> None:
    """Bit for bit, for every kind of numeric column, bounds and levels."""
    from dpsketch.encoding.arrow import encode_column
    from dpsketch.learn.estimators.kernel_sums import _Numbers

    columns = {
        "a": {"kind": "number", "lower": -3.7, "upper": 1e6},
        "b": {"kind": "integer", "lower": -7, "upper": 120, "missing": 5},
        "c": {"kind": "integer", "lower": 0, "upper": 10**9},
        "d": {"kind": "number", "lower": 0.5, "upper": 1000, "transform": "log"},
        "e": {"kind": "number", "lower": -5, "upper": 5, "transform": "asinh", "missing": 2},
    }
    schema = dps.Schema.from_dict({"columns": columns})
    points = rng.normal(0, 300, (len(columns), 5000))
    points[:, :3] = np.nan, np.inf, -np.inf
    points[2] *= 1e6
    found = _Numbers(schema, list(columns)).codes(points)
    for place, column in enumerate(schema.scalars):
        assert (found[place] == encode_column(column, pa.array(points[place]))).all()
