"""Delta Lake and Iceberg tables, read through their logs: rows that the log deleted are never read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpsketch.engines.sources.data_files import lake_of, shown
from dpsketch.engines.sources.source import Columns, Progress, Source, check_columns, plain_errors
from dpsketch.errors import SourceError
from dpsketch.extras import extra

DELTA, ICEBERG = "delta://", "iceberg://"


def lake(named: str | Path) -> Source | None:
    """The table of a URL of ours, or of a folder that holds a log; None for anything else."""
    text = str(named)
    if text.startswith(DELTA):
        return Delta(text.removeprefix(DELTA))
    if text.startswith(ICEBERG):
        catalog, _, table = text.removeprefix(ICEBERG).partition("/")
        if not catalog or not table:
            raise SourceError(f"{text} names no table", "iceberg://CATALOG/NAMESPACE.TABLE, or the table's own folder")
        return Iceberg(text, lambda: _of_catalog(catalog, table.replace("/", ".")))
    if "://" in text or not Path(named).is_dir():
        return None
    found = lake_of(Path(named))
    if found == "a Delta Lake":
        return Delta(text)
    if found == "an Iceberg":
        return Iceberg(str(Path(named).resolve()), lambda: _of_folder(Path(named)))
    return None


@dataclass(frozen=True)
class Delta:
    """The current version of a Delta Lake table, without rows that deletion vectors mark."""

    location: str

    @property
    def name(self) -> str:
        return self.location if "://" in self.location else str(Path(self.location).resolve())

    @cached_property
    def _table(self) -> Any:
        with _read(self.location, "a Delta Lake table"), extra():
            from deltalake import DeltaTable

            return DeltaTable(self.location)

    def columns(self) -> Columns:
        with _read(self.location, "a Delta Lake table"):
            schema = pa.schema(self._table.schema().to_arrow())
        return [(field.name, field.type) for field in schema]

    def batches(self, wanted: Sequence[str], sets: Collection[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        check_columns(shown(self.location), [name for name, _ in self.columns()], wanted)
        with _read(self.location, "a Delta Lake table"):
            from deltalake import QueryBuilder

            columns = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in wanted)
            reader = QueryBuilder().register("lake", self._table).execute(f"select {columns} from lake")
            yield from pa.RecordBatchReader.from_stream(reader)
        progress(1.0)


@dataclass(frozen=True)
class Iceberg:
    """The current snapshot of an Iceberg table, without rows that delete files mark."""

    name: str
    load: Callable[[], Any]

    @cached_property
    def _table(self) -> Any:
        with _read(self.name, "an Iceberg table"), extra():
            return self.load()

    def columns(self) -> Columns:
        with _read(self.name, "an Iceberg table"):
            return [(field.name, field.type) for field in self._table.schema().as_arrow()]

    def batches(self, wanted: Sequence[str], sets: Collection[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        check_columns(self.name, [name for name, _ in self.columns()], wanted)
        with _read(self.name, "an Iceberg table"):
            reader = self._table.scan(selected_fields=tuple(wanted)).to_arrow_batch_reader()
            yield from (batch.select(wanted) for batch in reader)
        progress(1.0)


def _of_catalog(catalog: str, table: str) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog(catalog).load_table(table)


def _of_folder(folder: Path) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(_current_metadata(folder)))


def _current_metadata(folder: Path) -> Path:
    """The file that the hint of a catalog in files names, or the one with the highest number."""
    hint = folder / "metadata" / "version-hint.text"
    if hint.is_file():
        return folder / "metadata" / f"v{hint.read_text().strip()}.metadata.json"
    numbered: dict[int, list[Path]] = {}
    for path in (folder / "metadata").glob("*.metadata.json"):
        number = re.match(r"v?(\d+)", path.name)
        numbered.setdefault(-1 if number is None else int(number[1]), []).append(path)
    newest = numbered[max(numbered)]
    if len(newest) > 1:
        raise SourceError(
            f"{folder} does not say which of its snapshots is the current one",
            "read it through its catalog: iceberg://CATALOG/NAMESPACE.TABLE",
        )
    return newest[0]


def _read(name: str, kind: str) -> AbstractContextManager[None]:
    hint = "check the location, the catalog's configuration and the credentials in the environment"
    return plain_errors(f"{shown(name)} cannot be read as {kind}", hint)
