from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsketch.engines.readers import data_files, read_batches, source_columns
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
def test_tables_with_a_log_are_refused(lake: str, tmp_path: Path) -> None:
    """As a whole, below another folder, from a folder inside, and file by file."""
    root = tmp_path / "all" / "people"
    file = written(root / "data" / "town=ANNAPOLIS" / "old.parquet")
    written(tmp_path / "all" / "plain.parquet")
    log = root / LOGS[lake]
    log.parent.mkdir()
    log.write_text("{}")
    for path in (root, tmp_path / "all", root / "data", file):
        for read in (lambda path: list(read_batches(path, ["x"], lambda share: None)), source_columns):
            with pytest.raises(SourceError) as refused:
                read(path)
            assert refused.value.fact == f"{path} holds files of {lake} table, which may have been deleted or replaced"
            assert "export a snapshot to plain Parquet" in (refused.value.hint or "")


def test_other_folders_of_these_names_are_no_logs(tmp_path: Path) -> None:
    """A folder 'metadata' with other files is one like any other."""
    file = written(tmp_path / "metadata" / "a.parquet")
    assert data_files(tmp_path) == [file]
    assert data_files(file) == [file]


def test_a_link_into_a_table_with_a_log_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "people" / "old.parquet")
    (tmp_path / "people" / "_delta_log").mkdir()
    plain = written(tmp_path / "plain" / "a.parquet").parent
    (plain / "link.parquet").symlink_to(file)
    for path in (plain, plain / "link.parquet"):
        with pytest.raises(SourceError, match="holds files of a Delta Lake table"):
            data_files(path)
