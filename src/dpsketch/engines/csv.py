"""CSV to Arrow batches of text, one line per record, whatever the line contains.

A general CSV reader lets a stray quote swallow the lines after it, and infers types from whole columns, so that one
cell would change how others are read. Here a line break always ends a record, a line with the wrong number of fields or
a broken quote is one record of missing cells, and every cell stays text. Empty lines are not records. Only if the
schema declares it (`csv.multiline`) may a quoted cell contain line breaks. That every quote is closed is then an
assumption, which the privacy statement names.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.engines.sources.data_files import DataFile
from dpsketch.errors import SourceError
from dpsketch.schema.schema import Csv

_BLOCK = 1 << 22
_LONGEST_LINE = 1 << 24
_MOST_FIELDS = 1 << 22
_NEWLINE = 10
_THREADS = 4
Places = NDArray[np.int64]
_PADDING = bytes(8)  # kernels read eight bytes at a time
_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8, at the beginning of a file


def header(file: DataFile) -> list[str]:
    """The cells of the first line. Only someone who knows the file can tell whether they are names or a record."""
    path = file.name
    with file.text() as (stream, _):
        line = stream.readline(_LONGEST_LINE)
    if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
        raise SourceError(f"{path}: the header line is too long", "the first line of a CSV file names its columns")
    line = line.removeprefix(_MARK).rstrip(b"\r\n")
    if b"\r" in line:  # without line feeds the whole file would be the header
        raise SourceError(f"{path}: lines must end with a line feed", "convert the line ends of the file")
    if not line:
        raise SourceError(f"{path} has no header line", "the first line of a CSV file names its columns")
    separator = _separator(file)
    text, stops = line + b"\n" + _PADDING, np.array([len(line)])
    for fields in range(line.count(bytes([separator])) + 1, 0, -1):  # separators inside quotes leave fewer fields
        starts, ends, lengths = _split(text, 0, stops, separator, np.arange(fields))
        if ends[0, 0] >= 0:
            cells = [_column(text, *each) for each in zip(starts, ends, lengths, strict=True)]
            names = [cell[0].as_py() or b"" for cell in cells]
            break
    else:
        raise SourceError(f"{path}: the header line has a broken quote", 'write names with commas as "first, last"')
    try:
        return [name.decode("utf-8").strip() for name in names]
    except UnicodeDecodeError:
        raise SourceError(f"{path}: the header line is not UTF-8 text", "convert the file to UTF-8") from None


def column_names(file: DataFile, layout: Csv) -> list[str]:
    """The names of all columns: as declared, or from the first line."""
    return header(file) if layout.columns is None else list(layout.columns)


def batches(
    file: DataFile, wanted: Sequence[str], progress: Callable[[float], None], layout: Csv
) -> Iterator[pa.RecordBatch]:
    """The wanted columns that the file has, as binary arrays; `progress` receives the fraction of bytes read."""
    names = column_names(file, layout)
    picked = [(name, names.index(name)) for name in wanted if name in names]
    separator, most = _separator(file), max(1, _MOST_FIELDS // len(names))
    with file.text() as (stream, read):
        if layout.columns is None:
            stream.readline(_LONGEST_LINE)
        elif stream.peek(len(_MARK))[: len(_MARK)] == _MARK:
            stream.read(len(_MARK))
        find = _quoted_breaks(separator) if layout.multiline else _line_breaks
        slots = np.full(len(names), -1)
        for slot, (_, index) in enumerate(picked):
            slots[index] = slot
        wanted = [name for name, _ in picked]
        blocks = _whole_records(stream, find, lambda: progress(read()))
        yield from _ahead(partial(_batch, *part, separator, slots, wanted) for part in _shorter(blocks, most))


def _shorter(blocks: Iterable[tuple[bytes, Places]], most: int) -> Iterator[tuple[bytes, int, Places]]:
    """At most so many records of each block, which limits the memory that very short records need: the block, where
    they begin, and where each of them ends.
    """
    for text, stops in blocks:
        for first in range(0, len(stops), most):
            yield text, int(stops[first - 1]) + 1 if first else 0, stops[first : first + most]


def _ahead(jobs: Iterable[Callable[[], pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The results in order; threads work on the next ones meanwhile."""
    threads = min(_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="dpsketch-csv") as pool:
        waiting: deque[Future[pa.RecordBatch]] = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


Breaks = Callable[[bytes], Places]


def _line_breaks(block: bytes) -> Places:
    return np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)


def _quoted_breaks(separator: int) -> Breaks:
    """Find line breaks outside quotes, in one block after the other."""
    from dpsketch.engines.csv_kernels import record_ends

    state = np.zeros(1, np.int64)

    def find(block: bytes) -> Places:
        ends = np.empty(block.count(b"\n"), np.int64)
        return ends[: record_ends(np.frombuffer(block, np.uint8), separator, state, ends)]

    return find


def _whole_records(file: BinaryIO, find: Breaks, read: Callable[[], None]) -> Iterator[tuple[bytes, Places]]:
    """Blocks of whole records, padded, with the end of each. A record that is too long becomes a broken one: a lone
    quote.
    """
    waiting: list[bytes] = []
    length = 0
    while block := file.read(_BLOCK):
        read()
        stops = find(block)
        if len(stops):
            first, end = int(stops[0]), int(stops[-1]) + 1
            if length + first > _LONGEST_LINE:
                waiting, length, block, stops, end = [b'"'], 1, block[first:], stops - first, end - first
            yield b"".join([*waiting, block[:end], _PADDING]), stops + length
            waiting, length = [block[end:]], len(block) - end
        else:
            length += len(block)
            if length <= _LONGEST_LINE:
                waiting.append(block)
    if length:
        last = b'"' if length > _LONGEST_LINE else b"".join(waiting)
        yield last + b"\n" + _PADDING, np.array([len(last)])


def _separator(file: DataFile) -> int:
    return ord("\t") if file.tabs else ord(",")


def _batch(
    text: bytes, start: int, stops: Places, separator: int, slots: Places, names: Sequence[str]
) -> pa.RecordBatch:
    """The records of a text, from `start` on; field f of each is column slots[f], or none where that is negative."""
    starts, ends, lengths = _split(text, start, stops, separator, slots)
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * starts.shape[1], pa.struct([])))
    columns = [_column(text, *each) for each in zip(starts, ends, lengths, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _split(
    text: bytes, start: int, stops: Places, separator: int, slots: Places
) -> tuple[NDArray[np.int32], NDArray[np.int32], Places]:
    """Where the cells of every column start and end, and the bytes of each column."""
    from dpsketch.engines.csv_kernels import scan

    columns = int(slots.max()) + 1
    starts, ends = (np.empty((columns, len(stops)), np.int32) for _ in range(2))
    lengths = np.zeros(columns, np.int64)
    buffer, stops = np.frombuffer(text, np.uint8), np.ascontiguousarray(stops)
    records = scan(buffer, start, stops, separator, slots, starts, ends, lengths)
    return starts[:, :records], ends[:, :records], lengths


def _column(text: bytes, starts: NDArray[np.int32], ends: NDArray[np.int32], length: int) -> pa.Array:
    """Copy one field of every record into an Arrow array; missing where the field is empty or the record is broken."""
    from dpsketch.engines.csv_kernels import copy

    data, offsets = np.empty(length + len(_PADDING), np.uint8), np.zeros(len(starts) + 1, np.int64)
    present = np.empty(len(starts), np.bool_)
    full = copy(np.frombuffer(text, np.uint8), starts, ends, data, offsets, present) == len(starts)
    valid = None if full else pa.array(present).buffers()[1]
    parts = [valid, pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), parts)
