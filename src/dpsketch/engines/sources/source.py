"""What every source offers: its columns, by name and stored type, and batches of the wanted ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import pyarrow as pa

from dpsketch.errors import DpsketchError, SourceError
from dpsketch.schema.schema import Csv, nearest

Progress = Callable[[float], None]
Columns = list[tuple[str, pa.DataType]]
READ_ROWS = 1 << 16
WITH_HEADER = Csv()


@runtime_checkable
class Source(Protocol):
    """A table that can be read once, in constant memory.

    Guarantee: a column's type in one part of the source never changes how another part is read, and no error contains a
    cell's content.
    """

    def columns(self) -> Columns:
        """Names and stored types. No value is read."""

    def batches(self, wanted: Sequence[str], sets: Collection[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        """The wanted columns. `sets` names those that contain lists of ids, which Python objects do not reveal."""


@contextmanager
def plain_errors(fact: str, hint: str | None = None) -> Iterator[None]:
    """Replace errors of other software, whose texts may contain cells or credentials; the library's own pass."""
    try:
        yield
    except (DpsketchError, GeneratorExit):
        raise
    except Exception as error:
        raise SourceError(f"{fact} ({type(error).__name__})", hint) from None


def check_columns(source: str, names: Sequence[str], wanted: Sequence[str], hint: str | None = None) -> None:
    """Refuse a table without the wanted columns, before any record is read. `hint` replaces names that may be cells."""
    for name in wanted:
        if name not in names:
            raise SourceError(f"{source} has no column '{name}'", hint or nearest(name, list(names)))
        if list(names).count(name) > 1:
            raise SourceError(f"{source} has several columns '{name}'", "give each column its own name")
