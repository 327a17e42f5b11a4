"""Sections of columns that are computed from others: `from` with `part` or `edges`, `ratio`, `difference`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dpsketch.errors import SchemaError
from dpsketch.schema.calendar import PARTS, part_range
from dpsketch.schema.columns import Category, Column, Datetime, Integer, Number
from dpsketch.schema.derived import FORMS, Derived
from dpsketch.schema.parsing import check_keys, check_visible, column_of, table_of

DAY_PART = "date"
_KEYS = ("from", "ratio", "difference")
_MOST_EDGES = 1000


def declared_columns(sections: Mapping[str, Any], unit: str) -> tuple[Column, ...]:
    """All columns in the order of their sections. Those computed from others may stand before these."""
    facts = {name: table_of(sections, name, "columns") for name in sections}
    stored = {name: column_of(name, own) for name, own in facts.items() if not _is_derived(own)}
    found = []
    for name, own in facts.items():
        column = stored.get(name) or _derived_column(name, own, stored)
        for source in column.derived.sources if column.derived is not None else ():
            _check_source(f"columns.{name}", source, unit, facts)
        found.append(column)
    return tuple(found)


def _is_derived(facts: Mapping[str, Any]) -> bool:
    return any(key in facts for key in _KEYS)


def _check_source(path: str, source: str, unit: str, facts: Mapping[str, Mapping[str, Any]]) -> None:
    check_visible(path, source)
    if source == unit:
        raise SchemaError(
            f"{path}: '{source}' is the privacy unit, from which nothing is computed",
            "ids of people are never sketched",
        )
    if source in facts and _is_derived(facts[source]):
        raise SchemaError(f"{path}: '{source}' is itself computed", "compute it from columns of the table")


def _derived_column(name: str, facts: Mapping[str, Any], stored: Mapping[str, Column]) -> Column:
    path = f"columns.{name}"
    forms = [form for form in FORMS if form in facts]
    if len(forms) != 1 or (forms[0] in ("ratio", "difference")) == ("from" in facts):
        raise SchemaError(
            f"{path} must be computed in one way",
            'write from = "pickup" and part = "hour"; from = "age" and edges = [18, 65]; '
            'ratio = ["weight", "height"]; or difference = ["end", "start"]',
        )
    match forms[0]:
        case "part":
            return _part(name, path, facts, stored)
        case "edges":
            return _edges(name, path, facts, stored)
    return _of_two(name, path, forms[0], facts, stored)


def _source(path: str, facts: Mapping[str, Any]) -> str:
    source = facts["from"]
    if not isinstance(source, str) or not source:
        raise SchemaError(f"{path}.from must be the name of a column, got {source!r} instead")
    return source


def _check_kind(path: str, facts: Mapping[str, Any], kind: str) -> None:
    if facts.get("kind", kind) != kind:
        raise SchemaError(f"{path}.kind is {kind}, got {facts['kind']!r} instead", "leave it out")


def _part(name: str, path: str, facts: Mapping[str, Any], stored: Mapping[str, Column]) -> Column:
    check_keys(facts, path, ("kind", "from", "part", "lower", "upper"))
    source, part = _source(path, facts), facts["part"]
    if not isinstance(part, str) or part not in (*PARTS, DAY_PART):
        raise SchemaError(f"{path}.part must be one of {', '.join((*PARTS, DAY_PART))}, got {part!r} instead")
    of = stored.get(source)
    if of is not None and not isinstance(of, Datetime):
        raise SchemaError(
            f"{path}.from: column '{source}' is declared as {of.kind}, which has no {part}", "name a datetime column"
        )
    kind = Datetime.kind if part == DAY_PART else Integer.kind
    _check_kind(path, facts, kind)
    low, high = _part_bounds(part, of)
    bounds = {"lower": facts.get("lower", low), "upper": facts.get("upper", high)}
    return replace(column_of(name, {"kind": kind, **bounds}), derived=Derived("part", (source,), part))


def _part_bounds(part: str, of: Column | None) -> tuple[Any, Any]:
    """Those of the calendar or of the source; blank where the source is not declared."""
    if part != DAY_PART and part != "year":
        return part_range(part) or ("", "")
    if not isinstance(of, Datetime):
        return "", ""
    if part == DAY_PART:
        return of.lower, of.upper
    return of.lower.year, max(of.upper.year, of.lower.year + 1)  # bounds must differ


def _edges(name: str, path: str, facts: Mapping[str, Any], stored: Mapping[str, Column]) -> Column:
    check_keys(facts, path, ("kind", "from", "edges", "values", "ordered"))
    source, edges = _source(path, facts), facts["edges"]
    of = stored.get(source)
    _check_number(path, "from", source, of)
    _check_kind(path, facts, Category.kind)
    if (
        not isinstance(edges, list)
        or not 0 < len(edges) <= _MOST_EDGES
        or not all(isinstance(edge, int | float) and not isinstance(edge, bool) and abs(edge) < 1e300 for edge in edges)
        or any(one >= other for one, other in pairwise(edges))
    ):
        raise SchemaError(f"{path}.edges must be a rising list of up to {_MOST_EDGES} numbers, got {edges!r} instead")
    whole = isinstance(of, Integer) and all(edge == int(edge) for edge in edges)
    labels = facts.get("values", _labels(edges, whole))
    if not isinstance(labels, list) or len(labels) != len(edges) + 1:
        raise SchemaError(f"{path}.values must name the {len(edges) + 1} ranges that {len(edges)} edges make")
    ordered = facts.get("ordered", True)
    column = column_of(name, {"kind": "category", "values": labels, "ordered": ordered})
    return replace(column, derived=Derived("edges", (source,), edges=tuple(map(float, edges))))


def _labels(edges: list[float], whole: bool) -> list[str]:
    """under 18, 18-39, 40-64, 65+; of real numbers: 18 to under 40."""
    texts = [f"{edge:.15g}" for edge in edges]
    inner = [
        f"{low}-{int(end) - 1}" if whole and int(end) - 1 > int(edge) else low if whole else f"{low} to under {high}"
        for (low, high), (edge, end) in zip(pairwise(texts), pairwise(edges), strict=True)
    ]
    return [f"under {texts[0]}", *inner, f"{texts[-1]}+"]


def _of_two(name: str, path: str, form: str, facts: Mapping[str, Any], stored: Mapping[str, Column]) -> Column:
    check_keys(facts, path, ("kind", form, "lower", "upper", "transform"))
    _check_kind(path, facts, Number.kind)
    sources = facts[form]
    if (
        not isinstance(sources, list)
        or len(sources) != 2
        or not all(isinstance(each, str) and each for each in sources)
    ):
        raise SchemaError(f"{path}.{form} must name two columns, got {sources!r} instead", f'{form} = ["a", "b"]')
    for source in sources:
        _check_number(path, form, source, stored.get(source))
    plain = {key: fact for key, fact in facts.items() if key != form}
    return replace(column_of(name, {**plain, "kind": "number"}), derived=Derived(form, tuple(sources)))


def _check_number(path: str, key: str, source: str, of: Column | None) -> None:
    if of is not None and not isinstance(of, Number | Integer):
        raise SchemaError(
            f"{path}.{key}: column '{source}' is declared as {of.kind}, not as a number", "name number columns"
        )
