"""Every source and every way of running gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from conftest import mixed_table


def bytes_of(raw: dps.RawSketch) -> list[bytes]:
    return [part.sums.tobytes() for part in raw.parts]


@pytest.fixture
def expected(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> list[bytes]:
    return bytes_of(dps.accumulate(table, schema, recipe, dps.Local(threads=1)))


def test_sources_agree(
    table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes], tmp_path: Path
) -> None:
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=130)
    pa.csv.write_csv(table, tmp_path / "t.csv")
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(table.slice(0, 400), folder / "a.parquet")
    pa.csv.write_csv(table.slice(400), folder / "b.csv")
    pa.dataset.write_dataset(
        table, tmp_path / "hive", format="parquet", partitioning=pa.dataset.partitioning(
            pa.schema([("sex", pa.string())]), flavor="hive"))  # fmt: skip
    people = table  # noqa: F841 - DuckDB finds it by name
    duck = duckdb.sql("select * from people")
    chunked = pa.concat_tables([table.slice(0, 333), table.slice(333)])
    sources = {
        "parquet": tmp_path / "t.parquet",
        "csv": str(tmp_path / "t.csv"),
        "folder": folder,
        "hive": tmp_path / "hive",
        "reader": table.to_reader(max_chunksize=77),
        "pandas": table.to_pandas(),
        "pandas of Arrow types in chunks": chunked.to_pandas(types_mapper=pandas.ArrowDtype),
        "pandas objects": table.to_pandas().astype({"sex": object, "member": object}),
        "polars": polars.from_arrow(table),
        "duckdb": duck,
        "iterator": iter(table.to_batches(max_chunksize=99)),
        "iterator of tables": iter([table.slice(0, 3), table.slice(3)]),
    }
    for name, source in sources.items():
        assert bytes_of(dps.accumulate(source, schema, recipe)) == expected, name


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch_rows", [1, 17, 512, 100_000])
def test_threads_batches_and_order_do_not_matter(
    threads: int, batch_rows: int, table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    shuffled = table.take(rng.permutation(len(table)))
    raw = dps.accumulate(shuffled, schema, recipe, dps.Local(threads=threads, batch_rows=batch_rows))
    assert bytes_of(raw) == expected


def test_merge_trees_agree(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes]) -> None:
    parts = [dps.accumulate(table.slice(start, 250), schema, recipe) for start in range(0, 1000, 250)]
    chain = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
    tree = parts[3].merge(parts[1]).merge(parts[2].merge(parts[0]))
    assert bytes_of(chain) == bytes_of(tree) == expected


def test_folder_names_are_cells(tmp_path: Path) -> None:
    """Null and encoded partition values; folders above the dataset are not columns."""
    root = tmp_path / "sex=m" / "data"
    table = pa.table({"sex": ["a b/c", None, "f"], "x": [1, 2, 3]})
    keys = pa.dataset.partitioning(pa.schema([("sex", pa.string())]), flavor="hive")
    pa.dataset.write_dataset(table, root, format="parquet", partitioning=keys)
    columns = {
        "sex": {"kind": "category", "values": ["a b/c", "f", "m"]},
        "x": {"kind": "integer", "lower": 0, "upper": 9},
    }
    schema = dps.Schema.from_dict({"privacy": {"rows": 3}, "columns": columns})
    recipe = dps.Recipe([dps.Part(dps.Histogram(columns=["sex"]), 1.0)])
    expected = [1, 1, 0, 0, 1]  # a b/c, f, m, other, missing
    assert dps.accumulate(root, schema, recipe).parts[0].sums.tolist() == expected
    pq.write_table(table.select(["x"]), tmp_path / "sex=m" / "plain.parquet")
    with pytest.raises(dps.DpsketchError, match="has no column 'sex'"):
        dps.accumulate(tmp_path / "sex=m" / "plain.parquet", schema, recipe)


def test_columns_may_be_stored_in_any_order_and_with_others(
    table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes]
) -> None:
    other = table.select(list(reversed(table.column_names))).append_column("secret", pa.array(["x"] * 1000))
    assert bytes_of(dps.accumulate(other, schema, recipe)) == expected


def test_an_interrupt_stops_the_pass(schema: dps.Schema, recipe: dps.Recipe) -> None:
    seen = 0

    def batches() -> object:
        nonlocal seen
        for _ in range(100):
            seen += 1
            if seen == 5:
                raise KeyboardInterrupt
            yield mixed_table(10)

    with pytest.raises(KeyboardInterrupt):
        dps.accumulate(batches(), schema, recipe)
    assert seen == 5


def test_progress_is_a_share(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "t.parquet")
    shares: list[float] = []
    dps.accumulate(tmp_path / "t.parquet", schema, recipe, progress=shares.append)
    assert shares
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] == 1
