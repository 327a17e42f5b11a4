"""Jaccard sums of a graph's neighbour sets, exact and from a released sketch."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse

import dpsketch as dps


def adjacency(edges: Path | pa.Table, nodes: int) -> scipy.sparse.csr_matrix:
    table = pq.read_table(edges) if isinstance(edges, Path) else edges
    source, target = table["src"].to_numpy(), table["dst"].to_numpy()
    matrix = scipy.sparse.csr_matrix((np.ones(len(source)), (source, target)), (nodes, nodes))
    matrix.data[:] = 1.0
    return matrix


def exact_sums(matrix: scipy.sparse.csr_matrix, queries: np.ndarray) -> np.ndarray:
    """Σ over nodes with an edge of |A ∩ B| / |A ∪ B|."""
    sizes = np.asarray(matrix.sum(axis=1)).ravel()
    common = (matrix[queries] @ matrix.T).tocoo()
    ratio = common.data / (sizes[queries][common.row] + sizes[common.col] - common.data)
    return np.bincount(common.row, ratio, len(queries))


def compare(edges: Path, nodes: int, sketch: Path, seed: int = 0) -> tuple[float, float, float]:
    """Σ|estimate − exact| / Σ exact over 500 random nodes, and mean and worst seconds of a single query."""
    matrix = adjacency(edges, nodes)
    active = np.flatnonzero(np.diff(matrix.indptr))
    queries = np.random.default_rng(seed).choice(active, 500, replace=False)
    view = dps.open(sketch)
    sets = [matrix.indices[matrix.indptr[q] : matrix.indptr[q + 1]] for q in queries]
    view.kernel_sum([sets[0]])
    found, seconds = [], []
    for ids in sets:
        start = time.perf_counter()
        found.append(float(view.kernel_sum([ids]).value[0]))
        seconds.append(time.perf_counter() - start)
    exact = exact_sums(matrix, queries)
    error = float(np.abs(np.array(found) - exact).sum() / exact.sum())
    return error, float(np.mean(seconds)), float(np.max(seconds))
