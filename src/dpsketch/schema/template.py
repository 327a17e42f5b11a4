"""Schemas as TOML: a template from column names and stored types only, or a known schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dpsketch.schema.schema import Csv, Schema

_HEAD = """# Public facts about the table, filled in by a person. Blanks ("") are refused.
# Take bounds from public knowledge, never from the data: bounds taken from the data leak it.
[about]                            # for the privacy statement; also curator, contact, purpose, licence, justification
name = ""                          # of the data; the ledger counts the budget of its people under this name

[privacy]
rows = ""                          # public order of magnitude of the number of rows
unit = "row"                       # or a column that identifies a person: unit = "patient_id", max_rows_per_unit = 5
                                   # and unit_kind = "integer" if its ids are whole numbers, so that 7 and 7.0 are one
"""
_UNNAMED = """
[csv]                              # the file has no header line: rename its columns here and below
"""
# Names of columns whose whole numbers name something: no sums, no mean, and no tighter bounds.
_CODE = re.compile(r"(^|[^a-z])(id|ids|zip|zipcode|code|codes|postcode|plz|fips|icd|naics)$")
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def schema_template(columns: list[tuple[str, pa.DataType]], layout: Csv) -> str:
    """TOML with one section per column. Text columns offer the choices that name and type cannot settle."""
    names = "" if layout.columns is None else _UNNAMED + "\n".join(_facts(layout.to_dict())) + "\n"
    return _HEAD + names + "".join(_section(name, [*_lines(name, kind), *_parts(name, kind)]) for name, kind in columns)


def schema_text(schema: Schema, head: str) -> str:
    """A whole schema below a line that states its origin."""
    facts = schema.to_dict()
    general = "\n".join(
        "\n".join([f"[{key}]", *_facts(facts[key])]) + "\n"
        for key in ("about", "privacy", "csv", "workload")
        if key in facts
    )
    return f"# {head}\n{general}" + "".join(_section(name, _facts(column)) for name, column in facts["columns"].items())


def _facts(facts: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_quoted(fact)}" for key, fact in facts.items()]


def _quoted(fact: object) -> str:
    """Numbers, strings and lists of them as TOML: like JSON, except for one character."""
    return json.dumps(fact, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _section(name: str, lines: list[str]) -> str:
    return f"\n[columns.{_key(name)}]\n" + "\n".join(lines) + "\n"


def _parts(name: str, kind: pa.DataType) -> list[str]:
    """A hint that parts of a date may be columns."""
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return []
    key = _key(f"{name}_hour")
    return [
        "# for questions about the hour, month or dayofweek, also declare:",
        f"# [columns.{key}]",
        f"# from = {_quoted(name)}",
        '# part = "hour"',
    ]


def _lines(name: str, kind: pa.DataType) -> list[str]:
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return ['kind = "boolean"']
    if pa.types.is_integer(kind):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()  # zipCode is zip_code
        names_something = _CODE.search(words) is not None
        return ['kind = "code"' if names_something else 'kind = "integer"', 'lower = ""', 'upper = ""']
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return ['kind = "number"', 'lower = ""', 'upper = ""', '# transform = "asinh"   # or "log"']
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return ['kind = "datetime"', 'lower = ""', 'upper = ""']
    if any(is_list(kind) for is_list in _LISTS):
        return ['kind = "set"', 'universe = ""               # ids are 0 to universe - 1']
    return [
        'kind = ""                   # number | integer | category | boolean | datetime',
        '# values = ["a", "b"]       # for a category; anything else falls into "other"',
        '# lower = ""                # for a number, integer or datetime',
        '# upper = ""',
    ]
