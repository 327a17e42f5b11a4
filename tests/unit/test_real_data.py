"""Every real dataset with a declared schema goes the whole way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from conftest import DATA

MOST_ROWS, WHOLE = 50_000, "sf_cabs_2p8m"  # one large table is read as a whole
NAMES = sorted(path.stem for path in (DATA / "schemas").glob("*.toml")) or ["missing"]


@pytest.mark.parametrize("name", NAMES)
def test_release_and_ask(name: str, dataset_path: Path, tmp_path: Path) -> None:
    schema, budget = dps.Schema.load(dataset_path / "schemas" / f"{name}.toml"), dps.Budget(10.0)
    source = dataset_path / f"{name}.parquet"
    if pq.ParquetFile(source).metadata.num_rows > MOST_ROWS and name != WHOLE:
        first = next(pq.ParquetFile(source).iter_batches(MOST_ROWS))
        source = tmp_path / "t.parquet"
        pq.write_table(pa.Table.from_batches([first]), source)
    raw = dps.accumulate(source, schema, dps.Recipe.general(schema, budget=budget, frequencies=20))
    dps.release(raw, budget, dps.Ledger("sqlite://"), name).save(tmp_path / "a.sketch")
    view = dps.open(tmp_path / "a.sketch")
    rows = pq.ParquetFile(source).metadata.num_rows
    assert abs(view.count().value - rows) < 12 * view.count().stderr
    for column in schema.scalars[:3]:
        if column.numeric and column.kind != "datetime":
            exact = pq.read_table(source, columns=[column.name])[column.name].to_numpy().astype(float)
            low, high = column.values_of(np.array([-32767, 32767]))
            answer = view.mean(column.name)
            # Within the noise and half a bin: the answer's stated error does not cover the spread inside bins.
            edges = column.values_of(np.linspace(-32767, 32767, 129).astype(np.int16))
            assert abs(answer.value - np.nanmean(np.clip(exact, low, high))) < 6 * answer.stderr + np.diff(edges).max()


def test_there_are_datasets(dataset_path: Path) -> None:
    assert len(NAMES) >= 15
