from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from dpsketch.engines.readers import read_batches, source_columns
from dpsketch.engines.sources.data_files import _impatient, data_files, shown
from dpsketch.engines.sources.databases import Database
from dpsketch.errors import SourceError

LOGS = {
    "a Delta Lake": "_delta_log/00000000000000000000.json",
    "a Hudi": ".hoodie/hoodie.properties",
    "an Iceberg": "metadata/v1.metadata.json",
}


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": [1, 2]}), path)
    return path


@pytest.mark.parametrize("lake", LOGS)
def test_files_of_tables_with_a_log_are_refused(lake: str, tmp_path: Path) -> None:
    """Below another folder, from a folder inside, and file by file."""
    root = tmp_path / "all" / "people"
    file = written(root / "data" / "town=ANNAPOLIS" / "old.parquet")
    written(tmp_path / "all" / "plain.parquet")
    log = root / LOGS[lake]
    log.parent.mkdir()
    log.write_text("{}")
    whole = [root] if lake == "a Hudi" else []  # the others are read through their logs
    for path in (*whole, tmp_path / "all", root / "data", file):
        for read in (lambda path: list(read_batches(path, ["x"], lambda share: None)), source_columns):
            with pytest.raises(SourceError) as refused:
                read(path)
            assert refused.value.fact == f"{path} holds files of {lake} table, which may have been deleted or replaced"
            assert ("export a snapshot" if whole else "read through its log") in (refused.value.hint or "")


def names(named: str | Path | list[str | Path]) -> list[str]:
    return [file.name for file in data_files(named)]


def test_other_folders_of_these_names_are_no_logs(tmp_path: Path) -> None:
    """A folder 'metadata' with other files is one like any other."""
    file = written(tmp_path / "metadata" / "a.parquet")
    assert names(tmp_path) == [str(file)]
    assert names(file) == [str(file)]


def test_a_link_into_a_table_with_a_log_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "people" / "old.parquet")
    (tmp_path / "people" / "_delta_log").mkdir()
    plain = written(tmp_path / "plain" / "a.parquet").parent
    (plain / "link.parquet").symlink_to(file)
    for path in (plain, plain / "link.parquet"):
        with pytest.raises(SourceError, match="holds files of a Delta Lake table"):
            data_files(path)


def test_patterns_find_files_in_order(tmp_path: Path) -> None:
    files = [written(tmp_path / name) for name in ("b/2.parquet", "a/1.parquet", "a/deep/3.parquet")]
    (tmp_path / "a" / "notes.txt").write_text("")
    assert names(str(tmp_path / "*" / "*.parquet")) == sorted(map(str, files[:2]))
    for pattern in (str(tmp_path / "**" / "*.parquet"), f"{tmp_path.as_uri()}/**/*.parquet"):
        assert names(pattern) == sorted(map(str, files))
    with pytest.raises(SourceError, match="holds no CSV or Parquet file"):
        data_files(str(tmp_path / "*.csv"))
    odd = written(tmp_path / "odd[1].parquet")
    assert names(odd) == [str(odd)], "a name with brackets is no pattern where it exists"


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "data" / "a.parquet")
    link = tmp_path / "link.parquet"
    link.symlink_to(file)
    for twice in ([file, file], [file, tmp_path / "data"], [file, link], [str(file), file.as_uri()]):
        with pytest.raises(SourceError, match="a file is there twice\nHint: name each file once"):
            data_files(twice)
    assert names([file]) == [str(file)]
    with pytest.raises(SourceError, match="an empty list names no file"):
        data_files([])


def test_a_folder_of_both_formats_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("x\n1\n")
    with pytest.raises(SourceError, match="holds both CSV and Parquet files\nHint: name the files of one kind"):
        data_files(tmp_path)


def test_a_column_that_vanishes_between_two_files_is_named(tmp_path: Path) -> None:
    files = [written(tmp_path / "a.parquet"), tmp_path / "b.parquet"]
    pq.write_table(pa.table({"y": [1]}), files[1])
    with pytest.raises(SourceError, match=f"{files[1]} has no column 'x'"):
        list(read_batches(files, ["x"], lambda share: None))


def test_folders_below_a_pattern_are_cells(tmp_path: Path) -> None:
    """Columns where the table has none of that name, and never in a message."""
    file = written(tmp_path / "data" / "town=ANNAPOLIS" / "a.parquet")
    pattern = str(tmp_path / "data" / "*" / "*.parquet")
    (batch,) = read_batches(pattern, ["x", "town"], lambda share: None)
    assert batch["town"].to_pylist() == ["ANNAPOLIS"] * 2
    with pytest.raises(SourceError, match=r"a file in .* has no column 'y'") as refused:
        list(read_batches(pattern, ["y"], lambda share: None))
    assert "ANNAPOLIS" not in str(refused.value)
    assert file.exists()


