"""An engine as an author of one would write it: nothing of it is in the library."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch.engines.engine import PartialSums, Pass, Share
from dpsketch.engines.readers import Progress


def folded(pickled: bytes, batches: Sequence[pa.RecordBatch], share: Share) -> bytes:
    """What a worker on another machine does: bytes come in, bytes go out."""
    one_pass: Pass = pickle.loads(pickled)
    return pickle.dumps(one_pass.partial(batches, share))


@dataclass(frozen=True)
class Shuffled:
    """Runs of rows go to their shares in random order; partial sums are merged in a random tree."""

    shares: int = 3
    seed: int = 0

    def run(self, one_pass: Pass, source: Any, progress: Progress) -> PartialSums:
        rng, pickled = np.random.default_rng(self.seed), pickle.dumps(one_pass)
        pieces: list[list[pa.RecordBatch]] = [[] for _ in range(self.shares)]
        for batch in one_pass.batches(source, progress):
            shares = one_pass.row_shares(batch, self.shares)
            edges = np.union1d(np.flatnonzero(np.diff(shares)) + 1, np.arange(0, batch.num_rows, 97))
            stops = np.append(edges[1:], batch.num_rows)
            for run in rng.permutation(len(edges)):
                pieces[shares[edges[run]]].append(batch.slice(edges[run], stops[run] - edges[run]))
        jobs = [(pickled, piece, Share(index, self.shares)) for index, piece in enumerate(pieces)]
        partials = [pickle.loads(answer) for answer in self.map(jobs)]
        while len(partials) > 1:
            one, two = (partials.pop(rng.integers(len(partials))) for _ in range(2))
            partials.append(one.merge(two))
        return partials[0]

    def map(self, jobs: Sequence[tuple[bytes, list[pa.RecordBatch], Share]]) -> list[bytes]:
        return [folded(*job) for job in jobs]
