"""Random bytes as CSV: a line never changes another, blocks do not matter, no message quotes a cell."""

from __future__ import annotations

import csv as standard
import io
from pathlib import Path
from unittest.mock import patch

import numpy as np

from dpsketch.engines import csv
from dpsketch.engines.readers import read_batches, source_columns
from dpsketch.engines.sources.data_files import data_files
from dpsketch.errors import SourceError
from dpsketch.schema.schema import Csv
from dpsketch.schema.template import schema_template

PIECES = [
    b"a",
    b"7",
    b",",
    b",",
    b"\t",
    b'"',
    b'"',
    b'""',
    b"\r",
    b"\n",
    b"\n",
    b"\r\n",
    b"\xff",
    b"\x00",
    b" ",
    b"\xc3\xa9",
]
NAMES = ("a", "b", "c")
MARKER = "ZQX7"  # contained in every planted cell, and in no message
Rows = list[tuple[bytes | None, ...]]


def run_one(rng: np.random.Generator, folder: Path) -> None:
    path = folder / "t.csv"
    _lines(rng, path)
    _records(rng, path)
    _messages(rng, path)


def _lines(rng: np.random.Generator, path: Path) -> None:
    """Without `multiline`: the rows of a file are those of its lines, each read in its own file."""
    lines = [_bytes(rng).replace(b"\n", b"") for _ in range(rng.integers(0, 8))]
    path.write_bytes(b"\n".join(lines))
    together = _read(rng, path, Csv(columns=NAMES))
    alone: Rows = []
    for index, line in enumerate(lines):
        # A byte order mark counts only at the beginning of the file; the last line may lack its line break.
        path.write_bytes(b"\n" * min(index, 1) + line)
        rows = _read(rng, path, Csv(columns=NAMES))
        assert len(rows) == (0 if line in (b"", b"\r") else 1), "a line is a row"
        alone += rows
    assert together == alone, "a line changed another"


def _records(rng: np.random.Generator, path: Path) -> None:
    """With `multiline`: closed quotes are read as the standard library reads them, and nothing depends on blocks."""
    cells = [[_text(rng) for _ in NAMES] for _ in range(rng.integers(1, 6))]
    text = io.StringIO()
    standard.writer(text, quoting=standard.QUOTE_ALL).writerows(cells)
    path.write_bytes(text.getvalue().encode())
    layout = Csv(multiline=True, columns=NAMES)
    assert _read(rng, path, layout) == [tuple(cell.encode() or None for cell in row) for row in cells]
    path.write_bytes(_bytes(rng, 60))
    assert _read(rng, path, layout) == _read(rng, path, layout), "the size of blocks matters"


def _messages(rng: np.random.Generator, path: Path) -> None:
    """Whatever the first line contains, reading and `init` raise only messages without it."""
    path.write_bytes(_bytes(rng) + MARKER.encode() + _bytes(rng))
    for wanted in ("a", "zqx", "a7"):
        try:
            for _ in read_batches(path, [wanted], lambda share: None):
                pass
        except SourceError as error:
            assert MARKER not in str(error), "a message quotes the first line"  # noqa: PT017
    for header in (None, False, True):
        try:
            printed = schema_template(*source_columns(path, header))
        except SourceError as error:
            printed = str(error)
            assert MARKER not in printed, "a message quotes the first line"
        assert header or MARKER not in printed, "init prints the first line"


def _read(rng: np.random.Generator, path: Path, layout: Csv) -> Rows:
    rows: Rows = []
    with (
        patch.object(csv, "_BLOCK", int(rng.integers(1, 50))),
        patch.object(csv, "_MOST_FIELDS", int(rng.integers(1, 20))),
    ):
        for batch in csv.batches(data_files(path)[0], NAMES, lambda share: None, layout):
            rows += zip(*[batch.column(name).to_pylist() for name in NAMES], strict=True)
    return rows


def _bytes(rng: np.random.Generator, most: int = 20) -> bytes:
    return b"".join(PIECES[index] for index in rng.integers(0, len(PIECES), rng.integers(0, most)))


def _text(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list('a,"\r\n é'), rng.integers(0, 6)))
