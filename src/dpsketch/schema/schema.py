"""Public facts about a table: columns, bounds, categories and the privacy unit.

A person writes a schema, or `tighten` from a release; nothing in it is ever taken from values. Every scalar column has
`levels` distinct values, spread evenly over the codes -32767 .. 32767; -32768 means missing.
One scale for all kinds lets every feature map work on plain int16 codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import SchemaError, visible
from dpsketch.files.toml_file import read_toml
from dpsketch.schema.relation import Relation

LOWEST, HIGHEST, MISSING = -32767, 32767, -32768
SPAN = HIGHEST - LOWEST  # 65534 steps, 65535 levels
OTHER = "other"
TRANSFORMS = ("log", "asinh")
ROW_UNIT = "row"
UNIT_KINDS = ("text", "integer")
MOST_COLUMNS = 10_000
LONGEST_NOTE = 300
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Codes = NDArray[np.int16]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """One declared column. `levels` distinct values, all public."""

    name: str
    kind: ClassVar[str] = ""
    numeric: ClassVar[bool] = False

    @property
    def levels(self) -> int:
        raise TypeError(f"a {self.kind} column has no levels")

    def codes_of(self, levels: NDArray[np.int64]) -> Codes:
        """Levels 0 .. levels-1 to codes; a negative level is missing. Exact integers."""
        if self.levels == SPAN + 1:
            return np.where(levels < 0, MISSING, levels + LOWEST).astype(np.int16)
        return self._codes[levels]

    @cached_property
    def _codes(self) -> Codes:
        """Code of every level; the last entry, which level -1 finds, is missing."""
        steps = max(self.levels - 1, 1)
        levels = np.arange(self.levels, dtype=np.int64)
        return np.append((2 * SPAN * levels + steps) // (2 * steps) + LOWEST, MISSING).astype(np.int16)

    def levels_of(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Inverse of `codes_of`; codes between two levels go to the nearer one, missing to -1."""
        steps = max(self.levels - 1, 1)
        shifted = np.asarray(codes).astype(np.int64) - LOWEST
        return np.where(shifted < 0, -1, (2 * shifted * steps + SPAN) // (2 * SPAN))

    def values_of(self, codes: NDArray[Any]) -> Floats:
        """Codes to numbers in the user's units (category and boolean: the level); missing is NaN."""
        levels = self.levels_of(codes)
        return np.where(levels < 0, np.nan, self._values(levels.astype(np.float64)))

    def _values(self, levels: Floats) -> Floats:
        return levels

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}


@dataclass(frozen=True)
class Number(Column):
    """A real number in [lower, upper], clamped; `missing` replaces unreadable cells if given."""

    lower: float = 0.0
    upper: float = 1.0
    transform: str | None = None
    missing: float | None = None
    kind: ClassVar[str] = "number"
    numeric: ClassVar[bool] = True

    @property
    def levels(self) -> int:
        return SPAN + 1

    def _values(self, levels: Floats) -> Floats:
        share = levels / SPAN
        if self.transform == "log":
            low, high = math.log(self.lower), math.log(self.upper)
            return np.exp(low + share * (high - low))
        if self.transform == "asinh":
            low, high = math.asinh(self.lower), math.asinh(self.upper)
            return np.sinh(low + share * (high - low))
        return self.lower + share * (self.upper - self.lower)

    def to_dict(self) -> dict[str, Any]:
        facts = {"lower": self.lower, "upper": self.upper, "transform": self.transform, "missing": self.missing}
        return super().to_dict() | {key: fact for key, fact in facts.items() if fact is not None}


