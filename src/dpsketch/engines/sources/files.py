"""CSV and Parquet files, and folders of either, as one table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpsketch.engines import csv
from dpsketch.engines.sources.data_files import DataFile, data_files, shown
from dpsketch.engines.sources.source import READ_ROWS, Columns, Progress, check_columns
from dpsketch.errors import SourceError
from dpsketch.schema.schema import Csv

_FEW_BYTES = 2  # a cell of a column of few different texts
_FEW_BYTES = 2  # of a cell, in a column of few different texts
_MOST_BYTES = 1 << 26  # of batches that are joined, and of the files' own descriptions that are kept
_FIRST_LINE = (
    "the first line of a CSV file must name its columns; if it is a record, the schema names them: [csv] columns"
)


@dataclass(frozen=True)
class Files:
    """The files that a path, a pattern, a URL or a list of them names; `layout` is that of CSV files."""

    named: str | Path | Sequence[str | Path]
    layout: Csv

    @cached_property
    def files(self) -> list[DataFile]:
        return data_files(self.named)

    @property
    def csv(self) -> bool:
        return any(file.csv for file in self.files)

    @property
    def name(self) -> str:
        return shown(self.named) if isinstance(self.named, str | Path) else shown(self.named[0])

    def columns(self) -> Columns:
        """Those of the first file; all others are checked when they are read."""
        with _unnamed(self.files[0]):
            return _described(self.files[0], self.layout)[0]

    def named_by(self, header: bool | None) -> Files:
        """The same files, where a person says whether the first line of a CSV file names its columns."""
        if not self.csv:
            return self
        if header is None:
            raise SourceError(
                f"{self.name}: it is unknown whether the first line of a CSV file names its columns",
                "pass --header if it does, to print them; --no-header if it is a record",
            )
        if header:
            return self
        with _unnamed(self.files[0]):
            count = len(csv.header(self.files[0]))
        return Files(self.named, Csv(columns=tuple(f"column_{index + 1}" for index in range(count))))

    def batches(self, wanted: Sequence[str], sets: Collection[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        yield from _joined(self._batches(wanted, progress))

    def _batches(self, wanted: Sequence[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        opened = self.check(wanted)
        sizes = [max(file.size, 1) for file in self.files]
        total, done = sum(sizes), 0
        for file, size in zip(self.files, sizes, strict=True):
            before = done

            def report(share: float, before: int = before, size: int = size) -> None:
                # Whole percents: an exact fraction of a known batch size would reveal the number of rows.
                progress(int(100 * (before + share * size) / total) / 100)

            yield from FilePart(file, self.layout).batches(wanted, (), report, opened.pop(file.identity, None))
            done += size

    def check(self, wanted: Sequence[str]) -> dict[str, pq.FileMetaData]:
        """Refuse files without the wanted columns, before any record is read; what Parquet files say of themselves."""
        kept: dict[str, pq.FileMetaData] = {}
        left = _MOST_BYTES
        for file in self.files:
            hint = _FIRST_LINE if file.csv and self.layout.columns is None else None
            with _unnamed(file):
                columns, metadata = _described(file, self.layout)
                check_columns(file.name, [name for name, _ in columns], wanted, hint)
            left -= 0 if metadata is None else metadata.serialized_size
            if metadata is not None and left > 0:
                kept[file.identity] = metadata
        return kept

    def parts(self) -> list[FilePart]:
        """The table in parts that may be read anywhere: CSV files, and row groups of Parquet files."""
        parts = []
        for file in self.files:
            if file.csv:
                parts.append(FilePart(file, self.layout))
                continue
            with _unnamed(file), _parquet(file) as opened:
                groups = opened.metadata.num_row_groups
            parts += [FilePart(file, self.layout, group) for group in range(groups)]
        return parts


@dataclass(frozen=True)
class FilePart:
    """A file, or one row group of a Parquet file. Picklable."""

    file: DataFile
    layout: Csv
    group: int | None = None

    def batches(
        self,
        wanted: Sequence[str],
        sets: Collection[str],
        progress: Progress,
        metadata: pq.FileMetaData | None = None,
    ) -> Iterator[pa.RecordBatch]:
        constants = {key: value for key, value in self.file.folder_columns.items() if key in wanted}
        with _unnamed(self.file):
            if self.file.csv:
                read = csv.batches(self.file, wanted, progress, self.layout)
            else:
                read = _parquet_batches(self.file, wanted, progress, self.group, metadata)
            for batch in read:
                yield _with_constants(batch, constants)


def _described(file: DataFile, layout: Csv) -> tuple[Columns, pq.FileMetaData | None]:
    """The columns of a file, and what a Parquet file says of itself."""
    constants = [(key, pa.string()) for key in file.folder_columns]
    if file.csv:
        return [(name, pa.string()) for name in csv.column_names(file, layout)] + constants, None
    with _parquet(file) as opened:
        return [(field.name, field.type) for field in opened.schema_arrow] + constants, opened.metadata


@contextmanager
def _unnamed(file: DataFile) -> Iterator[None]:
    """Keep the path of a file in a partitioned dataset out of errors: the names of its folders are cells."""
    try:
        yield
    except SourceError as error:
        if not file.folder_columns:
            raise
        raise SourceError(error.fact.replace(file.name, f"a file in {file.root}"), error.hint) from None
    except (pa.ArrowException, OSError) as error:
        name = f"a file in {file.root}" if file.folder_columns else file.name
        raise SourceError(f"{name} cannot be read ({type(error).__name__})", "check that the file is whole") from None


def _with_constants(batch: pa.RecordBatch, constants: dict[str, str | None]) -> pa.RecordBatch:
    for key, value in constants.items():
        if key not in batch.schema.names:
            batch = batch.append_column(key, pa.repeat(pa.scalar(value, pa.string()), batch.num_rows))
    return batch


@contextmanager
def _parquet(
    file: DataFile, metadata: pq.FileMetaData | None = None, repeated: Sequence[str] = ()
) -> Iterator[pq.ParquetFile]:
    try:
        opened = pq.ParquetFile(file.open(), metadata=metadata, read_dictionary=repeated or None)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{file.name} cannot be read as Parquet ({type(error).__name__})", "check that the file is whole"
        ) from None
    with opened:
        yield opened


def _parquet_batches(
    file: DataFile,
    wanted: Sequence[str],
    progress: Progress,
    group: int | None = None,
    metadata: pq.FileMetaData | None = None,
) -> Iterator[pa.RecordBatch]:
    if metadata is None:
        with _parquet(file) as opened:
            metadata = opened.metadata
    repeated = _repeated(metadata)
    with _parquet(file, metadata, repeated) as opened:
        rows, seen = max(metadata.num_rows, 1), 0
        columns = [name for name in opened.schema_arrow.names if name in wanted]
        groups = None if group is None else [group]
        for batch in opened.iter_batches(READ_ROWS, row_groups=groups, columns=columns, use_threads=False):
            yield batch
            seen += batch.num_rows
            progress(seen / rows)


def _repeated(metadata: pq.FileMetaData) -> list[str]:
    """Columns of few different texts, as far as the first row group shows: every text is then read once a batch."""
    group = metadata.row_group(0) if metadata.num_row_groups else None
    chunks = [] if group is None else [group.column(index) for index in range(group.num_columns)]
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.physical_type == "BYTE_ARRAY"
        and chunk.has_dictionary_page
        and chunk.total_uncompressed_size < _FEW_BYTES * chunk.num_values
    ]


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches of the same types, such as those of small files, as larger ones."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if waiting and (rows > READ_ROWS or size > _MOST_BYTES or batch.schema != waiting[0].schema):
            yield from _whole(waiting)
            waiting, rows, size = [], batch.num_rows, batch.nbytes
        waiting.append(batch)
    if waiting:
        yield from _whole(waiting)


def _whole(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return batches
    try:
        joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    except pa.ArrowException:  # a type that Arrow cannot join
        return batches
    return joined
