"""Plans from rows of an earlier release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import dpsketch as dps
from conftest import seeded_noise
from dpsketch.cli.app import app
from dpsketch.errors import QueryError

ROWS = 20_000
FACTS = {
    "privacy": {"unit": "person", "max_rows_per_unit": 1, "rows": ROWS},
    "columns": {
        "ward": {"kind": "category", "values": ["a", "b", "c"]},
        "cost": {"kind": "number", "lower": 0, "upper": 100_000},
    },
}
TOML = """
[privacy]
unit = "person"
max_rows_per_unit = 1
rows = 20000
[columns.ward]
kind = "category"
values = ["a", "b", "c"]
[columns.cost]
kind = "number"
lower = 0
upper = 100_000
"""
# Nearly all costs are far below the bound: the schema alone cannot know.
QUERY = "select avg(cost) from sketch where ward = 'c'"


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(4)
    ward = random.choice(["a", "b", "c"], ROWS, p=[0.7, 0.28, 0.02])
    return pa.table({"person": np.arange(ROWS), "ward": ward, "cost": random.gamma(2.0, 300.0, ROWS)})


def release(table: pa.Table, epsilon: float) -> dps.View:
    schema, budget = dps.Schema.from_dict(FACTS), dps.Budget(epsilon)
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=budget))
    with seeded_noise():
        return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "wards"))


def test_an_earlier_release_says_what_the_schema_cannot(table: pa.Table) -> None:
    earlier, schema = release(table, 2.0), dps.Schema.from_dict(FACTS)
    stated = release(table, 8.0).sql(QUERY).rows[0][0].stderr
    (like,) = dps.plan(schema, [QUERY], [dps.Budget(8.0)], like=earlier).predictions
    (blind,) = dps.plan(schema, [QUERY], [dps.Budget(8.0)]).predictions
    assert stated / 2 < like.error < 2 * stated
    assert not stated / 3 < blind.error < 3 * stated
    again = dps.plan(schema, [QUERY], [dps.Budget(8.0)], like=earlier).predictions
    assert again == (like,)


def test_a_release_of_other_columns_is_refused(table: pa.Table) -> None:
    columns = FACTS["columns"] | {"cost": {"kind": "number", "lower": 0, "upper": 5000}}
    schema = dps.Schema.from_dict(FACTS | {"columns": columns})
    with pytest.raises(QueryError, match="does not hold column 'cost' as this schema declares it"):
        dps.plan(schema, [QUERY], [dps.Budget(1.0)], like=release(table, 1.0))


def test_from_the_command_line(table: pa.Table, tmp_path: Path) -> None:
    path, schema = tmp_path / "earlier.sketch", tmp_path / "schema.toml"
    release(table, 2.0).released.save(path)
    schema.write_text(TOML)
    options = ["plan", "--schema", str(schema), "--epsilon", "8", "--query", QUERY, "--like", str(path)]
    found = CliRunner().invoke(app, options)
    assert found.exit_code == 0, found.output
    assert "rows drawn from the earlier release" in " ".join(found.output.split())