@dataclass(frozen=True)
class Integer(Column):
    """A whole number in [lower, upper]; exact up to 65535 distinct values, else nearest of as many."""

    lower: int = 0
    upper: int = 1
    missing: int | None = None
    kind: ClassVar[str] = "integer"
    numeric: ClassVar[bool] = True

    @property
    def levels(self) -> int:
        return min(self.upper - self.lower, SPAN) + 1

    def _values(self, levels: Floats) -> Floats:
        return np.rint(self.lower + levels * ((self.upper - self.lower) / (self.levels - 1)))

    def to_dict(self) -> dict[str, Any]:
        facts = {"lower": self.lower, "upper": self.upper, "missing": self.missing}
        return super().to_dict() | {key: fact for key, fact in facts.items() if fact is not None}


@dataclass(frozen=True)
class Datetime(Column):
    """A moment in [lower, upper]; values are microseconds since 1970 in UTC."""

    lower: datetime = _EPOCH
    upper: datetime = _EPOCH
    kind: ClassVar[str] = "datetime"
    numeric: ClassVar[bool] = True

    @property
    def levels(self) -> int:
        return SPAN + 1

    @property
    def bounds(self) -> tuple[float, float]:
        return float(microseconds(self.lower)), float(microseconds(self.upper))

    def _values(self, levels: Floats) -> Floats:
        low, high = self.bounds
        return low + levels / SPAN * (high - low)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"lower": self.lower.isoformat(), "upper": self.upper.isoformat()}


@dataclass(frozen=True)
class Category(Column):
    """One of the listed values; anything else falls into `other`."""

    values: tuple[str | int, ...] = ()
    kind: ClassVar[str] = "category"

    @property
    def labels(self) -> tuple[str, ...]:
        listed = tuple(str(value) for value in self.values)
        return listed if OTHER in listed else (*listed, OTHER)

    @property
    def levels(self) -> int:
        return len(self.labels)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"values": list(self.values)}


@dataclass(frozen=True)
class Boolean(Column):
    """True or false."""

    kind: ClassVar[str] = "boolean"
    labels: ClassVar[tuple[str, str]] = ("false", "true")

    @property
    def levels(self) -> int:
        return 2


@dataclass(frozen=True)
class IdSet(Column):
    """A set of ids 0 .. universe-1; others become the one overflow id `universe`."""

    universe: int = 1
    kind: ClassVar[str] = "set"

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"universe": self.universe}


@dataclass(frozen=True)
class Csv:
    """How CSV files are laid out: whether quoted cells may hold line breaks, and the names of all columns in their
    order if the first line is a record."""

    multiline: bool = False
    columns: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        names = {} if self.columns is None else {"columns": list(self.columns)}
        return ({"multiline": True} if self.multiline else {}) | names

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Csv:
        _only(facts, "csv", ("multiline", "columns"))
        multiline, names = facts.get("multiline", False), facts.get("columns")
        if not isinstance(multiline, bool):
            raise SchemaError(f"csv.multiline must be true or false, got {multiline!r} instead")
        if names is None:
            return cls(multiline)
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise SchemaError(
                "csv.columns must be a list of names", "name all columns of the file in their order, also unused ones"
            )
        for name in names:
            _check_visible("csv.columns", name)
        if len(set(names)) < len(names) or len(names) > MOST_COLUMNS:
            raise SchemaError(f"csv.columns must list up to {MOST_COLUMNS} different names")
        return cls(multiline, tuple(names))


