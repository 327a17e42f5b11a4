"""What comes from files cannot steer a terminal: names are refused, other texts shown with escapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from command_line import called
from dpsketch.errors import FileError, QueryError, SchemaError, visible
from dpsketch.files.outputs import written
from dpsketch.sketch import container, file

# Escape, bell, delete, a C1 control, line breaks, changes of direction, of no width, a tag.
STEERING = (
    "\x1b[2J",
    "\a",
    "\x7f",
    "\x9b2J",
    "\r",
    "\n",
    "\u2028",
    "\u202e",
    "\u2066",
    "\u200b",
    "\ufeff",
    "\U000e0041",
)
ORDINARY = ("Größe", "年齢", "a b", "a\u00a0b", "e\u0301", "🙂")


def facts(**privacy: Any) -> dict[str, Any]:
    return {"privacy": {"rows": 10} | privacy, "columns": {"ok": {"kind": "boolean"}}}


@pytest.mark.parametrize("text", STEERING)
def test_names_have_no_character_that_cannot_be_seen(text: str) -> None:
    named = facts() | {"columns": {f"a{text}b": {"kind": "boolean"}}}
    of_units = facts(unit=f"a{text}b", max_rows_per_unit=2)
    for wrong in (named, of_units, facts(record=f"a{text}b"), facts(note=f"a{text}b")):
        with pytest.raises(SchemaError) as caught:
            dps.Schema.from_dict(wrong)
        assert caught.value.fact.isprintable()
    with pytest.raises(SchemaError, match="cannot be seen"):
        dps.Schema((dps.schema.columns.Boolean(f"a{text}b"),))


@pytest.mark.parametrize("text", ORDINARY)
def test_names_of_any_language_are_taken_as_they_are(text: str) -> None:
    named = dps.Schema.from_dict(facts() | {"columns": {text: {"kind": "boolean"}}})
    assert named.columns[0].name == visible(text) == text


@pytest.mark.parametrize("text", STEERING)
def test_errors_show_escapes(text: str) -> None:
    error = QueryError(f"no column 'a{text}b'", f"not a{text}b")
    assert str(error) == f"no column 'a{visible(text)}b'\nHint: not a{visible(text)}b"
    assert visible(text).isprintable()
    assert json.loads(f'"{visible(text)}"') == text


@pytest.fixture
def sketch(tmp_path: Path) -> Path:
    """A category may have any values: a table can."""
    column = {"kind": "category", "values": ["a", "\x1b[2J\u202eb"]}
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"z": column}})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(), 0.5)])
    raw = dps.accumulate(pa.table({"z": ["a"]}), schema, recipe)
    dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a").save(tmp_path / "a.sketch")
    return tmp_path / "a.sketch"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_labels_are_shown_with_escapes(form: tuple[str, ...], sketch: Path) -> None:
    said = called(sketch.parent, "ask", "a.sketch", "select z, count(*) from sketch group by z", *form)
    assert said.returncode == 0
    assert "\\u001b[2J\\u202eb" in said.stdout
    assert said.stdout.replace("\n", "").isprintable()


def test_a_program_gets_labels_as_they_are(sketch: Path) -> None:
    said = called(sketch.parent, "ask", "a.sketch", "select z, count(*) from sketch group by z", "--csv")
    assert "\x1b[2J\u202eb" in said.stdout


def test_the_version_that_a_file_names_cannot_rewrite_its_statement(sketch: Path) -> None:
    header, sums = file.read_header(sketch), dps.ReleasedSketch.load(sketch).sums
    header["release"]["library"] = "1\x1b[2J\nPRIVACY STATEMENT"
    with written(sketch, force=True) as target:
        container.write(target, header, {f"part.{place}": each for place, each in enumerate(sums)})
    said = called(sketch.parent, "show", "a.sketch")
    assert "with dpsketch 1\\u001b[2J\\u000aPRIVACY STATEMENT\n" in said.stdout


def test_a_model_with_a_statement_that_steers_is_refused(tmp_path: Path) -> None:
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 10}, "columns": {n: {"kind": "number", "lower": 0, "upper": 1} for n in "xy"}}
    )
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.SecondMoments(), 0.5)])
    raw = dps.accumulate(pa.table({"x": [0.1, 0.9], "y": [0.5, 0.5]}), schema, recipe)
    view = dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))
    model = dps.PCA(1, of="second_moments").fit(view)
    model.statement_ = model.statement_ | {"note": "all is well\nWho is protected   everyone"}
    dps.save_model(model, tmp_path / "a.model")
    with pytest.raises(FileError, match="the model is not valid"):
        dps.load_model(tmp_path / "a.model")
