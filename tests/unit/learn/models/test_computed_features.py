"""Models of computed columns: rows hold the columns, or what these are computed from."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.learn.saved import save_model

COLUMNS = {
    "pickup": {"kind": "datetime", "lower": "2024-01-01", "upper": "2025-01-01"},
    "hour": {"from": "pickup", "part": "hour"},
    "fare": {"kind": "number", "lower": 0, "upper": 100},
}


def table() -> pa.Table:
    rng = np.random.default_rng(5)
    pickup = np.datetime64("2024-03-01", "us") + rng.integers(0, 200_000, 2000).astype("m8[m]")
    hours = (pickup - pickup.astype("M8[D]")).astype("m8[h]").astype(float)
    return pa.table({"pickup": pickup, "fare": 20 + 2 * hours + rng.normal(0, 1, 2000)})


def model() -> dps.LinearRegression:
    schema = dps.Schema.from_dict({"privacy": {"rows": 2000}, "columns": COLUMNS})
    parts = [dps.Part(dps.Count(), 0.1), dps.Part(dps.Marginals(), 0.4), dps.Part(dps.SecondMoments(), 0.5)]
    raw = dps.accumulate(table(), schema, dps.Recipe(parts))
    return dps.LinearRegression("fare", ["hour"]).fit(dps.View(dps.release(raw, dps.Budget(math.inf))))


def test_rows_hold_either() -> None:
    fitted = model()
    given = fitted.predict({"hour": [0, 10]})
    assert given == pytest.approx([20, 40], abs=0.5)
    assert fitted.predict({"pickup": ["2024-03-01", "2024-03-01T10:59"]}).tolist() == given.tolist()
    assert fitted.input_columns == ("hour",)
    assert fitted.table_columns == ("pickup",)


def test_files_are_scored_by_what_columns_are_computed_from(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "m.model")
    pq.write_table(table().select(["pickup"]), tmp_path / "t.parquet")
    words = ["score", tmp_path / "m.model", tmp_path / "t.parquet", "-o", tmp_path / "s.parquet"]
    subprocess.run([sys.executable, "-m", "dpsketch", *map(str, words)], check=True, capture_output=True)
    assert len(pq.read_table(tmp_path / "s.parquet")) == 2000