@dataclass(frozen=True)
class Schema:
    """The declared columns, the privacy unit and the public order of magnitude of the rows."""

    columns: tuple[Column, ...]
    rows: int | None = None
    unit: str = ROW_UNIT
    max_rows_per_unit: int = 1
    record: str = ROW_UNIT  # what a row stands for, in the words of the privacy statement
    note: str | None = None  # what else the statement must say of it
    relation: Relation = Relation.ADD_REMOVE
    constant_per_unit: tuple[str, ...] = ()  # columns that have one value in all rows of a unit
    unit_kind: str = UNIT_KINDS[0]  # how ids of units are read
    csv: Csv = Csv()

    def __post_init__(self) -> None:
        if not self.columns:
            raise SchemaError("columns: at least one column must be declared", "add a [columns.NAME] section")
        if len(self.columns) > MOST_COLUMNS:
            raise SchemaError(f"columns: {len(self.columns)} columns are more than {MOST_COLUMNS}", "declare fewer")
        names = {f"columns.{column.name}": column.name for column in self.columns}
        names |= {"privacy.unit": self.unit, "privacy.record": self.record, "privacy.note": self.note or ""}
        for key, name in names.items():
            _check_visible(key, name)

    @cached_property
    def scalars(self) -> tuple[Column, ...]:
        """The columns that are encoded as codes, in the order of the code matrix."""
        return tuple(column for column in self.columns if not isinstance(column, IdSet))

    @cached_property
    def sets(self) -> tuple[IdSet, ...]:
        """The columns of sets of ids."""
        return tuple(column for column in self.columns if isinstance(column, IdSet))

    @property
    def unit_column(self) -> str | None:
        return None if self.unit == ROW_UNIT else self.unit

    @property
    def rows_per_unit(self) -> int | None:
        """None where a unit is a row."""
        return None if self.unit_column is None else self.max_rows_per_unit

    @property
    def accounted(self) -> tuple[str, int, str]:
        """Whom the ledger counts, up to how many rows of them (0 where a row is a thing of its own), and between which
        tables: fixed for a dataset.
        """
        if self.unit_column is not None:
            return self.unit, self.max_rows_per_unit, self.relation.value
        return self.record, int(self.record == ROW_UNIT), self.relation.value

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def _rows_of_codes(self) -> dict[str, int]:
        return {column.name: row for row, column in enumerate(self.scalars)}

    def column(self, name: str) -> Column:
        if name not in self._by_name:
            raise SchemaError(f"there is no column '{name}'", nearest(name, list(self._by_name)))
        return self._by_name[name]

    def index(self, name: str) -> int:
        """Row of `name` in the code matrix."""
        column = self.column(name)
        if isinstance(column, IdSet):
            raise SchemaError(
                f"column '{name}' is a set of ids, which this map cannot use",
                "name number, category or boolean columns",
            )
        return self._rows_of_codes[name]

    def to_dict(self) -> dict[str, Any]:
        privacy: dict[str, Any] = {"unit": self.unit}
        if self.rows is not None:
            privacy["rows"] = self.rows
        if self.unit_column is not None:
            privacy["max_rows_per_unit"] = self.max_rows_per_unit
        if self.unit_kind != UNIT_KINDS[0]:
            privacy["unit_kind"] = self.unit_kind
        if self.record != ROW_UNIT:
            privacy["record"] = self.record
        if self.note is not None:
            privacy["note"] = self.note
        if self.relation is not Relation.ADD_REMOVE:
            privacy["relation"] = self.relation.value
        if self.constant_per_unit:
            privacy["constant_per_unit"] = list(self.constant_per_unit)
        csv = {"csv": self.csv.to_dict()} if self.csv != Csv() else {}
        return {"privacy": privacy, **csv, "columns": {column.name: column.to_dict() for column in self.columns}}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Schema:
        """Build and check a schema; errors name the key."""
        _only(facts, "", ("privacy", "csv", "columns"))
        privacy = _table(facts, "privacy", optional=True)
        known = ("rows", "unit", "unit_kind", "max_rows_per_unit", "constant_per_unit", "relation", "record", "note")
        _only(privacy, "privacy", known)
        rows = privacy.get("rows")
        if rows is not None:
            rows = _whole(privacy, "privacy", "rows", 1, 10**15)
        unit = privacy.get("unit", ROW_UNIT)
        if not isinstance(unit, str) or not unit:
            raise SchemaError(f'privacy.unit must be "row" or the name of a column, got {unit!r} instead')
        most = 1
        if unit == ROW_UNIT:
            for key in ("unit_kind", "max_rows_per_unit", "constant_per_unit"):
                if key in privacy:
                    raise SchemaError(
                        f"privacy.{key} is set but privacy.unit is 'row'",
                        'name the column that identifies a person: unit = "patient_id"',
                    )
        else:
            if "max_rows_per_unit" not in privacy:
                raise SchemaError(
                    f"privacy.max_rows_per_unit must be set because privacy.unit is '{unit}'",
                    "say how many rows of one unit may count; the noise grows with it",
                )
            most = _whole(privacy, "privacy", "max_rows_per_unit", 1, 10**6)
        sections = _table(facts, "columns")
        if unit in sections:
            raise SchemaError(
                f"column '{unit}' is the privacy unit and must not be declared as data",
                f"remove [columns.{unit}]: ids of people are never sketched",
            )
        columns = tuple(_column(name, _table(sections, name, "columns")) for name in sections)
        record, note = (_words(privacy, key) for key in ("record", "note"))
        relation = privacy.get("relation", Relation.ADD_REMOVE.value)
        if relation not in list(Relation):
            raise SchemaError(
                f'privacy.relation must be "add-remove" or "replace-one", got {relation!r} instead',
                '"replace-one" makes the exact number of rows public; if in doubt leave it out',
            )
        unit_kind = privacy.get("unit_kind", UNIT_KINDS[0])
        if unit_kind not in UNIT_KINDS:
            raise SchemaError(
                f'privacy.unit_kind must be "text" or "integer", got {unit_kind!r} instead',
                '"integer" reads 7 and 7.0 as one person, "text" as two',
            )
        constant = _constant(privacy.get("constant_per_unit", []), sections)
        csv = Csv.from_dict(_table(facts, "csv", optional=True))
        return cls(columns, rows, unit, most, record or ROW_UNIT, note, Relation(relation), constant, unit_kind, csv)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML schema; errors name the file and the line or key."""
        path = Path(path)
        template = "dpsketch init TABLE writes a template"
        facts = read_toml(path, SchemaError, template, template)
        try:
            return cls.from_dict(facts)
        except SchemaError as error:
            raise SchemaError(f"{path}: {error.fact}", error.hint) from None


def nearest(name: str, names: Sequence[str], what: str = "columns") -> str:
    """A hint with the closest names, or all of them when none is close."""
    lowered = {known.lower(): known for known in names}
    close = [lowered[match] for match in get_close_matches(name.lower(), list(lowered), n=3, cutoff=0.5)]
    if close:
        return "did you mean " + " or ".join(f"'{match}'" for match in close) + "?"
    return f"the {what} are " + ", ".join(names[:30]) + (", …" if len(names) > 30 else "")


def microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def as_moment(value: object) -> datetime | None:
    """An ISO text, a date or a datetime as a moment in UTC; naive ones are taken as UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        return None
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        return None


