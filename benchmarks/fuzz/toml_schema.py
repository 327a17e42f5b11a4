"""Damaged schemas: each is read or refused in a few printable lines, and what was read can be written again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpsketch.errors import SchemaError
from dpsketch.schema.schema import Schema
from dpsketch.schema.template import schema_text

VALID = """[privacy]
rows = 50000
unit = "id"
unit_kind = "integer"
max_rows_per_unit = 5
relation = "add-remove"
constant_per_unit = ["sex"]
record = "visit"
note = "a note"

[csv]
multiline = true
columns = ["id", "age", "sex"]

[columns.age]
kind = "integer"
lower = 0
upper = 120
missing = 3

[columns.income]
kind = "number"
lower = 1.5
upper = 5e5
transform = "asinh"

[columns.sex]
kind = "category"
values = ["Female", "Male", 3]

[columns.member]
kind = "boolean"

[columns.admitted]
kind = "datetime"
lower = 2020-01-01
upper = 2025-01-01T12:00:00Z

[columns."items bought"]
kind = "set"
universe = 16470
"""
VALUES = [
    *('""', '"x"', '"row"', '"id"', '"text"', '"other"', '"log"', '"replace-one"', '"2020-01-01"', '"\\u0007\\n"'),
    *("0", "-1", "7", "9223372036854775808", "10" * 200, "1e400", "-0.0", "nan", "inf", "true"),
    *("1979-05-27", "07:32:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
    *("[]", "[1]", '["a", "a"]', "[[]]", "{}", "{a = 1}", "[" * 600 + "]" * 600),
    *("'''\nlines\n'''", '"' + "x" * 400 + '"'),
]
NAMES = [
    "kind",
    "lower",
    "upper",
    "values",
    "universe",
    "rows",
    "unit",
    "missing",
    '"\\u001b[2J"',
    '""',
    "a.b",
    "columns",
]


def run_one(rng: np.random.Generator, folder: Path) -> None:
    path = folder / "schema.toml"
    lines = VALID.splitlines()
    for _ in range(rng.integers(1, 5)):
        _change(rng, lines)
    text = "\n".join(lines).encode()
    if rng.random() < 0.2 and text:
        index = int(rng.integers(len(text)))
        text = text[:index] + rng.bytes(int(rng.integers(0, 4))) + text[index + int(rng.integers(0, 4)) :]
    path.write_bytes(text)
    try:
        schema = Schema.load(path)
    except SchemaError as error:
        assert all(line.isprintable() for line in str(error).split("\n")), "a message with control characters"  # noqa: PT017
        assert str(error).count("\n") <= 2, "a message of many lines"  # noqa: PT017
        return
    assert Schema.from_dict(schema.to_dict()) == schema
    path.write_text(schema_text(schema, "again"), encoding="utf-8")
    assert Schema.load(path) == schema


def _change(rng: np.random.Generator, lines: list[str]) -> None:
    index = int(rng.integers(len(lines))) if lines else 0
    what = rng.integers(6)
    if not lines or what == 0:
        lines.insert(index, f"{rng.choice(NAMES)} = {rng.choice(VALUES)}")
    elif what == 1:
        del lines[index]
    elif what == 2:
        lines.insert(int(rng.integers(len(lines))), lines[index])
    elif what == 3 and lines[index].startswith("["):
        lines[index] = f"[columns.{rng.choice(NAMES)}]"
    elif "=" in lines[index]:
        lines[index] = lines[index].split("=")[0] + f"= {rng.choice(VALUES)}"
