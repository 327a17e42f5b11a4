"""CSV to Arrow batches of text, one line per record, whatever the line contains.

A general CSV reader lets a stray quote swallow the lines after it, and infers types from whole columns, so that one
cell would change how others are read. Here a line break always ends a record, a line with the wrong number of fields or
a broken quote is one record of missing cells, and every cell stays text. Empty lines are not records. Only if the
schema declares it (`csv.multiline`) may a quoted cell contain line breaks. That every quote is closed is then an
assumption, which the privacy statement names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    buffer = np.frombuffer(line + b"\n", np.uint8)
    stops = np.array([len(line)])
    for fields in range(line.count(bytes([separator])) + 1, 0, -1):  # separators inside quotes leave fewer fields
        starts, ends, quoted = _split(buffer, stops, separator, fields)
        if ends[0, 0] >= 0:
            names = [_column(buffer, starts[i], ends[i], quoted[i])[0].as_py() or b"" for i in range(fields)]
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
        for text, stops in _whole_records(stream, find, lambda: progress(read())):
            for first in range(0, len(stops), most):  # limits the memory that very short records need
                part = stops[first : first + most]
                start = stops[first - 1] + 1 if first else 0
                yield _batch(text[start : part[-1] + 1], part - start, picked, separator, len(names))


Breaks = Callable[[bytes], NDArray[np.int64]]


def _line_breaks(block: bytes) -> NDArray[np.int64]:
    return np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)


def _quoted_breaks(separator: int) -> Breaks:
    """Find line breaks outside quotes, in one block after the other."""
    from dpsketch.engines.csv_kernels import record_ends

    state = np.zeros(1, np.int64)

    def find(block: bytes) -> NDArray[np.int64]:
        ends = np.empty(block.count(b"\n"), np.int64)
        return ends[: record_ends(np.frombuffer(block, np.uint8), separator, state, ends)]

    return find


def _whole_records(file: BinaryIO, find: Breaks, read: Callable[[], None]) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
    """Blocks of whole records with the end of each. A record that is too long becomes a broken one: a lone quote."""
    waiting: list[bytes] = []
    length = 0
    while block := file.read(_BLOCK):
        read()
        stops = find(block)
        if len(stops):
            first, end = int(stops[0]), int(stops[-1]) + 1
            if length + first > _LONGEST_LINE:
                waiting, length, block, stops, end = [b'"'], 1, block[first:], stops - first, end - first
            yield b"".join(waiting) + block[:end], stops + length
            waiting, length = [block[end:]], len(block) - end
        else:
            length += len(block)
            if length <= _LONGEST_LINE:
                waiting.append(block)
    if length:
        last = b'"' if length > _LONGEST_LINE else b"".join(waiting)
        yield last + b"\n", np.array([len(last)])


def _separator(file: DataFile) -> int:
    return ord("\t") if file.tabs else ord(",")


def _batch(
    text: bytes, stops: NDArray[np.int64], picked: Sequence[tuple[str, int]], separator: int, fields: int
) -> pa.RecordBatch:
    buffer = np.frombuffer(text, np.uint8)
    starts, ends, quoted = _split(buffer, stops, separator, fields)
    arrays = [_column(buffer, starts[i], ends[i], quoted[i]) for _, i in picked]
    schema = pa.schema([(name, pa.large_binary()) for name, _ in picked])
    if not picked:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * starts.shape[1], pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _split(
    buffer: np.ndarray, stops: NDArray[np.int64], separator: int, fields: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts = np.zeros((fields, len(stops)), np.int64)
    ends = np.full((fields, len(stops)), -1, np.int64)
    quoted = np.zeros((fields, len(stops)), np.bool_)
    from dpsketch.engines.csv_kernels import scan

    records = scan(buffer, np.ascontiguousarray(stops), separator, starts, ends, quoted)
    return starts[:, :records], ends[:, :records], quoted[:, :records]


def _column(buffer: np.ndarray, starts: np.ndarray, ends: np.ndarray, quoted: np.ndarray) -> pa.Array:
    """Copy one field of every record into an Arrow array; missing where the field is empty or the line is broken."""
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    data = np.empty(int(np.maximum(ends - starts, 0).sum()), np.uint8)
    offsets = np.zeros(len(starts) + 1, np.int64)
    from dpsketch.engines.csv_kernels import copy

    used = copy(buffer, starts, ends, np.ascontiguousarray(quoted), data, offsets)
    valid = pa.array(ends > starts)
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts), [valid.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(data[:used])]
    )
