"""One pass over a Dask data frame, or over files, on the workers of a Dask cluster.

Every partition is folded into partial sums by a task of its own; these are merged in a tree, and the total goes to the
process that called. Partial sums are secret: they live in the memory of workers, and are neither cached nor written.
A task that is lost runs again as a whole, and only one of its results is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch.engines.engine import PartialSums, Pass, Share
from dpsketch.engines.readers import Progress, opened
from dpsketch.engines.sources.files import FilePart, Files
from dpsketch.engines.sources.objects import Objects
from dpsketch.engines.sources.source import check_columns, plain_errors
from dpsketch.errors import SourceError
from dpsketch.extras import extra

_SHARES = 64
_MERGED_AT_ONCE = 8


@dataclass(frozen=True)
class Dask:
    """The workers of a Dask cluster: `client` is a `distributed.Client`, by default that of the address `scheduler`, or
    the current one.

    Files are read by the workers with dpsketch's own readers, so all of them must reach the files; dpsketch must be
    installed there. `shares` is the number of shares into which units are gathered, if the schema has a unit column.
    """

    client: Any = None
    shares: int = _SHARES
    scheduler: str | None = None

    def run(self, one_pass: Pass, source: Any, progress: Progress) -> PartialSums:
        with extra():
            from dask import delayed

        parts = _parts(one_pass, source)
        if one_pass.needs_whole_units:
            share_of = [delayed(partial(_shared, one_pass, self.shares), nout=self.shares)(part) for part in parts]
            groups = [(Share(index, self.shares), [each[index] for each in share_of]) for index in range(self.shares)]
        elif one_pass.needs_whole_table:
            groups = [(Share(0, 1), parts)]
        else:
            groups = [(Share(0, 1), [part]) for part in parts]
        partials = [delayed(partial(_folded, one_pass, share))(held) for share, held in groups]
        while len(partials) > 1:
            starts = range(0, len(partials), _MERGED_AT_ONCE)
            partials = [delayed(_merged)(partials[start : start + _MERGED_AT_ONCE]) for start in starts]
        total: PartialSums
        if not partials:
            total = one_pass.empty()
        else:
            with (
                plain_errors("Dask failed", "see the workers' own logs; nothing was spent"),
                self._connected() as client,
            ):
                total = partials[0].compute() if client is None else client.compute(partials[0]).result()
        progress(1.0)
        return total

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self.client is not None or self.scheduler is None:
            yield self.client
            return
        with extra():
            from distributed import Client
        with Client(self.scheduler) as client:
            yield client


def _parts(one_pass: Pass, source: Any) -> list[Any]:
    """Tasks that return parts of the table: pandas frames, or parts of files."""
    from dask import delayed

    if hasattr(source, "to_delayed"):
        check_columns("the data frame", [str(name) for name in source.columns], one_pass.columns)
        texts = [column.name for column in one_pass.schema.sets if "string" in str(source.dtypes[column.name])]
        if texts:
            raise SourceError(
                f"Dask has turned the lists of column '{texts[0]}' into text",
                "make the data frame with dask.config.set({'dataframe.convert-string': False})",
            )
        return list(source[one_pass.columns].to_delayed())
    files = opened(source, one_pass.schema.csv)
    if not isinstance(files, Files):
        raise SourceError(
            f"Dask cannot spread a {type(source).__name__} over its workers",
            "read it with Dask and pass the data frame, or name CSV or Parquet files that all workers reach",
        )
    files.check(one_pass.columns)
    return [delayed(part, traverse=False) for part in files.parts()]


def _batches(one_pass: Pass, part: Any) -> Iterator[pa.RecordBatch]:
    read = part if isinstance(part, FilePart) else Objects(part)
    sets = [column.name for column in one_pass.schema.sets]
    return read.batches(one_pass.columns, sets, lambda share: None)


def _shared(one_pass: Pass, count: int, part: Any) -> list[list[pa.RecordBatch]]:
    """The rows of a part by the share that they belong to."""
    held: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    for batch in _batches(one_pass, part):
        shares = one_pass.row_shares(batch, count)
        for number in np.unique(shares):
            held[number].append(batch.filter(pa.array(shares == number)))
    return held


def _folded(one_pass: Pass, share: Share, parts: Iterable[Any]) -> PartialSums:
    return one_pass.partial((batch for part in parts for batch in _batches(one_pass, part)), share)


def _merged(partials: Sequence[PartialSums]) -> PartialSums:
    return reduce(PartialSums.merge, partials)