def _table(facts: Mapping[str, Any], key: str, path: str = "", optional: bool = False) -> Mapping[str, Any]:
    full = f"{path}.{key}" if path else key
    if key not in facts and optional:
        return {}
    if not isinstance(facts.get(key), Mapping):
        raise SchemaError(f"{full} must be a section", f"write [{full}] and its keys below it")
    section: Mapping[str, Any] = facts[key]
    return section


def _only(facts: Mapping[str, Any], path: str, known: tuple[str, ...]) -> None:
    for key in facts:
        if key not in known:
            full = f"{path}.{key}" if path else key
            raise SchemaError(f"{full} is not a known key", f"the keys here are {', '.join(known)}")


def _check_visible(key: str, name: str) -> None:
    """Refuse names that could rewrite what a terminal shows."""
    if visible(name) != name:
        raise SchemaError(f"{key}: '{name}' has a character that cannot be seen", "write it without")


def _words(privacy: Mapping[str, Any], key: str) -> str | None:
    value = privacy.get(key)
    if value is not None and (
        not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= LONGEST_NOTE
    ):
        raise SchemaError(f"privacy.{key} must be one line of up to {LONGEST_NOTE} characters")
    return value


def _constant(names: object, columns: Mapping[str, Any]) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name in columns for name in names):
        raise SchemaError(
            f"privacy.constant_per_unit must be a list of declared columns, got {names!r} instead",
            "name the columns that have one value in all rows of a unit",
        )
    return tuple(names)


