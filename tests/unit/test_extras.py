"""What works without the optional packages, and what is said where one is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.extras import _NEEDED, extra

ROOT = Path(__file__).parents[2]
PINNED = ROOT / "tests" / "pinned"
BLOCK = """
import sys

absent = {"numba", "llvmlite", "sqlalchemy", "alembic", "dp_accounting", "mcp", "cairosvg"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import dpsketch as dps
"""
READ = """
view = dps.open(sys.argv[1])
assert repr(view) and view.statement
for question in ("count(*)", "avg(x)", "median(debt)", "corr(x, debt)", "stddev(debt)"):
    assert view.sql(f"select {question} from sketch").rows
assert view.sql("select group_, avg(debt) from sketch where debt > 10 group by group_").rows
assert view.sample(20).num_rows == 20
dps.PCA(1).fit(view)
dps.KMeans(2).fit(view)
"""
READY = """
for path in sys.argv[1:]:
    assert dps.open(path).sql("select count(*) from sketch").rows, path
"""
REFUSALS = """
calls = {
    "numba": lambda: dps.open(sys.argv[1]).mean("age"),
    "sqlalchemy": lambda: dps.release,
    "cairosvg": lambda: dps.PCA(1).fit(dps.open(sys.argv[2])).plot("picture.png"),
    "mcp": lambda: __import__("dpsketch.drivers.mcp_server"),
}
for call in calls.values():
    try:
        call()
    except dps.MissingExtraError as error:
        print(error.fact, "|", error.hint)
"""


def without_extras(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "ignore", "-c", BLOCK + code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env=os.environ)


def test_an_analyst_needs_no_extra(tmp_path: Path, rng: np.random.Generator) -> None:
    schema = dps.Schema.from_dict(
        {
            "privacy": {"rows": 2000},
            "columns": {
                "x": {"kind": "number", "lower": 0, "upper": 1},
                "debt": {"kind": "number", "lower": -1e4, "upper": 1e4, "transform": "asinh"},
                "group_": {"kind": "category", "values": ["a", "b"]},
            },
        }
    )
    table = pa.table(
        {"x": rng.random(2000), "debt": 50 * rng.standard_t(2, 2000), "group_": rng.choice(["a", "b"], 2000)}
    )
    budget, ledger = dps.Budget(2.0, 1e-6), dps.Ledger("sqlite://")
    ledger.grant("people", budget)
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=budget))
    dps.release(raw, budget, ledger, "people").save(tmp_path / "people.sketch")
    noises = dps.open(tmp_path / "people.sketch").released.releases[0].noises
    assert {noise.mechanism.value for noise in noises} == {"rounded Gaussian"}
    done = without_extras(READ, tmp_path / "people.sketch")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_release_but_hashed_counters_is_read_without_numba() -> None:
    paths = [path for path in sorted(PINNED.glob("*.sketch")) if "classify" not in path.name]
    done = without_extras(READY, *paths)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_package_is_one_line_and_a_command() -> None:
    done = without_extras(REFUSALS, PINNED / "mixed-classify-pure.sketch", PINNED / "ten-pca-pure.sketch")
    assert done.stdout.splitlines() == [
        "sketching a table, and reading hashed counters, needs Numba | pip install 'dpsketch[curate]'",
        "releasing a table, its ledger, and dpsketch:// addresses need SQLAlchemy | pip install 'dpsketch[curate]'",
        "drawing a PNG needs CairoSVG | pip install 'dpsketch[plot]'",
        "serving sketches to language models needs the MCP library | pip install 'dpsketch[agents]'",
    ], done.stderr


@pytest.mark.parametrize(("package", "message"), _NEEDED.items())
def test_every_package_is_in_the_extra_that_its_message_names(package: str, message: tuple[str, str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = [re.match(r"[\w-]+", line)[0].replace("-", "_") for line in extras[message[1]]]  # type: ignore[index]
    assert package in [*listed, "llvmlite"]  # a part of Numba
    with pytest.raises(dps.MissingExtraError, match=message[0]), extra():
        raise ModuleNotFoundError(f"No module named '{package}'", name=f"{package}.part")


def test_other_missing_modules_stay_what_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match="elsewhere"), extra():
        raise ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")
