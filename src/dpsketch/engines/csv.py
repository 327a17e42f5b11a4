"""CSV to Arrow batches of text, one line a record, whatever the line holds.

A general CSV reader lets a stray quote swallow the lines after it, and infers types from whole columns: one
cell would change how others are read. Here a line break always ends a record, a line with the wrong number of
fields or a broken quote is one record of missing cells, and every cell stays text. Empty lines are no records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from dpsketch.errors import SourceError

_BLOCK = 1 << 22
_LONGEST_LINE = 1 << 24
_MOST_FIELDS = 1 << 22
_NEWLINE = 10


def header(path: Path) -> list[str]:
    """Column names: the first line, which is public."""
    with open(path, "rb") as file:
        line = file.readline(_LONGEST_LINE)
    if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
        raise SourceError(f"{path}: the header line is too long", "the first line of a CSV file names its columns")
    line = line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    if b"\r" in line:  # without line feeds the whole file would be the header
        raise SourceError(f"{path}: lines must end with a line feed", "convert the line ends of the file")
    if not line:
        raise SourceError(f"{path} has no header line", "the first line of a CSV file names its columns")
    separator = _separator(path)
    buffer = np.frombuffer(line + b"\n", np.uint8)
    for fields in range(line.count(bytes([separator])) + 1, 0, -1):  # separators inside quotes leave fewer
        starts, ends, quoted = _split(buffer, 1, separator, fields)
        if ends[0, 0] >= 0:
            names = [_column(buffer, starts[i], ends[i], quoted[i])[0].as_py() or b"" for i in range(fields)]
            break
    else:
        raise SourceError(f"{path}: the header line has a broken quote", 'write names with commas as "first, last"')
    try:
        return [name.decode("utf-8").strip() for name in names]
    except UnicodeDecodeError:
        raise SourceError(f"{path}: the header line is not UTF-8 text", "convert the file to UTF-8") from None


def batches(path: Path, wanted: Sequence[str], progress: Callable[[float], None]) -> Iterator[pa.RecordBatch]:
    """The wanted columns that the file has, as binary arrays; `progress` gets the share of bytes read."""
    names = header(path)
    picked = [(name, names.index(name)) for name in wanted if name in names]
    separator, size = _separator(path), max(os.path.getsize(path), 1)
    most_lines = max(1, _MOST_FIELDS // len(names))
    with open(path, "rb") as file:
        file.readline(_LONGEST_LINE)
        for text in _whole_lines(file, lambda: progress(file.tell() / size)):
            for piece in _pieces(text, most_lines):
                yield _batch(piece, picked, separator, len(names))


def _whole_lines(file: BinaryIO, read: Callable[[], None]) -> Iterator[bytes]:
    """Blocks that end with a line break. A line that is too long becomes a broken one: a lone quote."""
    waiting: list[bytes] = []
    length = 0
    while block := file.read(_BLOCK):
        read()
        end = block.rfind(b"\n") + 1
        if end:
            first = block.find(b"\n")
            if length + first > _LONGEST_LINE:
                waiting, block, end = [b'"'], block[first:], end - first
            yield b"".join(waiting) + block[:end]
            waiting, length = [block[end:]], len(block) - end
        else:
            length += len(block)
            if length <= _LONGEST_LINE:
                waiting.append(block)
    if length:
        yield (b'"' if length > _LONGEST_LINE else b"".join(waiting)) + b"\n"


def _pieces(text: bytes, most_lines: int) -> Iterator[bytes]:
    """Cut into pieces of at most `most_lines` lines, so that very short lines do not need very much memory."""
    breaks = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE) + 1
    cuts = [0, *breaks[most_lines - 1 :: most_lines].tolist()]
    if cuts[-1] != len(text):
        cuts.append(len(text))
    for start, stop in pairwise(cuts):
        yield text[start:stop]


def _separator(path: Path) -> int:
    return ord("\t") if path.suffix.lower() == ".tsv" else ord(",")


def _batch(text: bytes, picked: Sequence[tuple[str, int]], separator: int, fields: int) -> pa.RecordBatch:
    buffer = np.frombuffer(text, np.uint8)
    starts, ends, quoted = _split(buffer, text.count(b"\n"), separator, fields)
    arrays = [_column(buffer, starts[i], ends[i], quoted[i]) for _, i in picked]
    schema = pa.schema([(name, pa.large_binary()) for name, _ in picked])
    if not picked:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * starts.shape[1], pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _split(buffer: np.ndarray, lines: int, separator: int, fields: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts = np.zeros((fields, lines), np.int64)
    ends = np.full((fields, lines), -1, np.int64)
    quoted = np.zeros((fields, lines), np.bool_)
    from dpsketch.engines.csv_kernels import scan

    records = scan(buffer, separator, starts, ends, quoted)
    return starts[:, :records], ends[:, :records], quoted[:, :records]


def _column(buffer: np.ndarray, starts: np.ndarray, ends: np.ndarray, quoted: np.ndarray) -> pa.Array:
    """Copy one field of every record into an Arrow array; missing where the field is empty or the line broken."""
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    data = np.empty(int(np.maximum(ends - starts, 0).sum()), np.uint8)
    offsets = np.zeros(len(starts) + 1, np.int64)
    from dpsketch.engines.csv_kernels import copy

    used = copy(buffer, starts, ends, np.ascontiguousarray(quoted), data, offsets)
    valid = pa.array(ends > starts)
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts), [valid.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(data[:used])]
    )
