"""Every engine gives the same bytes on every source, and bounds what a unit contributes."""

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
from dpsketch.engines.engine import Engine
from toy_engine import Shuffled

ENGINES: dict[str, Engine] = {
    "one thread": dps.Local(threads=1),
    "five threads": dps.Local(threads=5, batch_rows=41),
    "two threads": dps.Local(threads=2, batch_rows=300),
    "one share": Shuffled(shares=1),
    "seven shares": Shuffled(shares=7, seed=2),
}
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())


def bytes_of(raw: dps.RawSketch) -> list[bytes]:
    return [part.sums.tobytes() for part in raw.parts]


@pytest.fixture
def expected(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> list[bytes]:
    return bytes_of(dps.accumulate(table, schema, recipe, dps.Local(threads=1)))


@engines
def test_sources_agree(
    engine: Engine, table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes], tmp_path: Path
) -> None:
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=130)
    pa.csv.write_csv(table, tmp_path / "t.csv")
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(table.slice(0, 400), folder / "a.parquet")
    pq.write_table(table.slice(400), folder / "b.parquet")
    pa.csv.write_csv(table.slice(400), tmp_path / "rest.csv")
    for ending, compress in {"gz": "gzip", "zst": "zstd"}.items():
        with pa.CompressedOutputStream(tmp_path / f"t.csv.{ending}", compress) as file:
            pa.csv.write_csv(table, file)
    pa.dataset.write_dataset(
        table, tmp_path / "hive", format="parquet", partitioning=pa.dataset.partitioning(
            pa.schema([("sex", pa.string())]), flavor="hive"))  # fmt: skip
    people = table  # noqa: F841 - DuckDB finds it by name
    duck = duckdb.sql("select * from people")
    chunked = pa.concat_tables([table.slice(0, 333), table.slice(333)])
    sources = {
        "parquet": tmp_path / "t.parquet",
        "csv": str(tmp_path / "t.csv"),
        "csv.gz": tmp_path / "t.csv.gz",
        "csv.zst": tmp_path / "t.csv.zst",
        "folder": folder,
        "pattern": str(folder / "*.parquet"),
        "url": (tmp_path / "t.parquet").as_uri(),
        "url of a folder": folder.as_uri(),
        "list": [folder / "a.parquet", tmp_path / "rest.csv"],
        "hive": tmp_path / "hive",
        "reader": table.to_reader(max_chunksize=77),
        "pandas": table.to_pandas(),
        "pandas of Arrow types in chunks": chunked.to_pandas(types_mapper=pandas.ArrowDtype),
        "pandas objects": table.to_pandas().astype({"sex": object, "member": object}),
        "dict of arrays": {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names},
        "dict of lists": table.to_pydict(),
        "polars": polars.from_arrow(table),
        "lazy polars": polars.LazyFrame(polars.from_arrow(table)),
        "dataset": pa.dataset.dataset(folder),
        "scanner": pa.dataset.dataset(folder).scanner(columns=table.column_names),
        "duckdb": duck,
        "iterator": iter(table.to_batches(max_chunksize=99)),
        "iterator of tables": iter([table.slice(0, 3), table.slice(3)]),
    }
    for name, source in sources.items():
        assert bytes_of(dps.accumulate(source, schema, recipe, engine)) == expected, name


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


@engines
def test_columns_may_be_stored_in_any_order_and_with_others(
    engine: Engine, table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, expected: list[bytes]
) -> None:
    other = table.select(list(reversed(table.column_names))).append_column("secret", pa.array(["x"] * 1000))
    assert bytes_of(dps.accumulate(other, schema, recipe, engine)) == expected


@engines
def test_empty_tables_have_empty_sums(engine: Engine, table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> None:
    for source in (table.slice(0, 0), iter([])):
        assert not any(part.sums.any() for part in dps.accumulate(source, schema, recipe, engine).parts)


UNITS = {"privacy": {"rows": 1000, "unit": "person", "max_rows_per_unit": 2, "unit_kind": "integer"}}


def visits(rng: np.random.Generator) -> pa.Table:
    """Rows of 200 people, some of nobody; ids are written in two ways that mean the same person."""
    people = rng.integers(0, 200, 1000)
    ids = [None if number < 5 else f"{number}.0" if rng.random() < 0.5 else str(number) for number in people.tolist()]
    return mixed_table(1000).append_column("person", pa.array(ids))


@engines
@pytest.mark.parametrize("only", [None, dps.Only("sex", "Male")], ids=["all", "only"])
def test_engines_agree_on_units(
    engine: Engine, only: dps.Only | None, schema: dps.Schema, recipe: dps.Recipe, rng: np.random.Generator
) -> None:
    table = visits(rng)
    schema = dps.Schema.from_dict(schema.to_dict() | UNITS)
    recipe = dps.Recipe(recipe.parts, only=only)
    expected = dps.accumulate(table, schema, recipe, dps.Local(threads=1))
    assert bytes_of(dps.accumulate(table, schema, recipe, engine)) == bytes_of(expected)
    if only is None:
        numbers = [int(float(text)) for text in table["person"].to_pylist() if text is not None]
        assert expected.parts[0].sums[0] == np.minimum(np.bincount(numbers), 2).sum()


@engines
def test_samples_have_the_size_that_was_asked_for(
    engine: Engine, table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, rng: np.random.Generator
) -> None:
    def rows(sampling: dps.RowSampling, source: pa.Table, declared: dps.Schema) -> int:
        sampled = dps.Recipe(recipe.parts, sampling=sampling)
        return int(dps.accumulate(source, declared, sampled, engine).parts[0].sums[0])

    assert rows(dps.RowSampling(count=300), table, schema) == 300
    assert rows(dps.RowSampling(count=3000), table, schema) == 1000
    assert rows(dps.RowSampling(rate=1), table, schema) == 1000
    assert 350 < rows(dps.RowSampling(rate=0.5), table, schema) < 650
    units = dps.Schema.from_dict(schema.to_dict() | UNITS)
    every = rows(dps.RowSampling(rate=1), visits(rng), units)
    assert 0.3 * every < rows(dps.RowSampling(rate=0.5), visits(rng), units) < 0.7 * every


@engines
def test_every_pass_is_one_input(engine: Engine, table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> None:
    one, two = (dps.accumulate(table, schema, recipe, engine) for _ in range(2))
    assert len(one.lineage) == len(two.lineage) == 1
    assert one.lineage != two.lineage


@engines
def test_an_interrupt_stops_the_pass(engine: Engine, schema: dps.Schema, recipe: dps.Recipe) -> None:
    seen = 0

    def batches() -> object:
        nonlocal seen
        for _ in range(100):
            seen += 1
            if seen == 5:
                raise KeyboardInterrupt
            yield mixed_table(10)

    with pytest.raises(KeyboardInterrupt):
        dps.accumulate(batches(), schema, recipe, engine)
    assert seen == 5


@engines
def test_progress_is_a_share(
    engine: Engine, table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path
) -> None:
    pq.write_table(table, tmp_path / "t.parquet")
    shares: list[float] = []
    dps.accumulate(tmp_path / "t.parquet", schema, recipe, engine, progress=shares.append)
    assert shares
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] == 1
