from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.engines import graph
from dpsketch.engines.graph import neighbour_sets
from dpsketch.errors import SourceError


def sets_of(batches: object) -> list[list[int]]:
    return sorted(row for batch in batches for row in batch.column("neighbours").to_pylist())  # type: ignore[attr-defined]


def expected(pairs: np.ndarray, nodes: int) -> list[list[int]]:
    found: dict[int, set[int]] = {}
    for source, target in pairs.tolist():
        if 0 <= source < nodes:
            found.setdefault(source, set()).add(target if 0 <= target < nodes else nodes)
    return sorted(sorted(row) for row in found.values())


@pytest.mark.parametrize("undirected", [False, True])
def test_sets_hold_every_edge_once(rng: np.random.Generator, undirected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Duplicates count once, in any order and batching; ids that are not nodes go to the overflow id or drop out."""
    monkeypatch.setattr(graph, "_ROWS", 7)
    pairs = rng.integers(-3, 60, (900, 2))
    table = pa.table({"src": pairs[:, 0], "dst": pairs[:, 1]})
    found = sets_of(neighbour_sets(table.to_batches(max_chunksize=100), 50, undirected=undirected))
    both = np.concatenate([pairs, pairs[:, ::-1]]) if undirected else pairs
    assert found == expected(both, 50)


def test_every_kind_of_cell_is_an_id_or_the_overflow() -> None:
    table = pa.table({"a": ["0", "1", "x", None, "1"], "b": [1.0, 0.5, 2.0, 0.0, 1e30]})
    assert sets_of(neighbour_sets(table, 3, "a", "b")) == [[1], [3]]


def test_edge_lists_in_csv_and_parquet_give_the_same_sums(tmp_path: Path, rng: np.random.Generator) -> None:
    pairs = rng.integers(0, 200, (5000, 2))
    table = pa.table({"src": pairs[:, 0].astype(np.int32), "dst": pairs[:, 1]})
    pq.write_table(table, tmp_path / "e.parquet")
    (tmp_path / "e.csv").write_text("src,dst\n" + "\n".join(f"{a},{b}" for a, b in pairs.tolist()))
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 200}, "columns": {"neighbours": {"kind": "set", "universe": 200}}}
    )
    recipe = dps.Recipe([dps.Part(dps.Race(rows=20, width=50, hash=dps.MinHash()), 1.0)])
    sums = [
        dps.accumulate(neighbour_sets(tmp_path / name, 200), schema, recipe).parts[0].sums
        for name in ("e.csv", "e.parquet")
    ]
    lists = pa.table({"neighbours": [sorted(set(pairs[pairs[:, 0] == node, 1].tolist())) for node in range(200)]})
    sums.append(dps.accumulate(lists, schema, recipe).parts[0].sums)
    assert (sums[0] == sums[1]).all()
    assert (sums[0] == sums[2]).all()


def test_scratch_files_have_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    batches = neighbour_sets(pa.table({"src": list(range(100)), "dst": [0] * 100}), 100)
    next(batches)
    assert not list(tmp_path.iterdir())


def test_a_full_scratch_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: open("/dev/full", "r+b"))  # noqa: SIM115
    with pytest.raises(SourceError, match="scratch files cannot be written: No space left on device"):
        next(neighbour_sets(pa.table({"src": list(range(100_000)), "dst": [0] * 100_000}), 100_000))


@pytest.mark.parametrize(("undirected", "times"), [(False, 2), (True, 4)])
def test_the_statement_says_what_is_protected(tmp_path: Path, undirected: bool, times: int) -> None:
    """A list, not a row of the edge list; the ledger keeps the two apart."""
    from dpsketch.sketch.privacy_statement import statement_text

    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 0]}), tmp_path / "e.parquet")
    schema = dps.Schema.from_dict(graph.graph_schema(5, undirected))
    recipe = dps.Recipe([dps.Part(dps.Race(rows=3, width=9, hash=dps.MinHash()), 1.0)])
    raw = dps.accumulate(neighbour_sets(tmp_path / "e.parquet", 5), schema, recipe)
    ledger = dps.Ledger("sqlite://")
    dps.release(raw, dps.Budget(1.0), ledger, "e").save(tmp_path / "e.sketch")
    text = statement_text(dps.ReleasedSketch.load(tmp_path / "e.sketch").statement)
    assert "every single neighbour list of the table" in text
    assert f"protected by {times} times epsilon" in text
    assert ledger.accounts()[0].unit == "neighbour list"


@pytest.mark.parametrize("nodes", [0, -1, 2.5, True, 2**31])
def test_the_number_of_nodes_is_checked(nodes: object) -> None:
    with pytest.raises(SourceError, match="nodes must be a whole number"):
        next(iter(neighbour_sets(pa.table({"src": [0], "dst": [0]}), nodes)))  # type: ignore[arg-type]
