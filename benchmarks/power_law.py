"""A seeded power-law graph as a Parquet edge list: python -m benchmarks.power_law edges.parquet [NODES EDGES SEED].

The node of rank k starts an edge with probability ∝ k^-0.5 and ends one with probability ∝ k^-0.7, so out- and
in-degrees follow power laws with exponents 3 and 2.4. Some edges are drawn twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NODES, EDGES, SEED = 5_000_000, 104_000_000, 7
_BLOCK = 2_000_000
_SPREAD = 2_654_435_761  # odd and prime: ranks are spread over the ids, one to one unless it divides the nodes


def write_graph(path: Path, nodes: int = NODES, edges: int = EDGES, seed: int = SEED) -> None:
    rng = np.random.default_rng(seed)
    schema = pa.schema([("src", pa.int32()), ("dst", pa.int32())])
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        for start in range(0, edges, _BLOCK):
            count = min(_BLOCK, edges - start)
            columns = [
                (np.minimum(nodes * rng.random(count) ** power, nodes - 1).astype(np.int64) * _SPREAD % nodes)
                for power in (1 / 0.5, 1 / 0.3)
            ]
            writer.write_table(pa.table([pa.array(column, pa.int32()) for column in columns], schema=schema))


if __name__ == "__main__":
    write_graph(Path(sys.argv[1]), *[int(word) for word in sys.argv[2:]])
