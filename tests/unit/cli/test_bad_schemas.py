"""What a user can get wrong in schemas and tables, and the exact words they get back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_commands import RELEASE, Case, check_message, column, name_of, schema

CASES = [
    # schemas
    schema(
        "[privacy]\nrelation = 'both'\n[columns.x]\nkind = 'boolean'\n",
        'privacy.relation must be "add-remove" or "replace-one", got \'both\' instead\n'
        'Hint: "replace-one" makes the exact number of rows public; if in doubt leave it out',
    ),
    schema(
        "[privacy]\nunit = 'id'\nmax_rows_per_unit = 2\nconstant_per_unit = ['z']\n[columns.x]\nkind = 'boolean'\n",
        "privacy.constant_per_unit must be a list of declared columns, got ['z'] instead\n"
        "Hint: name the columns that have one value in all rows of a unit",
    ),
    schema(
        "[privacy]\nconstant_per_unit = ['x']\n[columns.x]\nkind = 'boolean'\n",
        "privacy.constant_per_unit is set but privacy.unit is 'row'\n"
        'Hint: name the column that identifies a person: unit = "patient_id"',
    ),
    schema(
        "[privacy\n",
        "not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 9)\n"
        "Hint: dpsketch init TABLE writes a template",
    ),
    schema("", "columns must be a section\nHint: write [columns] and its keys below it"),
    schema("[columns]\n", "columns: at least one column must be declared\nHint: add a [columns.NAME] section"),
    schema("rows = 5\n", "rows is not a known key\nHint: the keys here are about, privacy, csv, workload, columns"),
    schema(
        '[workload]\nasked = [["x", "y"]]\n[columns.x]\nkind = "boolean"\n',
        "workload.asked is not a known key\nHint: the keys here are important",
    ),
    schema(
        '[workload]\nimportant = [["x", "y"]]\n[columns.x]\nkind = "boolean"\n',
        "workload.important: there is no column 'y'\nHint: the columns are x",
    ),
    schema("[privacy]\nrows = 0\n", "privacy.rows must be a whole number from 1 to 1000000000000000, got 0 instead"),
    schema(
        '[privacy]\nrows = ""\n',
        "privacy.rows is still blank\n"
        "Hint: fill it in from public knowledge, not from the data: bounds taken from data leak it",
    ),
    schema(
        '[privacy]\nunit = "id"\n',
        "privacy.max_rows_per_unit must be set because privacy.unit is 'id'\n"
        "Hint: say how many rows of one unit may count; the noise grows with it",
    ),
    schema(
        "[privacy]\nmax_rows_per_unit = 3\n",
        "privacy.max_rows_per_unit is set but privacy.unit is 'row'\n"
        'Hint: name the column that identifies a person: unit = "patient_id"',
    ),
    column(
        'kind = ""',
        "columns.x.kind is still blank\n"
        "Hint: fill it in from public knowledge, not from the data: bounds taken from data leak it",
    ),
    column(
        'kind = "text"',
        "columns.x.kind must be one of number, integer, code, category, boolean, datetime, set, got 'text' instead",
    ),
    column(
        'kind = "integer"\nlower = ""\nupper = 5',
        "columns.x.lower is still blank\n"
        "Hint: fill it in from public knowledge, not from the data: bounds taken from data leak it",
    ),
    column(
        'kind = "number"\nlower = 5\nupper = 5',
        "columns.x.lower must be below columns.x.upper, got 5.0 and 5.0 instead",
    ),
    column('kind = "number"\nlower = 0\nupper = inf', "columns.x.upper must be a finite number, got inf instead"),
    column('kind = "number"\nlower = "a"\nupper = 5', "columns.x.lower must be a finite number, got 'a' instead"),
    column(
        'kind = "integer"\nlower = 0.5\nupper = 5',
        "columns.x.lower must be a whole number from -9007199254740992 to 9007199254740992, got 0.5 instead",
    ),
    column(
        'kind = "number"\nlower = 0\nupper = 5\ntransform = "log"',
        'columns.x.lower must be above 0 for transform = "log", got 0.0\nHint: use "asinh" instead',
    ),
    column(
        'kind = "number"\nlower = 0\nupper = 5\ntransform = "sqrt"',
        'columns.x.transform must be "log" or "asinh", got \'sqrt\' instead',
    ),
    column('kind = "category"\nvalues = ["a", "a"]', "columns.x.values lists a value twice"),
    column(
        'kind = "category"\nvalues = [1.5]',
        "columns.x.values must hold strings without outer blanks, or integers, got 1.5 instead",
    ),
    column('kind = "boolean"\nvalues = ["yes"]', "columns.x.values is not a known key\nHint: the keys here are kind"),
    column(
        'kind = "datetime"\nlower = "soon"\nupper = 2025-01-01',
        "columns.x.lower must be a date or time such as 2024-01-31T12:00:00, got 'soon' instead",
    ),
    column(
        'kind = "set"\nuniverse = 0', "columns.x.universe must be a whole number from 1 to 2147483646, got 0 instead"
    ),
    Case(
        "release t.parquet --schema none.toml --epsilon 1 --ledger l.db -o new.sketch",
        "SchemaError: none.toml: cannot be read: No such file or directory\n"
        "Hint: dpsketch init TABLE writes a template",
    ),
    # tables
    Case(
        RELEASE.replace("t.parquet", "none.csv"),
        "SourceError: there is no file none.csv\nHint: check the path: a CSV or Parquet file, or a folder of them",
    ),
    Case(
        RELEASE.replace("t.parquet", "t.xlsx"),
        "SourceError: t.xlsx: the name must end in .csv, .tsv, .csv.gz, .csv.zst, .tsv.gz, .tsv.zst, .parquet, .pq\n"
        "Hint: rename or convert the file",
    ),
    Case(
        RELEASE.replace("t.parquet", "broken.parquet"),
        "SourceError: broken.parquet cannot be read as Parquet (ArrowInvalid)\nHint: check that the file is whole",
    ),
    Case(
        RELEASE.replace("t.parquet", "empty"),
        "SourceError: empty holds no CSV or Parquet file\nHint: name a folder with .csv or .parquet files",
    ),
    Case(
        RELEASE.replace("t.parquet", "narrow.parquet"),
        "SourceError: narrow.parquet has no column 'age'\nHint: did you mean 'Age'?",
    ),
    Case(
        RELEASE.replace("t.parquet", "lists.parquet"),
        "SourceError: column 'age' is declared as integer, but the table holds list<element: int64>\n"
        "Hint: declare it as a set of ids, or leave it out of the schema",
    ),
    Case(
        "init none.csv",
        "SourceError: there is no file none.csv\nHint: check the path: a CSV or Parquet file, or a folder of them",
    ),
    Case(
        "init returns.csv --header",
        "SourceError: returns.csv: lines must end with a line feed\nHint: convert the line ends of the file",
    ),
    Case(
        "init quote.csv --header",
        'SourceError: quote.csv: the header line has a broken quote\nHint: write names with commas as "first, last"',
    ),
    Case(
        RELEASE.replace("t.parquet", "twice.csv"),
        "SourceError: twice.csv has several columns 'age'\nHint: give each column its own name",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_message(
    case: Case, bad_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_message(case, bad_folder, monkeypatch, capsys)
