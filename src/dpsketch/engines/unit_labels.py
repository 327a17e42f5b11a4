"""The exact numbers of units that have each label of a column: secret until `sketch.release` has added noise.

Guarantee: a unit counts at most once for a label and for at most c labels, which depend on that unit's rows alone, so
one unit changes the counts by at most c in L1. Source: docs/proofs/labels.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.arrow import texts, unit_ids
from dpsketch.encoding.layouts import Cells, cells_of, filled
from dpsketch.engines.readers import Progress, read_batches
from dpsketch.errors import SourceError
from dpsketch.schema.schema import Schema

LONGEST_LABEL = 100  # characters


def label_counts(source: Any, schema: Schema, column: str, progress: Progress) -> Counter[str]:
    """The number of units with each label of a stored column, which the schema need not declare.

    Without a unit column every row is a unit. Memory grows with the number of distinct labels and of units.
    """
    unit = schema.unit_column
    wanted = [column] if unit is None else [column, unit]
    batches = read_batches(source, wanted, progress, (), schema.csv)
    if unit is None:
        counts: Counter[str] = Counter()
        for batch in batches:
            labels, index = _read(column, batch)
            times = np.bincount(index[index >= 0], minlength=len(labels)).tolist()
            counts.update({label: times[place] for place, label in enumerate(labels) if label is not None})
        return +counts
    kept = _KeptLabels(schema.max_rows_per_unit)
    for batch in batches:
        for unit_id, label in _pairs(batch, column, unit, schema.unit_kind):
            kept.add(unit_id, label)
    return Counter(label for labels in kept.by_unit.values() for label in labels)


class _KeptLabels:
    """At most `most` labels of each unit: those with the smallest hashes of (unit, label), in any order of rows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.by_unit: dict[bytes, dict[str, bytes]] = {}

    def add(self, unit: bytes, label: str) -> None:
        held = self.by_unit.setdefault(unit, {})
        if label in held:
            return
        held[label] = _hash(unit, label)
        if len(held) > self._most:
            del held[max(held, key=lambda each: (held[each], each))]


def _hash(unit: bytes, label: str) -> bytes:
    """A hash of the label, keyed by the unit."""
    key = blake2b(unit, digest_size=32).digest()
    return blake2b(label.encode(), key=key, digest_size=16).digest()


def _pairs(batch: pa.RecordBatch, column: str, unit: str, kind: str) -> Iterator[tuple[bytes, str]]:
    """The distinct pairs of a unit and a label in a batch. Rows without either have none."""
    labels, index = _read(column, batch)
    ids, units = _distinct(unit_ids(batch.column(unit), kind))
    rows = (index >= 0) & (units >= 0)
    for pair in np.unique(units[rows] * max(len(labels), 1) + index[rows]).tolist():
        place, of_label = divmod(pair, len(labels))
        label = labels[of_label]
        if label is not None:
            yield ids[place], label


def _read(column: str, batch: pa.RecordBatch) -> tuple[list[str | None], NDArray[np.int64]]:
    """The distinct texts of a column, None for those that cannot be labels, and each row's index among them, −1 where
    its cell is missing. Cells are read as those of a category.
    """
    array = batch.column(column)
    cells = cells_of(array).used()
    if pa.types.is_nested(cells.values.type):
        raise SourceError(
            f"column '{column}' holds {array.type}, which has no labels", "name a column of text or numbers"
        )
    found, index = _distinct(Cells(texts(cells.values).view(pa.large_binary()), cells.index))
    return [as_label(cell) for cell in found], index


def as_label(cell: bytes) -> str | None:
    """The text of a cell as a schema may declare it; None if it cannot: too long, not printable or not Unicode."""
    try:
        label = cell.decode()
    except UnicodeDecodeError:
        return None
    fits = 0 < len(label) <= LONGEST_LABEL and label.isprintable() and label == label.strip()
    return label if fits else None


def _distinct(cells: Cells) -> tuple[list[bytes], NDArray[np.int64]]:
    """The distinct values of some cells, and each cell's index among them, −1 where it is missing."""
    encoded = cells.values.dictionary_encode()
    index = filled(encoded.indices, -1).astype(np.int64)
    if cells.index is not None:
        index = np.append(index, -1)[cells.index]
    return encoded.dictionary.to_pylist(), index
