"""One pass over a Spark data frame, or over files, on the executors of a Spark cluster.

Every task folds its rows into partial sums. These go in pieces through one shuffle, in which each piece is summed over
all tasks; the driver collects one piece after the other. Noise is added on the driver, after the pass. Works with
classic sessions and with Spark Connect.

Partial sums are secret: they are neither cached nor logged, and the columns that carry them have random names. Spark
writes shuffled data to the disks of its executors: set spark.io.encryption.enabled where others can read these.

A task may run several times. A recipe without sampled rows or masked features gives the same sums each time. One with
them draws afresh, so that pieces of two attempts must not be mixed: every piece carries the identities of the attempts
it is the sum of, and sums whose pieces disagree are refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpsketch.engines.engine import PartialSums, Pass, Share
from dpsketch.engines.graph import EdgeList, by_source, sets_of
from dpsketch.engines.readers import Progress, opened
from dpsketch.engines.sources.files import FilePart, Files
from dpsketch.engines.sources.source import check_columns
from dpsketch.errors import SourceError
from dpsketch.extras import extra
from dpsketch.maps.base import Sums
from dpsketch.schema.schema import Csv
from dpsketch.sketch import counters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PIECE_BYTES = 16 << 20  # far below the 128 MB that Spark Connect sends at once
_SHARES = 64
_ID_BYTES = 16

Rows = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Spark:
    """Executors of a Spark cluster. `session` is by default that of the data frame, or the active one.

    Files are read by the executors with dpsketch's own readers, so all of them must reach the files; dpsketch must be
    installed there. `shares` is the number of shares into which units are gathered, if the schema has a unit column.
    """

    session: SparkSession | None = None
    master: str | None = None
    shares: int = _SHARES

    def run(self, one_pass: Pass, source: Any, progress: Progress) -> PartialSums:
        graph = source if isinstance(source, EdgeList) else None
        names = one_pass.columns if graph is None else graph.ends
        frame, read = self._rows(source if graph is None else graph.edges, names, one_pass.schema.csv)
        pieces = _pieces(one_pass)
        columns = _Columns(*("c" + secrets.token_hex(8) for _ in range(3)))
        if graph is not None or one_pass.needs_whole_units:
            send = _sharing(one_pass, read, self.shares, columns)
            if graph is not None:
                send = _sharing_edges(replace(graph, edges=None), read, self.shares, columns)
            frame = frame.mapInArrow(send, f"{columns.number} int, {columns.data} binary")
            frame = frame.repartition(self.shares, columns.number).sortWithinPartitions(columns.number)
            read = _gathered(columns) if graph is None else _gathered_edges(columns)
        elif one_pass.needs_whole_table:
            frame = frame.repartition(1)
        layout = f"{columns.number} int, {columns.attempts} binary, {columns.data} binary"
        frame = frame.mapInArrow(_folding(one_pass, read, self.shares, pieces, columns), layout)
        frame = frame.repartition(min(len(pieces), self.shares), columns.number)
        frame = frame.mapInArrow(_merging(pieces, columns), layout)
        with _plain_errors():
            total = _collected(one_pass, frame, pieces)
        progress(1.0)
        return total

    def _rows(self, source: Any, names: list[str], layout: Csv) -> tuple[DataFrame, Read]:
        """A data frame of rows, or of numbers of parts of files, and what makes batches of shares out of it."""
        if is_frame(source):
            check_columns("the data frame", source.columns, names)
            return source.select(*(f"`{name.replace('`', '``')}`" for name in names)), _unshared
        files = opened(source, layout)
        if not isinstance(files, Files):
            raise SourceError(
                f"Spark cannot spread a {type(source).__name__} over its executors",
                "read it with Spark and pass the data frame, or name CSV or Parquet files that all executors reach",
            )
        files.check(names)
        parts = files.parts()
        return self._session().range(0, len(parts), 1, max(len(parts), 1)), _reading(parts, names)

    def _session(self) -> SparkSession:
        with extra():
            from pyspark.sql import SparkSession

        if self.session is not None:
            return self.session
        builder = SparkSession.builder
        return (builder if self.master is None else builder.master(self.master)).getOrCreate()


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Replace Spark's errors: their texts may contain cells. The condition is a fixed name, such as TASK_FAILED."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or type(error).__name__
        raise SourceError(f"Spark failed ({condition})", "see Spark's own log; nothing was released or spent") from None


def is_frame(source: Any) -> bool:
    """Whether a source is a data frame of Spark, classic or Connect."""
    kinds = type(source).__mro__
    return any(kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in kinds)


# What a task reads: batches of rows, each with the share that they belong to; share 0 where shares do not matter.
Read = Callable[[Rows], Iterable[tuple[int, Iterable[pa.RecordBatch]]]]


class _Columns(NamedTuple):
    """Names of the columns that carry secret sums or rows."""

    number: str
    attempts: str
    data: str


class _Piece(NamedTuple):
    """A range of the sums of one map."""

    map: int
    start: int
    stop: int
    narrow: bool


def _pieces(one_pass: Pass) -> list[_Piece]:
    pieces = []
    for number, sums in enumerate(one_pass.empty().sums):
        most = _PIECE_BYTES // sums.itemsize
        ranges = range(0, len(sums), most)
        pieces += [_Piece(number, start, min(start + most, len(sums)), counters.narrow(sums)) for start in ranges]
    return pieces


def _unshared(rows: Rows) -> Iterable[tuple[int, Iterable[pa.RecordBatch]]]:
    return [(0, rows)]


def _reading(parts: list[FilePart], names: list[str]) -> Read:
    def read(rows: Rows) -> Iterable[tuple[int, Iterable[pa.RecordBatch]]]:
        numbers = (number for batch in rows for number in batch.column(0).to_pylist())
        return [(0, (batch for number in numbers for batch in parts[number].batches(names, (), lambda share: None)))]

    return read


def _sharing(one_pass: Pass, read: Read, count: int, columns: _Columns) -> Callable[[Rows], Rows]:
    """Rows to their shares: a number, and the rows as an Arrow stream."""

    def share(rows: Rows) -> Rows:
        for _, batches in read(rows):
            for batch in batches:
                shares = one_pass.row_shares(batch, count)
                for number in np.unique(shares):
                    own = batch.filter(pa.array(shares == number))
                    yield pa.record_batch(
                        {columns.number: pa.array([number], pa.int32()), columns.data: [_written(own)]}
                    )

    return share


def _gathered(columns: _Columns) -> Read:
    def read(rows: Rows) -> Iterable[tuple[int, Iterable[pa.RecordBatch]]]:
        for number, group in _by_number(rows, columns):
            yield number, (batch for _, data in group for batch in pa.ipc.open_stream(data.as_buffer()))

    return read


def _sharing_edges(graph: EdgeList, read: Read, count: int, columns: _Columns) -> Callable[[Rows], Rows]:
    """Edges to the shares of their sources: a number, and the edges in eight bytes each."""

    def share(rows: Rows) -> Rows:
        for _, batches in read(rows):
            for batch in batches:
                for number, pairs in by_source(graph.pairs(batch), count):
                    if len(pairs):
                        data = [pairs.tobytes()]
                        yield pa.record_batch({columns.number: pa.array([number], pa.int32()), columns.data: data})

    return share


def _gathered_edges(columns: _Columns) -> Read:
    """The neighbour sets of the sources of a share."""

    def read(rows: Rows) -> Iterable[tuple[int, Iterable[pa.RecordBatch]]]:
        for _, group in _by_number(rows, columns):
            yield 0, sets_of(np.concatenate([np.frombuffer(data.as_buffer(), np.uint64) for _, data in group]))

    return read


def _by_number(rows: Rows, columns: _Columns) -> Iterator[tuple[int, Iterator[tuple[int, Any]]]]:
    """Runs of rows of one share, each a number and its data."""
    both = ((batch[columns.number].to_pylist(), batch[columns.data]) for batch in rows)
    pairs = (pair for numbers, data in both for pair in zip(numbers, data, strict=True))
    return groupby(pairs, itemgetter(0))


def _written(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _folding(one_pass: Pass, read: Read, count: int, pieces: list[_Piece], columns: _Columns) -> Callable[[Rows], Rows]:
    """The partial sums of a task, in pieces."""

    def fold(rows: Rows) -> Rows:
        from pyspark import TaskContext

        shared = count if one_pass.needs_whole_units else 1
        partials = [one_pass.partial(batches, Share(number, shared)) for number, batches in read(rows)]
        if not partials:
            return
        total = reduce(PartialSums.merge, partials)
        context = TaskContext.get()
        own = 0 if context is None else context.partitionId()
        attempt = own.to_bytes(4, "big") + (secrets.token_bytes(12) if one_pass.secret else bytes(12))
        for number, piece in enumerate(pieces):
            sums = total.sums[piece.map][piece.start : piece.stop]
            yield _row(columns, number, attempt, np.ascontiguousarray(sums).tobytes())

    return fold


def _merging(pieces: list[_Piece], columns: _Columns) -> Callable[[Rows], Rows]:
    """Each piece, summed over all tasks."""

    def merge(rows: Rows) -> Rows:
        held: dict[int, tuple[Sums, bytes]] = {}
        for batch in rows:
            numbers, attempts, data = (batch[name] for name in columns)
            for number, own, each in zip(numbers.to_pylist(), attempts.to_pylist(), data, strict=True):
                sums = _sums(pieces[number], each.as_buffer())
                if number in held:
                    before, others = held[number]
                    sums, own = counters.add(before, sums, pieces[number].narrow), others + own
                held[number] = (sums, own)
        for number, (sums, own) in held.items():
            yield _row(columns, number, own, sums.tobytes())

    return merge


def _sums(piece: _Piece, data: Any) -> Sums:
    if piece.narrow:
        return np.frombuffer(data, np.int32)
    return np.frombuffer(data, np.int64)


def _row(columns: _Columns, number: int, attempts: bytes, data: bytes) -> pa.RecordBatch:
    arrays = [pa.array([number], pa.int32()), pa.array([attempts], pa.binary()), pa.array([data], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _collected(one_pass: Pass, frame: DataFrame, pieces: list[_Piece]) -> PartialSums:
    """The sums on the driver, a piece at a time."""
    total, samples = one_pass.empty(), set()
    for number, attempts, data in frame.toLocalIterator():
        piece = pieces[number]
        total.sums[piece.map][piece.start : piece.stop] = _sums(piece, data)
        ids = [attempts[start : start + _ID_BYTES] for start in range(0, len(attempts), _ID_BYTES)]
        samples.add(frozenset(ids))
        if len(set(ids)) < len(ids) or len(samples) > 1:
            raise SourceError(
                "tasks ran again while rows or features were sampled, and the sums mix two samples",
                "run the pass again: nothing was released or spent",
            )
    return total
