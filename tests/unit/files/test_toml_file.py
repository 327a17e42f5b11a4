"""Schemas and recipes with any TOML in any place: one line, never a bug."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from command_line import called
from dpsketch.errors import DpsketchError, RecipeError, SchemaError

VALUES = (
    "[]",
    "{}",
    "[[]]",
    "[1]",
    "[{}]",
    "{a = 1}",
    "true",
    "-1",
    "nan",
    "inf",
    "''",
    "'x'",
    "2020-01-01",
    "07:32:00",
)
DEEP = {
    "open arrays": "a = " + "[" * 100_000,
    "arrays": "a = " + "[" * 100_000 + "]" * 100_000,
    "tables": "a = " + "{a = " * 5000 + "1" + "}" * 5000,
    "a dotted key": "a" + ".a" * 20_000 + " = 1",
    "a quoted key": '"a"' + " . 'a'" * 20_000 + " = 1",
    "a header": "[" + "a." * 20_000 + "a]",
    "an array that fits the parser": "columns = " + "[" * 150 + "]" * 150,
}
LOADERS: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "schema": (dps.Schema.load, SchemaError),
    "recipe": (dps.Recipe.load, RecipeError),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("depth", DEEP)
def test_deep_nesting_is_one_line(depth: str, kind: str, tmp_path: Path) -> None:
    load, error = LOADERS[kind]
    path = tmp_path / "a.toml"
    path.write_text(DEEP[depth])
    with pytest.raises(error) as caught:
        load(path)
    assert str(caught.value).count("\n") <= 1


def refusal(load: Callable[[Path], Any], path: Path, error: type[DpsketchError]) -> str:
    """What is wrong with a file, or its name if nothing is."""
    try:
        load(path)
    except error as refused:
        return refused.fact
    return str(path)


@pytest.mark.parametrize("value", VALUES)
def test_wrong_types_anywhere_in_a_schema(value: str, tmp_path: Path) -> None:
    path, columns = tmp_path / "a.toml", "[columns.a]\nkind = 'boolean'"
    keys = ("rows", "unit", "max_rows_per_unit", "constant_per_unit", "relation", "record", "note")
    texts = [f"columns = {value}", f"privacy = {value}\n{columns}", f"columns.a = {value}", f"columns.a.kind = {value}"]
    texts += [f"[privacy]\n{key} = {value}\n{columns}" for key in keys]
    parameters = {"number": "lower", "integer": "upper", "datetime": "lower", "category": "values", "set": "universe"}
    texts += [f"[columns.a]\nkind = '{kind}'\n{key} = {value}" for kind, key in parameters.items()]
    texts += [f"[columns.a]\nkind = 'number'\nlower = 0\nupper = 1\ntransform = {value}"]
    for text in texts:
        path.write_text(text)
        assert str(path) in refusal(dps.Schema.load, path, SchemaError)


@pytest.mark.parametrize("value", VALUES)
def test_wrong_types_anywhere_in_a_recipe(value: str, tmp_path: Path) -> None:
    path, part = tmp_path / "a.toml", "[[parts]]\nmap = 'count'\nshare = 1.0"
    texts = [f"{key} = {value}\n{part}" for key in ("sampling", "only", "sampling.rate", "only.column")]
    texts += [f"parts = {value}", f"[[parts]]\nmap = {value}\nshare = 1", f"[[parts]]\nmap = 'count'\nshare = {value}"]
    maps = {"fourier": "radii", "race": "hash", "grid": "levels", "pairs": "groups", "grouped": "of"}
    texts += [f"[[parts]]\nmap = '{name}'\nshare = 1\n{key} = {value}" for name, key in maps.items()]
    for text in texts:
        path.write_text(text)
        assert str(path) in refusal(dps.Recipe.load, path, RecipeError)


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[columns.a]\nkind = []\n")
    said = called(tmp_path, "plan", "--schema", "a.toml", "--rows", "10", "--epsilon", "1")
    assert said.returncode == 1
    assert said.stderr == (
        "SchemaError: a.toml: columns.a.kind must be one of number, integer, code, category, boolean, datetime, set, "
        "got [] instead\n"
    )
