"""The code of docs/tools.md runs on a release of the demo's table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy.dialects import registry

import dpsketch as dps
from dpsketch.cli.demo import SCHEMA, make_table

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hospital.toml").write_text(SCHEMA)
    schema, budget = dps.Schema.load("hospital.toml"), dps.Budget(4.0)
    ledger = dps.Ledger("sqlite://")
    ledger.grant("hospital", budget)
    raw = dps.accumulate(pa.table(make_table(5_000)), schema, dps.Recipe.general(schema, budget=budget))
    dps.release(raw, budget, ledger, "hospital").save("hospital.sketch")
    registry.register("dpsketch", "dpsketch.drivers.sqlalchemy_dialect", "Dialect")  # as the entry point does

    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = {}
    exec(first, found)
    assert found["names"] == ["ward", "age", "age_stderr"]
    assert len(found["rows"]) >= 2
    exec(second, found)
    assert list(found["frame"].columns) == ["ward", "n", "n_stderr"]
    assert [column["name"] for column in found["columns"]] == [column.name for column in schema.columns]