def test_credentials_with_odd_characters_are_not_shown() -> None:
    for secret in ("pa/SECRET", "pa#SECRET", "pa?SECRET", "pa@SECRET", "pa[SECRET"):
        assert shown(f"postgresql://owner:{secret}@host/db?sslkey=SECRET") == "postgresql://host/db"
        assert "SECRET" not in repr(Database(f"postgresql://owner:{secret}@host/db", table="t"))
    assert shown("/data/a@b.csv") == "/data/a@b.csv"


def failing() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"x": [1.0]})
    raise ValueError("the cell ANNAPOLIS")


def broken_text() -> sqlite3.Cursor:
    connection = sqlite3.connect(":memory:")
    return connection.execute("select cast(x'414e4e41504f4c4953ff' as text) as x")


def test_errors_of_other_software_are_not_shown(tmp_path: Path) -> None:
    """Polars, DuckDB, drivers of databases and generators quote cells."""
    frame = polars.DataFrame({"s": ["1", "ANNAPOLIS"]})
    with duckdb.connect() as connection:
        connection.register("t", frame)
        sources = {
            "polars": frame.lazy().select(polars.col("s").cast(polars.Float64).alias("x")),
            "DuckDB": connection.sql("select cast(s as double) as x from t"),
            "cursor": broken_text(),
            "generator": failing(),
        }
        for name, source in sources.items():
            with pytest.raises(SourceError, match="the source cannot be read as Arrow batches") as refused:
                list(read_batches(source, ["x"], lambda share: None))
            assert "ANNAPOLIS" not in str(refused.value), name
            assert refused.value.__suppress_context__


def test_a_url_that_cannot_be_opened_shows_no_credentials() -> None:
    for url in ("nope://key:pass-word-7@bucket/t.parquet?token=pass-word-7", "hdfs://key:pass-word-7@nowhere:1/t.csv"):
        with pytest.raises(SourceError, match="cannot be opened") as refused:
            list(read_batches(url, ["x"], lambda share: None))
        assert "pass-word-7" not in str(refused.value)


def test_google_is_not_asked_for_a_quarter_of_an_hour() -> None:
    for url in ("gs://bucket/t.parquet", "gs://anonymous@bucket/t.parquet?scheme=http"):
        limited = _impatient(url)
        assert limited.endswith(f"{'&' if '?' in url else '?'}retry_limit_seconds=20")
        assert pa.fs.FileSystem.from_uri(limited)[1] == "bucket/t.parquet"  # an unknown option is refused here
        assert _impatient(limited) == limited
    assert _impatient("s3://bucket/t.parquet") == "s3://bucket/t.parquet"


def test_small_files_are_read_together_and_types_are_kept_apart(tmp_path: Path) -> None:
    """Batches are joined where their types agree; texts that repeat are the same, however a file stores them."""
    texts = pa.array(["a", "b", None, "a"] * 300)
    for number in range(6):
        cells = pa.array(range(1200)) if number < 4 else pa.array([f"{row}.0" for row in range(1200)])
        table = pa.table({"x": cells, "s": texts.cast(pa.large_string()) if number % 2 else texts})
        pq.write_table(table, tmp_path / f"{number}.parquet", use_dictionary=number != 3)
    batches = list(read_batches(tmp_path, ["x", "s"], lambda share: None))
    assert len(batches) < 6
    assert sum(batch.num_rows for batch in batches) == 7200
    found = [str(cell) for batch in batches for cell in batch.column("s").to_pylist()]
    assert found == [str(cell) for cell in texts.to_pylist() * 6]
    assert [str(cell) for batch in batches[-1:] for cell in batch.column("x").to_pylist()][-1] == "1199.0"


def test_objects_that_are_no_tables_are_refused() -> None:
    for source in (3, object()):
        with pytest.raises(SourceError, match=f"a {type(source).__name__} is not a table\nHint: pass a path, a URL"):
            list(read_batches(source, ["x"], lambda share: None))


def test_datasets_of_text_files_are_refused(tmp_path: Path) -> None:
    """Arrow infers the type of a column from its cells: one cell would change how others are read."""
    (tmp_path / "b.csv").write_text("x\n1\n")
    with pytest.raises(SourceError, match="a dataset of csv files infers types"):
        list(read_batches(pyarrow.dataset.dataset(tmp_path, format="csv"), ["x"], lambda share: None))


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(SourceError, match="the arrays of the table have different lengths"):
        list(read_batches({"x": [1, 2], "y": [1]}, ["x", "y"], lambda share: None))


def test_the_columns_of_objects_are_known_without_reading(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2], "y": ["a", "b"]})
    pq.write_table(table, tmp_path / "t.parquet")
    sources = (table, table.to_reader(), pyarrow.dataset.dataset(tmp_path / "t.parquet"), polars.from_arrow(table))
    for source in (*sources, polars.scan_parquet(tmp_path / "t.parquet"), table.to_pandas(), {"x": [1], "y": ["a"]}):
        assert [name for name, _ in source_columns(source)[0]] == ["x", "y"], type(source)
    with pytest.raises(SourceError, match="the columns of a list_iterator are unknown"):
        source_columns(iter([table]))