def _blank(value: object, full: str) -> None:
    if value is None or value == "":
        raise SchemaError(
            f"{full} is still blank",
            "fill it in from public knowledge, not from the data: bounds taken from data leak it",
        )


def _whole(facts: Mapping[str, Any], path: str, key: str, low: int, high: int) -> int:
    value = facts.get(key)
    _blank(value, f"{path}.{key}")
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SchemaError(f"{path}.{key} must be a whole number from {low} to {high}, got {value!r} instead")
    return value


def _real(facts: Mapping[str, Any], path: str, key: str) -> float:
    value = facts.get(key)
    _blank(value, f"{path}.{key}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
        raise SchemaError(f"{path}.{key} must be a finite number, got {value!r} instead")
    return float(value)


def _ordered(path: str, lower: Any, upper: Any) -> None:
    if not lower < upper:
        raise SchemaError(f"{path}.lower must be below {path}.upper, got {lower} and {upper} instead")


def _number(name: str, path: str, facts: Mapping[str, Any]) -> Number:
    _only(facts, path, ("kind", "lower", "upper", "transform", "missing"))
    lower, upper = _real(facts, path, "lower"), _real(facts, path, "upper")
    _ordered(path, lower, upper)
    transform = facts.get("transform")
    if transform is not None and transform not in TRANSFORMS:
        raise SchemaError(f'{path}.transform must be "log" or "asinh", got {transform!r} instead')
    if transform == "log" and lower <= 0:
        raise SchemaError(f'{path}.lower must be above 0 for transform = "log", got {lower}', 'use "asinh" instead')
    missing = _real(facts, path, "missing") if "missing" in facts else None
    return Number(name, lower, upper, transform, missing)


def _integer(name: str, path: str, facts: Mapping[str, Any]) -> Integer:
    _only(facts, path, ("kind", "lower", "upper", "missing"))
    low, high = -(2**53), 2**53
    lower, upper = _whole(facts, path, "lower", low, high), _whole(facts, path, "upper", low, high)
    _ordered(path, lower, upper)
    missing = _whole(facts, path, "missing", low, high) if "missing" in facts else None
    return Integer(name, lower, upper, missing)


def _datetime(name: str, path: str, facts: Mapping[str, Any]) -> Datetime:
    _only(facts, path, ("kind", "lower", "upper"))
    bounds = []
    for key in ("lower", "upper"):
        _blank(facts.get(key), f"{path}.{key}")
        moment = as_moment(facts[key])
        if moment is None:
            raise SchemaError(
                f"{path}.{key} must be a date or time such as 2024-01-31T12:00:00, got {facts[key]!r} instead"
            )
        bounds.append(moment)
    _ordered(path, *bounds)
    return Datetime(name, *bounds)


def _category(name: str, path: str, facts: Mapping[str, Any]) -> Category:
    _only(facts, path, ("kind", "values"))
    values = facts.get("values")
    _blank(values, f"{path}.values")
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
    return Category(name, tuple(values))


def _boolean(name: str, path: str, facts: Mapping[str, Any]) -> Boolean:
    _only(facts, path, ("kind",))
    return Boolean(name)


def _id_set(name: str, path: str, facts: Mapping[str, Any]) -> IdSet:
    _only(facts, path, ("kind", "universe"))
    return IdSet(name, _whole(facts, path, "universe", 1, 2**31 - 2))


_KINDS = {
    "number": _number,
    "integer": _integer,
    "category": _category,
    "boolean": _boolean,
    "datetime": _datetime,
    "set": _id_set,
}


def _column(name: str, facts: Mapping[str, Any]) -> Column:
    path = f"columns.{name}"
    kind = facts.get("kind")
    _blank(kind, f"{path}.kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SchemaError(f"{path}.kind must be one of {', '.join(_KINDS)}, got {kind!r} instead")
    return _KINDS[kind](name, path, facts)
