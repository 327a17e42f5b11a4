"""Public facts about a table: columns, bounds, categories and the privacy unit.

A person writes a schema, or `tighten` derives it from a release. It never contains anything taken from values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from dpsketch.displays import counted, html_table, listed
from dpsketch.errors import SchemaError
from dpsketch.files.toml_file import read_toml
from dpsketch.schema.about import About
from dpsketch.schema.columns import Column, IdSet
from dpsketch.schema.derived import Derived
from dpsketch.schema.derived_parsing import declared_columns
from dpsketch.schema.parsing import (
    LONGEST_NOTE,
    check_keys,
    check_no_blanks,
    check_visible,
    constant_columns,
    line_of,
    table_of,
    whole_of,
)
from dpsketch.schema.relation import Relation

ROW_UNIT = "row"
UNIT_KINDS = ("text", "integer")
MOST_COLUMNS = 10_000
TIGHTENED = "Bounds were tightened from an earlier private release of the table, which costs privacy of its own."
LABELS_FOUND = "Labels were found by an earlier private release of the table, which costs privacy of its own."

Workload = tuple[tuple[str, ...], ...]  # groups of columns that questions will be about


@dataclass(frozen=True)
class Csv:
    """The layout of CSV files.

    It records whether quoted cells may contain line breaks, and the names of all columns in their order if the first
    line is a record.
    """

    multiline: bool = False
    columns: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        names = {} if self.columns is None else {"columns": list(self.columns)}
        return ({"multiline": True} if self.multiline else {}) | names

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Csv:
        check_keys(facts, "csv", ("multiline", "columns"))
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
            check_visible("csv.columns", name)
        if len(set(names)) < len(names) or len(names) > MOST_COLUMNS:
            raise SchemaError(f"csv.columns must list up to {MOST_COLUMNS} different names")
        return cls(multiline, tuple(names))


@dataclass(frozen=True)
class Schema:
    """The declared columns, the privacy unit and the public order of magnitude of the number of rows."""

    columns: tuple[Column, ...]
    rows: int | None = None
    unit: str = ROW_UNIT
    max_rows_per_unit: int = 1
    record: str = ROW_UNIT  # what a row represents, in the privacy statement
    note: str | None = None  # an additional sentence of the statement about it
    relation: Relation = Relation.ADD_REMOVE
    constant_per_unit: tuple[str, ...] = ()  # columns with the same value in all rows of a unit
    unit_kind: str = UNIT_KINDS[0]  # how unit ids are read
    csv: Csv = Csv()
    # A public hint to the general recipe. Whatever it says, sketches merge.
    workload: Workload = field(default=(), compare=False)
    # Texts for the privacy statement. Whatever they say, sketches merge.
    about: About = field(default=About(), compare=False)

    def __post_init__(self) -> None:
        if not self.columns:
            raise SchemaError("columns: at least one column must be declared", "add a [columns.NAME] section")
        if len(self.columns) > MOST_COLUMNS:
            raise SchemaError(f"columns: {len(self.columns)} columns are more than {MOST_COLUMNS}", "declare fewer")
        names = {f"columns.{column.name}": column.name for column in self.columns}
        names |= {"privacy.unit": self.unit, "privacy.record": self.record, "privacy.note": self.note or ""}
        for key, name in names.items():
            check_visible(key, name)

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f", about {self.rows:,} rows"
        names = [column.name for column in self.columns]
        return f"Schema({counted(len(names), 'column')}: {listed(names)}{rows}, unit {self.unit})"

    def _repr_html_(self) -> str:
        return html_table(repr(self), ("column", "kind", "declared"), [_declared(column) for column in self.columns])

    @cached_property
    def scalars(self) -> tuple[Column, ...]:
        """The columns that are encoded as codes, in the order of the code matrix."""
        return tuple(column for column in self.columns if not isinstance(column, IdSet))

    @cached_property
    def sets(self) -> tuple[IdSet, ...]:
        """The columns of sets of ids."""
        return tuple(column for column in self.columns if isinstance(column, IdSet))

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """The columns of the table that are read, but for the unit: those declared, and those computed columns need."""
        return self.stored_for(self.columns)

    def stored_for(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """The columns of the table that these are read or computed from."""
        names = (column.sources or (column.name,) for column in columns)
        return tuple(dict.fromkeys(name for each in names for name in each))

    def part_of(self, source: str, part: str) -> Column | None:
        """The column that holds a part of the dates of another one, if there is one."""
        wanted = Derived("part", (source,), part)
        return next(
            (column for column in self.columns if column.derived in (wanted, replace(wanted, stored=True))), None
        )

    def as_stored(self) -> Schema:
        """The same columns as those of a table that holds them all, none of them computed."""
        return replace(self, columns=tuple(column.as_stored() for column in self.columns))

    @property
    def unit_column(self) -> str | None:
        return None if self.unit == ROW_UNIT else self.unit

    @property
    def rows_per_unit(self) -> int | None:
        """Most rows of a unit that count; None where a unit is a row."""
        return None if self.unit_column is None else self.max_rows_per_unit

    @property
    def tightened(self) -> bool:
        """Whether bounds came from an earlier release of the table: `tighten` says so in the note."""
        return self.note is not None and TIGHTENED in self.note

    def noted(self, origin: str) -> Schema:
        """The schema with a sentence in its note about the origin of bounds or labels, once."""
        note = self.note or ""
        if origin in note:
            return self
        if len(note) + len(origin) + 1 > LONGEST_NOTE:
            raise SchemaError(
                "the schema's note has no room for the origin of bounds or labels", "shorten privacy.note"
            )
        return replace(self, note=f"{note} {origin}".strip())

    @property
    def accounted(self) -> tuple[str, int, str]:
        """The unit, its maximum number of rows (0 where a row is its own unit) and the relation, fixed for a dataset in
        the ledger.
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
        about = self.about.to_dict()
        sections: dict[str, Any] = {"csv": self.csv.to_dict()} if self.csv != Csv() else {}
        if self.workload:
            sections["workload"] = {"important": [list(group) for group in self.workload]}
        first = {"about": about} if about else {}
        return {
            **first,
            "privacy": privacy,
            **sections,
            "columns": {column.name: column.to_dict() for column in self.columns},
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Schema:
        """Build and check a schema; errors name the key."""
        check_keys(facts, "", ("about", "privacy", "csv", "workload", "columns"))
        check_no_blanks(facts)
        about = About.from_dict(table_of(facts, "about", optional=True))
        privacy = table_of(facts, "privacy", optional=True)
        known = ("rows", "unit", "unit_kind", "max_rows_per_unit", "constant_per_unit", "relation", "record", "note")
        check_keys(privacy, "privacy", known)
        rows = privacy.get("rows")
        if rows is not None:
            rows = whole_of(privacy, "privacy", "rows", 1, 10**15)
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
            most = whole_of(privacy, "privacy", "max_rows_per_unit", 1, 10**6)
        sections = table_of(facts, "columns")
        if unit in sections:
            raise SchemaError(
                f"column '{unit}' is the privacy unit and must not be declared as data",
                f"remove [columns.{unit}]: ids of people are never sketched",
            )
        columns = declared_columns(sections, unit)
        record, note = (line_of(privacy, "privacy", key, LONGEST_NOTE) for key in ("record", "note"))
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
        constant = constant_columns(privacy.get("constant_per_unit", []), sections)
        csv = Csv.from_dict(table_of(facts, "csv", optional=True))
        workload = _workload(facts, columns)
        who = (unit, most, record or ROW_UNIT, note, Relation(relation), constant, unit_kind)
        return cls(columns, rows, *who, csv, workload, about)

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


def _workload(facts: Mapping[str, Any], columns: Sequence[Column]) -> Workload:
    section = table_of(facts, "workload", optional=True)
    check_keys(section, "workload", ("important",))
    return checked_workload("workload.important", section.get("important", []), columns)


def checked_workload(owner: str, groups: object, columns: Sequence[Column]) -> Workload:
    """Groups of two or more names of columns that have codes. `owner` is the key or option that errors name."""
    if not isinstance(groups, list | tuple) or not all(isinstance(group, list | tuple) for group in groups):
        raise SchemaError(
            f"{owner} must be a list of groups of column names, got {groups!r} instead",
            'write [["age", "income"], ["ward", "outcome"]]',
        )
    known = {column.name: column for column in columns}
    for group in groups:
        for name in group:
            if not isinstance(name, str) or name not in known:
                raise SchemaError(f"{owner}: there is no column '{name}'", nearest(str(name), list(known)))
            if isinstance(known[name], IdSet):
                raise SchemaError(
                    f"{owner}: column '{name}' is a set of ids, which pair tables cannot hold", "leave it out"
                )
        if len(group) < 2 or len(set(group)) < len(group):
            raise SchemaError(
                f"{owner}: a group needs at least two columns, all different, got {', '.join(group) or 'none'}",
                "name the columns that questions will be about together",
            )
    return tuple(tuple(group) for group in groups)


def workload_pairs(groups: Workload, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """All pairs of these columns inside the groups, each once, in the order of the columns."""
    return tuple((one, two) for one, two in _inside(groups, names, 2))


def workload_triples(groups: Workload, names: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """All triples of these columns inside the groups, each once, in the order of the columns."""
    return tuple((one, two, three) for one, two, three in _inside(groups, names, 3))


def _inside(groups: Workload, names: Sequence[str], ways: int) -> Iterator[tuple[str, ...]]:
    """All sets of `ways` of these columns inside the groups, each once, in the order of the columns."""
    index_of = {name: index for index, name in enumerate(names)}
    known = [sorted(index_of[name] for name in group if name in index_of) for group in groups]
    for members in sorted({some for group in known for some in combinations(group, ways)}):
        yield tuple(names[index] for index in members)


def nearest(name: str, names: Sequence[str], what: str = "columns") -> str:
    """A hint with the closest names, or with all of them if none is close."""
    lowered = {known.lower(): known for known in names}
    close = [lowered[match] for match in get_close_matches(name.lower(), list(lowered), n=3, cutoff=0.5)]
    if close:
        return "did you mean " + " or ".join(f"'{match}'" for match in close) + "?"
    return f"the {what} are " + ", ".join(names[:30]) + (", …" if len(names) > 30 else "")


def _declared(column: Column) -> tuple[str, str, str]:
    """A column's name, kind and public facts, as in "lower 0, upper 120" or "values Female, Male"."""
    facts = {name: fact for name, fact in column.to_dict().items() if name != "kind"}
    texts = [f"{name} {listed([*map(str, fact)]) if isinstance(fact, list) else fact}" for name, fact in facts.items()]
    return column.name, column.kind, ", ".join(texts)
