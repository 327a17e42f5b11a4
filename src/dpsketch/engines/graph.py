"""An edge list to sets of neighbours, out of core: one record for each node that has an edge.

Edges are spread over scratch files by a hash of their source, so that each file fits in memory; a file is then sorted
and its nodes' sets are complete. The scratch files contain the edges themselves. They have no names, so that nobody
else can open them and nothing is left of them when the process ends, however it ends. Memory grows with the largest
file, not with the number of edges.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.arrow import sorted_distinct, whole_numbers
from dpsketch.engines.readers import Progress, read_batches
from dpsketch.engines.sources.source import Columns
from dpsketch.errors import SourceError

FILES = 64
MOST_NODES = 2**31 - 2
COLUMN, NODE = "neighbours", "node"
_ROWS = 1 << 16
Pairs = NDArray[np.uint64]


@dataclass(frozen=True)
class EdgeList:
    """A graph as its edges, any source with two columns of node ids, 0 .. nodes-1.

    An edge whose source is not a node is dropped, as a row without a unit is. A target that is not a node is kept as
    the overflow id. With `undirected`, each edge counts in both directions.
    """

    edges: Any
    nodes: int
    source: str = "src"
    target: str = "dst"
    undirected: bool = False

    def __post_init__(self) -> None:
        check_nodes(self.nodes)

    @property
    def ends(self) -> list[str]:
        """The columns of an edge."""
        return [self.source, self.target]

    def columns(self) -> Columns:
        return [(COLUMN, pa.large_list(pa.int32()))]

    def batches(self, wanted: Sequence[str], sets: Collection[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        return self.sets(progress)

    def pairs(self, batch: pa.RecordBatch) -> Pairs:
        """The edges of a batch whose source is a node: source and target in one number each."""
        sources, targets = (_ids(batch.column(name), self.nodes) for name in self.ends)
        if self.undirected:
            sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        inside = sources < self.nodes
        return sources[inside] << np.uint64(32) | targets[inside]

    def sets(self, progress: Progress | None = None, named: bool = False) -> Iterator[pa.RecordBatch]:
        """Batches with one column, `neighbours`, of the targets of each source; if `named`, after a column `node`, for
        scoring nodes: a sketch never sees it.
        """
        with ExitStack() as stack:
            files = [stack.enter_context(_scratch_file()) for _ in range(FILES)]
            for batch in read_batches(self.edges, self.ends, progress or (lambda share: None)):
                _spill(self.pairs(batch), files)
            for file in files:
                with _needs_scratch():  # buffered data is written now
                    file.seek(0)
                pairs = np.fromfile(file, np.uint64)
                file.close()
                yield from sets_of(pairs, named)


def neighbour_sets(
    edges: Any,
    nodes: int,
    source: str = "src",
    target: str = "dst",
    undirected: bool = False,
    progress: Progress | None = None,
    named: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The neighbour sets of an `EdgeList`, on this machine."""
    return EdgeList(edges, nodes, source, target, undirected).sets(progress, named)


def by_source(pairs: Pairs, count: int) -> Iterator[tuple[int, Pairs]]:
    """Edges in `count` groups by a hash of their source: all edges of a source are in one."""
    hashes = ((pairs >> np.uint64(32)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(56)
    groups = hashes.astype(np.uint8) % count
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=count))[:-1]
    yield from enumerate(np.split(pairs[order], ends))


def check_nodes(nodes: object) -> None:
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MOST_NODES:
        raise SourceError(f"nodes must be a whole number from 1 to {MOST_NODES}, got {nodes!r} instead")


def graph_schema(nodes: int, undirected: bool) -> dict[str, Any]:
    """The schema of the neighbour sets, with the texts for its privacy statement."""
    lists, factor = ("two lists", 4) if undirected else ("one list", 2)
    note = (
        f"A record is one node's list of neighbours. One edge more or less changes {lists}: such a change is "
        f"protected by {factor} times epsilon, with a larger delta if there is one, or by {factor**2} times rho. "
        "A person who is in many lists is not protected as a whole."
    )
    return {
        "privacy": {"rows": nodes, "record": "neighbour list", "note": note},
        "columns": {COLUMN: {"kind": "set", "universe": nodes}},
    }


def _scratch_file() -> BinaryIO:
    with _needs_scratch():
        return tempfile.TemporaryFile()


@contextmanager
def _needs_scratch() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise SourceError(f"scratch files cannot be written: {reason}", "set TMPDIR to a folder with room") from None


def _ids(column: pa.Array, nodes: int) -> NDArray[np.uint64]:
    ids = whole_numbers(column)
    return np.where((ids >= 0) & (ids < nodes), ids, nodes).astype(np.uint64)


def _spill(pairs: Pairs, files: Sequence[BinaryIO]) -> None:
    """Append each pair to the file of its source."""
    for group, own in by_source(pairs, FILES):
        with _needs_scratch():
            files[group].write(own.data)


def sets_of(pairs: Pairs, named: bool = False) -> Iterator[pa.RecordBatch]:
    """All edges of some sources as sets, one per source."""
    pairs = sorted_distinct(pairs)
    sources = pairs >> np.uint64(32)
    targets = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int32)
    starts = np.append(np.flatnonzero(np.diff(sources, prepend=np.uint64(2**63))), len(pairs)).astype(np.int64)
    for first in range(0, len(starts) - 1, _ROWS):
        offsets = starts[first : first + _ROWS + 1]
        ids = pa.array(targets[offsets[0] : offsets[-1]])
        sets = pa.LargeListArray.from_arrays(pa.array(offsets - offsets[0]), ids)
        if not named:
            yield pa.RecordBatch.from_arrays([sets], names=[COLUMN])
            continue
        nodes = pa.array(sources[offsets[:-1]].astype(np.int64))
        yield pa.RecordBatch.from_arrays([nodes, sets], names=[NODE, COLUMN])
