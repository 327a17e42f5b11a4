"""Where the real datasets are."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("DPSKETCH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def slashdot() -> Path:
    return DATA / "graph_slashdot0902.parquet"
