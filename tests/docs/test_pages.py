"""The commands and the code of the README run, and links in the docs lead somewhere."""

from __future__ import annotations

import pydoc
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_readme_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 140] == []


def test_the_transcript_and_the_python_example_run(tmp_path: Path) -> None:
    """As pasted: one line after the other, in one folder."""
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) >= 5
    for command in commands:
        words = [str(Path(sys.executable).with_name("dpsketch")), *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_every_pitfall_has_a_source_a_remedy_and_a_test() -> None:
    _, *sections = re.split(r"^## ", (ROOT / "docs" / "pitfalls.md").read_text(), flags=re.MULTILINE)
    assert len(sections) > 15
    assert sections.pop().startswith("Left to the curator")
    faults = re.findall(r"^\| (?!what|---).*\|$", sections.pop(), flags=re.MULTILINE)
    assert len(faults) > 30
    assert all("`tests/" in fault or "the whole suite" in fault for fault in faults)
    for section in sections:
        problem, remedy, test = re.fullmatch(
            r".*\*\*What goes wrong\*\*(.*)\*\*Here\.\*\*(.*)\*\*Shown by\*\*(.*)", section, re.DOTALL
        ).groups()  # type: ignore[union-attr]
        assert re.search(r"\b[A-Z]\w+\b[^()]* (19|20)\d\d\b", problem), section
        assert remedy.strip()
        assert "`tests/" in test or "no test: out of scope" in test, section


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "src" / "dpsketch").iterdir():
        if path.name not in ("__init__.py", "__pycache__", "py.typed"):
            assert f"`{path.name}{'/' if path.is_dir() else ''}`" in text or f"→ {path.stem}" in text, path


def test_the_schema_of_the_docs_is_valid(tmp_path: Path) -> None:
    import dpsketch as dps

    text, _ = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "schema.md").read_text(), re.DOTALL)
    (tmp_path / "s.toml").write_text(text)
    schema = dps.Schema.load(tmp_path / "s.toml")
    assert [column.kind for column in schema.columns] == [
        "integer",
        "number",
        "code",
        "category",
        "boolean",
        "datetime",
        "set",
    ]
    assert schema.max_rows_per_unit == 5


def test_the_computed_columns_of_the_docs_are_computed(tmp_path: Path) -> None:
    import math

    import pyarrow as pa

    import dpsketch as dps

    _, text = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "schema.md").read_text(), re.DOTALL)
    (tmp_path / "s.toml").write_text("[privacy]\nrows = 3\n" + text)
    schema = dps.Schema.load(tmp_path / "s.toml")
    table = pa.table(
        {
            "pickup": ["2024-03-01T07:59:00", "2024-03-01T08:00:00", "2024-03-02T08:30:00"],
            "age": [17, 18, 64],
            "weight": [50.0, 80.0, 60.0],
            "height_squared": [2.5, 0.0, 3.0],
        }
    )
    recipe = dps.Recipe([dps.Part(dps.Histogram(columns=[column.name]), 0.2) for column in schema.columns])
    view = dps.View(dps.release(dps.accumulate(table, schema, recipe), dps.Budget(math.inf)))
    assert round(view.count("hour(pickup) = 8").value) == 2
    assert [label for (label,) in view.sql("select distinct age_group from sketch").rows] == [
        "under 18",
        "18-39",
        "40-64",
    ]
    assert round(view.count("bmi is null").value) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_code_exists(page: Path) -> None:
    for name in set(re.findall(r"`(dpsketch(?:\.\w+)+)`", page.read_text())):
        found = pydoc.locate(name)
        assert found is not None, name
