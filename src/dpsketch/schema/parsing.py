"""Sections of a schema file to columns; errors name the key, the rule and the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpsketch.errors import SchemaError, visible
from dpsketch.schema.columns import (
    SPAN,
    TRANSFORMS,
    Boolean,
    Category,
    Code,
    Column,
    Datetime,
    IdSet,
    Integer,
    Number,
    as_moment,
)

LONGEST_NOTE = 300
_MOST_NAMED = 30  # blank keys in one message
_NEEDED = {  # keys without which a column of a kind has no codes
    "number": ("lower", "upper"),
    "integer": ("lower", "upper"),
    "code": ("lower", "upper"),
    "datetime": ("lower", "upper"),
    "category": ("values",),
    "set": ("universe",),
}


def table_of(facts: Mapping[str, Any], key: str, path: str = "", optional: bool = False) -> Mapping[str, Any]:
    full = f"{path}.{key}" if path else key
    if key not in facts and optional:
        return {}
    if not isinstance(facts.get(key), Mapping):
        raise SchemaError(f"{full} must be a section", f"write [{full}] and its keys below it")
    section: Mapping[str, Any] = facts[key]
    return section


def check_keys(facts: Mapping[str, Any], path: str, known: tuple[str, ...]) -> None:
    for key in facts:
        if key not in known:
            full = f"{path}.{key}" if path else key
            raise SchemaError(f"{full} is not a known key", f"the keys here are {', '.join(known)}")


def check_visible(key: str, name: str) -> None:
    """Refuse names that could manipulate what a terminal shows."""
    if visible(name) != name:
        raise SchemaError(f"{key}: '{name}' has a character that cannot be seen", "write it without")


def line_of(facts: Mapping[str, Any], path: str, key: str, longest: int) -> str | None:
    """One line of printable text, or None."""
    value = facts.get(key)
    if value is not None and (not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= longest):
        raise SchemaError(f"{path}.{key} must be one line of up to {longest} characters")
    return value


def constant_columns(names: object, columns: Mapping[str, Any]) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name in columns for name in names):
        raise SchemaError(
            f"privacy.constant_per_unit must be a list of declared columns, got {names!r} instead",
            "name the columns that have one value in all rows of a unit",
        )
    return tuple(names)


def check_filled(value: object, full: str) -> None:
    if value is None or value == "":
        raise _blank([full])


def _blank(keys: list[str]) -> SchemaError:
    named = keys if len(keys) <= _MOST_NAMED + 1 else [*keys[:_MOST_NAMED], f"{len(keys) - _MOST_NAMED} more"]
    if len(keys) == 1:
        fact, what = f"{keys[0]} is still blank", "it"
    else:
        fact, what = f"{', '.join(named[:-1])} and {named[-1]} are still blank", "them"
    return SchemaError(fact, f"fill {what} in from public knowledge, not from the data: bounds taken from data leak it")


def check_no_blanks(facts: Mapping[str, Any]) -> None:
    """Refuse what `init` left for a person to fill in, all of it in one message, and bounds that are not there."""
    sections = {key: facts.get(key) for key in ("about", "privacy")}
    columns = facts.get("columns")
    if isinstance(columns, Mapping):
        sections |= {f"columns.{name}": section for name, section in columns.items()}
    blanks = []
    for path, section in sections.items():
        if isinstance(section, Mapping):
            kind = None if {"from", "ratio", "difference"} & set(section) else section.get("kind")  # computed
            needed = _NEEDED.get(kind, ()) if path.startswith("columns.") and isinstance(kind, str) else ()
            keys = [key for key, value in section.items() if value == ""]
            keys += [key for key in needed if key not in section]
            blanks += [f"{path}.{key}" for key in keys]
    if blanks:
        raise _blank(blanks)


def whole_of(facts: Mapping[str, Any], path: str, key: str, low: int, high: int) -> int:
    value = facts.get(key)
    check_filled(value, f"{path}.{key}")
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SchemaError(f"{path}.{key} must be a whole number from {low} to {high}, got {value!r} instead")
    return value


def _real(facts: Mapping[str, Any], path: str, key: str) -> float:
    value = facts.get(key)
    check_filled(value, f"{path}.{key}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
        raise SchemaError(f"{path}.{key} must be a finite number, got {value!r} instead")
    return float(value)


def _ordered(path: str, lower: Any, upper: Any) -> None:
    if not lower < upper:
        raise SchemaError(f"{path}.lower must be below {path}.upper, got {lower} and {upper} instead")


def _number(name: str, path: str, facts: Mapping[str, Any]) -> Number:
    check_keys(facts, path, ("kind", "lower", "upper", "transform", "missing"))
    lower, upper = _real(facts, path, "lower"), _real(facts, path, "upper")
    _ordered(path, lower, upper)
    transform = facts.get("transform")
    if transform is not None and transform not in TRANSFORMS:
        raise SchemaError(f'{path}.transform must be "log" or "asinh", got {transform!r} instead')
    if transform == "log" and lower <= 0:
        raise SchemaError(f'{path}.lower must be above 0 for transform = "log", got {lower}', 'use "asinh" instead')
    missing = _real(facts, path, "missing") if "missing" in facts else None
    return Number(name, lower, upper, transform, missing)


def _integer(name: str, path: str, facts: Mapping[str, Any], kind: type[Integer] = Integer) -> Integer:
    check_keys(facts, path, ("kind", "lower", "upper", "missing"))
    low, high = -(2**53), 2**53
    lower, upper = whole_of(facts, path, "lower", low, high), whole_of(facts, path, "upper", low, high)
    _ordered(path, lower, upper)
    missing = whole_of(facts, path, "missing", low, high) if "missing" in facts else None
    return kind(name, lower, upper, missing)


def _code(name: str, path: str, facts: Mapping[str, Any]) -> Integer:
    code = _integer(name, path, facts, Code)
    if code.upper - code.lower > SPAN:
        raise SchemaError(
            f"{path} has {code.upper - code.lower + 1} codes, more than {SPAN + 1}: rounded codes mean nothing",
            'narrow its bounds, list the common ones (kind = "category"), or leave the column out',
        )
    return code


def _datetime(name: str, path: str, facts: Mapping[str, Any]) -> Datetime:
    check_keys(facts, path, ("kind", "lower", "upper"))
    bounds = []
    for key in ("lower", "upper"):
        check_filled(facts.get(key), f"{path}.{key}")
        moment = as_moment(facts[key])
        if moment is None:
            raise SchemaError(
                f"{path}.{key} must be a date or time such as 2024-01-31T12:00:00, got {facts[key]!r} instead"
            )
        bounds.append(moment)
    _ordered(path, *bounds)
    return Datetime(name, *bounds)


def _category(name: str, path: str, facts: Mapping[str, Any]) -> Category:
    check_keys(facts, path, ("kind", "values", "ordered"))
    values = facts.get("values")
    check_filled(values, f"{path}.values")
    if not isinstance(values, list) or not values:
        raise SchemaError(f"{path}.values must be a list of strings or integers", 'write values = ["a", "b"]')
    for value in values:
        if (
            isinstance(value, bool)
            or not isinstance(value, str | int)
            or str(value).strip() != str(value)
            or value == ""
        ):
            raise SchemaError(
                f"{path}.values must hold strings without outer blanks, or integers, got {value!r} instead"
            )
    if len({str(value) for value in values}) < len(values):
        raise SchemaError(f"{path}.values lists a value twice")
    if len(values) > SPAN:
        raise SchemaError(f"{path}.values lists more than {SPAN} values", "list the common ones; the rest is 'other'")
    ordered = facts.get("ordered")
    if ordered is not None and not isinstance(ordered, bool):
        raise SchemaError(
            f"{path}.ordered must be true or false, got {ordered!r} instead", "true if values are listed in an order"
        )
    return Category(name, tuple(values), ordered)


def _boolean(name: str, path: str, facts: Mapping[str, Any]) -> Boolean:
    check_keys(facts, path, ("kind",))
    return Boolean(name)


def _id_set(name: str, path: str, facts: Mapping[str, Any]) -> IdSet:
    check_keys(facts, path, ("kind", "universe"))
    return IdSet(name, whole_of(facts, path, "universe", 1, 2**31 - 2))


_KINDS: Mapping[str, Callable[[str, str, Mapping[str, Any]], Column]] = {
    "number": _number,
    "integer": _integer,
    "code": _code,
    "category": _category,
    "boolean": _boolean,
    "datetime": _datetime,
    "set": _id_set,
}


def column_of(name: str, facts: Mapping[str, Any]) -> Column:
    path = f"columns.{name}"
    kind = facts.get("kind")
    check_filled(kind, f"{path}.kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SchemaError(f"{path}.kind must be one of {', '.join(_KINDS)}, got {kind!r} instead")
    return _KINDS[kind](name, path, facts)
