"""Hints at what will be asked, from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import called
from dpsketch.cli.demo import SCHEMA, make_table

HINT = "age,cost; smoker,ward"
PAIRS = (("age", "cost"), ("ward", "smoker"))
RELEASE = (
    "release",
    "hospital.parquet",
    "--schema",
    "hospital.toml",
    "--epsilon",
    "1",
    "--ledger",
    "l.db",
    "--create-ledger",
)
HINTED = "select count(*) from sketch where age > 50 and cost > 3000"
OTHER = "select count(*) from sketch where sex = 'male' and pressure > 130"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table(make_table(3000)), tmp_path / "hospital.parquet")
    (tmp_path / "hospital.toml").write_text(SCHEMA)
    return tmp_path


def run(folder: Path, *words: str) -> tuple[str, str]:
    done = called(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def important(sketch: dps.RawSketch | dps.ReleasedSketch) -> tuple[tuple[tuple[str, str], ...] | None, int]:
    [pairs] = [part.map for part in sketch.recipe.parts if isinstance(part.map, dps.Pairs)]
    return pairs.important, pairs.times


def test_a_release_and_a_raw_sketch_follow_the_hint(folder: Path) -> None:
    """Seven columns have 21 pairs: two of them may count six times."""
    run(folder, *RELEASE, "--important", HINT, "-o", "a.sketch")
    assert important(dps.ReleasedSketch.load(folder / "a.sketch")) == (PAIRS, 6)
    run(folder, *RELEASE, "--dataset", "b", "-o", "b.sketch")
    assert important(dps.ReleasedSketch.load(folder / "b.sketch")) == (None, 1)
    run(folder, "accumulate", *RELEASE[1:6], "--important", HINT, "-o", "a.raw")
    assert important(dps.RawSketch.load(folder / "a.raw")) == (PAIRS, 6)
    table = pq.read_table(folder / "hospital.parquet").to_pandas()
    truth = int(((table["age"] > 50) & (table["cost"] > 3000)).sum())
    for name in "ab":
        answer = dps.open(folder / f"{name}.sketch").sql(HINTED).rows[0][0]
        assert abs(answer.value - truth) < 4 * answer.stderr < 2000


def test_the_command_line_overrides_the_schema(folder: Path) -> None:
    (folder / "hospital.toml").write_text('[workload]\nimportant = [["age", "sex"]]\n' + SCHEMA)
    words = ("accumulate", *RELEASE[1:6])
    for name, options, wanted in (
        ("schema", (), (("age", "sex"),)),
        ("shell", ("--important", HINT), PAIRS),
        ("none", ("--important", ""), None),
    ):
        run(folder, *words, *options, "-o", f"{name}.raw")
        assert important(dps.RawSketch.load(folder / f"{name}.raw"))[0] == wanted


def test_a_plan_shows_gains_and_costs(folder: Path) -> None:
    words = ("plan", "--schema", "hospital.toml", "--query", HINTED, "--query", OTHER, "--important", HINT)
    shown, _ = run(folder, *words, "--epsilon", "0.1")
    assert "without hint" in shown
    assert "Important columns have less noise than without the hint" in shown
    gain, cost = json.loads(run(folder, *words, "--epsilon", "0.1", "--json", "--simulations", "3")[0])["predictions"]
    assert gain["error"] < gain["without_hint"]
    assert cost["error"] > cost["without_hint"]
    plain = json.loads(run(folder, *words[:-2], "--epsilon", "0.1", "--json", "--simulations", "3")[0])["predictions"]
    assert [row["error"] for row in plain] == [gain["without_hint"], cost["without_hint"]]
    assert "without_hint" not in plain[0]
    assert "without hint" not in run(folder, *words[:-2], "--epsilon", "1")[0]


def test_a_hint_without_effect_is_told(folder: Path) -> None:
    words = ("plan", "--schema", "hospital.toml", "--rows", "300", "--epsilon", "0.1", "--query", HINTED)
    shown, told = run(folder, *words, "--important", HINT)
    assert "Warning: important pairs have no effect at epsilon 0.1: noise would hide pair tables" in told
    assert "without hint" not in shown
    _, told = run(folder, *RELEASE, "--rows", "30", "--important", HINT, "-o", "a.sketch")
    assert "Warning: important pairs have no effect at epsilon 1" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*RELEASE, "--for", "synthetic"), "--important is for the general recipe"),
        ((*RELEASE, "--clusters", "3"), "--important is for the general recipe"),
        ((*RELEASE, "--recipe", "r.toml"), "--important is for the general recipe"),
        (("plan", "--schema", "hospital.toml", "--recipe", "r.toml"), "--important is for the general recipe"),
        (("plan", "--schema", "hospital.toml", "--task", "synthetic"), "a task brings its own recipe"),
        (
            ("release", "a.raw", "--epsilon", "1", "--ledger", "l.db", "--create-ledger"),
            "a raw sketch brings its own schema and recipe",
        ),
    ],
)
def test_only_the_general_recipe_takes_hints(words: tuple[str, ...], message: str, folder: Path) -> None:
    output = () if words[0] == "plan" else ("-o", "new.sketch")
    said = called(folder, *words, "--important", HINT, *output)
    assert said.returncode == 1
    assert message in said.stderr
    assert "Hint: " in said.stderr
    assert not (folder / "new.sketch").exists()


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("age", "important: a group needs at least two columns, all different, got age"),
        ("age,", "important: there is no column ''"),
        ("age,cots", "important: there is no column 'cots'\nHint: did you mean 'cost'"),
    ],
)
def test_wrong_hints_are_refused(hint: str, message: str, folder: Path) -> None:
    said = called(folder, *RELEASE, "--important", hint, "-o", "new.sketch")
    assert said.returncode == 1
    assert message in said.stderr
