"""What a user can get wrong, and the exact words they get back."""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.cli.app import main
from dpsketch.maps import registry
from dpsketch.privacy.events import Release

GOOD = """[privacy]
rows = 100
[columns.age]
kind = "integer"
lower = 0
upper = 120
[columns.sex]
kind = "category"
values = ["Female", "Male"]
[columns.joined]
kind = "datetime"
lower = 2020-01-01
upper = 2025-01-01
[columns.member]
kind = "boolean"
"""
RELEASE = "release t.parquet --schema good.toml --epsilon 1 --ledger l.db -o new.sketch"


@dataclass(frozen=True)
class Case:
    """A command, or a schema text to release with, and what it must print."""

    command: str
    message: str
    schema: str | None = None
    recipe: str | None = None


def schema(text: str, message: str) -> Case:
    command = "release t.parquet --schema bad.toml --epsilon 1 --ledger l.db -o new.sketch"
    return Case(command, f"SchemaError: bad.toml: {message}", text)


def column(text: str, message: str) -> Case:
    return schema(f"[privacy]\nrows = 10\n[columns.x]\n{text}\n", message)


def recipe(text: str, message: str) -> Case:
    """A recipe of one map with all of the budget."""
    return Case(
        RELEASE + " --recipe bad-recipe.toml", f"RecipeError: {message}", None, f"[[parts]]\nshare = 1.0\n{text}"
    )


def sql(question: str, message: str) -> Case:
    return Case(f"ask good.sketch|{question}", f"QueryError: {message}")


COUNT_RECIPE = "[[parts]]\nshare = 1.0\nmap = 'count'\n"
AGGREGATES = (
    "avg, sum, count, count_if, var, stddev, median, quantile(column, q), covar_pop, corr, regr_slope(y, x), "
    "regr_intercept(y, x)"
)
FUNCTIONS = (
    "Hint: expressions use +, -, *, /, %, power, abs, sign, sqrt, exp, ln, log, round, floor, ceil, least, greatest, "
    "coalesce, nullif, case, if, cast"
)
ONE_TABLE = "Hint: a sketch is one table; use aggregates, where, group by, having, order by and limit"
KEYS = "Hint: group by a category, boolean or integer column, or by an expression of one column with few values"
CONDITIONS = "Hint: conditions use and, or, not, =, <>, <, <=, >, >=, between, in, is null"
OTHER_RECIPE = (
    "the sketch that groups are taken from has another recipe\n"
    "Hint: sketch the table by its recipe: dpsketch release TABLE --groups-from without --recipe, --only and "
    "--frequencies does (accumulate(table, schema, other.recipe))"
)
COPY = "Hint: ask its owner for a new copy"
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
    schema("rows = 5\n", "rows is not a known key\nHint: the keys here are privacy, csv, columns"),
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
        "columns.x.kind must be one of number, integer, category, boolean, datetime, set, got 'text' instead",
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
        "SourceError: t.xlsx: the name must end in .csv, .tsv, .parquet, .pq\nHint: rename or convert the file",
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
    # budget and ledger
    Case(
        RELEASE.replace(" --epsilon 1", ""),
        "BudgetError: a budget is needed\nHint: pass --epsilon 1, with --delta or without, or --rho 0.5",
    ),
    Case(
        RELEASE + " --rho 1",
        "BudgetError: a budget is either epsilon, with delta or without, or rho\nHint: pass one of them",
    ),
    Case(
        RELEASE + " --delta 0.5",
        "BudgetError: delta must be 0, or between 1e-30 and 0.01, got 0.5 instead\n"
        "Hint: it should be far below one over the number of people; 1e-6 is a common choice",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--rho 0"),
        "BudgetError: rho must be a number from 1e-18 to 5000, got 0.0 instead\n"
        "Hint: 0.5 is about as strict as epsilon = 1 of pure privacy",
    ),
    Case(
        RELEASE + " --mechanism gaussian",
        "BudgetError: Gaussian noise needs delta above 0\nHint: pass --delta 1e-6, or leave out the mechanism",
    ),
    Case(
        RELEASE + " --mechanism normal",
        "BudgetError: mechanism must be one of auto, laplace, gaussian, got 'normal' instead\n"
        "Hint: auto takes the least noise",
    ),
    Case(
        RELEASE + " --only sex",
        "RecipeError: --only needs a column and a value\nHint: write --only region=north",
    ),
    Case(
        RELEASE + " --only sex=femail",
        "RecipeError: Only: column 'sex' has no value 'femail'\nHint: did you mean 'Female' or 'Male'?",
    ),
    Case(
        RELEASE + " --only age=3",
        "RecipeError: Only: 'age' is not a category or boolean column\nHint: partition by one that is",
    ),
    Case(
        RELEASE + " --plan none",
        "LedgerError: dataset 't' has no plan 'none'\nHint: dpsketch ledger declare … declares one",
    ),
    Case(
        "release t.parquet --schema good.toml --epsilon 1 --ledger l.db -o t.parquet --force",
        "FileError: t.parquet is another file of this command\nHint: choose another name for the output",
    ),
    Case(
        "release t.parquet --schema good.toml --epsilon 1 --ledger l.db -o l.db --force",
        "FileError: l.db is another file of this command\nHint: choose another name for the output",
    ),
    Case(
        "audit bad-recipe.toml --epsilon inf",
        "BudgetError: there is nothing to audit without privacy\nHint: pass a finite epsilon, or rho",
        None,
        COUNT_RECIPE,
    ),
    Case(
        "audit bad-recipe.toml --epsilon 1 --relation other",
        "RecipeError: --relation must be add-remove or replace-one, got 'other' instead\n"
        "Hint: add-remove hides that a record is there at all",
        None,
        COUNT_RECIPE,
    ),
    Case(
        "audit bad-recipe.toml --epsilon 1 --schema good.toml --relation add-remove",
        "RecipeError: a schema says its relation itself\nHint: leave out --relation",
        None,
        COUNT_RECIPE,
    ),
    Case(
        "accumulate t.parquet --schema good.toml -o new.raw",
        "BudgetError: a budget is needed\nHint: pass --epsilon 1, with --delta or without, or --rho 0.5",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--epsilon 1e-9 --rows 281000000000000"),
        "RecipeError: map marginals: 281000000000000 declared rows and the noise do not fit 63 bits\n"
        "Hint: raise epsilon or the part's share, or declare fewer rows",
    ),
    Case(
        RELEASE + " --dataset a\tb",
        "LedgerError: a dataset's name must have 1 to 200 printable characters\nHint: pass --dataset NAME",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--epsilon 0"),
        "BudgetError: epsilon must be a number above 0, got 0.0 instead\nHint: 1 is a common choice",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--epsilon 5000"),
        "BudgetError: epsilon must be between 1e-9 and 100, got 5000.0 instead\n"
        "Hint: for a study without privacy use epsilon = inf, which marks the file NOT PRIVATE",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--epsilon inf"),
        "BudgetError: a file without privacy needs both --epsilon inf and --not-private\n"
        "Hint: pass both, or neither for a private release",
    ),
    Case(
        RELEASE + " --not-private",
        "BudgetError: a file without privacy needs both --epsilon inf and --not-private\n"
        "Hint: pass both, or neither for a private release",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--epsilon inf") + " --not-private",
        "BudgetError: a release with infinite epsilon is not private and never enters a ledger\n"
        "Hint: leave out the ledger (--ledger)",
    ),
    Case(
        RELEASE.replace(" --ledger l.db", ""),
        "BudgetError: a private release needs a ledger\nHint: pass --ledger ledger.db; it is created if absent",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--epsilon 0.5 --dataset spent"),
        "BudgetError: this release needs epsilon 0.5; dataset 'spent' has 0.125 left of 1.\n"
        "Hint: pass --epsilon 0.125 or less, or ask the owner to raise the cap: dpsketch ledger grant …",
    ),
    Case(
        RELEASE.replace("l.db", "no/folder/l.db"),
        "LedgerError: the ledger cannot be made: No such file or directory\nHint: check the path and its permissions",
    ),
    Case(
        RELEASE.replace("l.db", "t.parquet"),
        "LedgerError: t.parquet is not a ledger\nHint: check the path and its permissions",
    ),
    Case(
        "ledger show none.db",
        "LedgerError: there is no ledger none.db\nHint: the first release, or dpsketch ledger grant, creates it",
    ),
    Case(
        "ledger show mysql://host/db",
        "LedgerError: a ledger is a file, an sqlite:// or a postgresql:// URL\n"
        "Hint: pass --ledger ledger.db, or postgresql://user@host/database",
    ),
    Case(
        "ledger show postgresql://me:p@ss@host/db",
        "LedgerError: the ledger's URL cannot be read\n"
        "Hint: write postgresql://user@host/database; signs like @, / and ? in a password must be percent-encoded",
    ),
    Case(
        "ledger grant l.db a",
        "BudgetError: a cap is epsilon, with delta or without, or rho\nHint: pass --epsilon 1, or --rho 0.5",
    ),
    Case(
        "ledger grant l.db a --epsilon 1 --rho 1",
        "BudgetError: a budget is either epsilon, with delta or without, or rho\nHint: pass one of them",
    ),
    Case(
        "ledger show l.db --as-plan 2",
        "BudgetError: delta must be 0, or between 1e-30 and 0.01, got 2.0 instead\n"
        "Hint: it should be far below one over the number of people; 1e-6 is a common choice",
    ),
    Case(
        "ledger show postgresql:/me:secret@host/db",
        "LedgerError: that is not a ledger's address\nHint: write postgresql://user@host/database, "
        "with the password in ~/.pgpass or PGPASSWORD, or a file as ./name",
    ),
    Case(
        "ledger show sqlite://",
        "LedgerError: a ledger in memory has nothing to read\nHint: pass the ledger's file or URL",
    ),
    Case(
        "ledger show empty.db",
        "LedgerError: empty.db exists but is not a ledger\n"
        "Hint: restore it from a backup if it was one; remove it if the ledger is meant to be new",
    ),
    Case(
        "ledger show damaged.db",
        "LedgerError: the ledger is damaged\n"
        "Hint: restore a backup, and lower the caps by what was released since it was made",
    ),
    Case(
        "ledger grant l.db a --epsilon 200",
        "BudgetError: a cap's epsilon must be between 1e-9 and 100, got 200.0 instead\n"
        "Hint: a cap holds for all releases together; choose a smaller one",
    ),
    Case(
        "ledger grant l.db a\tb --epsilon 1",
        "LedgerError: a dataset's name must have 1 to 200 printable characters\nHint: pass another DATASET",
    ),
    Case(
        "ledger grant l.db  --epsilon 1",  # an empty name
        "LedgerError: a dataset's name must have 1 to 200 printable characters\nHint: pass another DATASET",
    ),
    Case(
        "ledger declare l.db  p --schema good.toml --release epsilon=1 --delta 0",
        "LedgerError: a dataset's name must have 1 to 200 printable characters\nHint: pass another DATASET",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release delta=0.1 --delta 0",
        "BudgetError: 'delta=0.1' is not a budget: delta needs an epsilon\n"
        "Hint: write epsilon=0.1, or epsilon=0.1,delta=1e-7, or rho=0.01",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release epsilon=200 --delta 0",
        "BudgetError: epsilon of a plan's release must be between 1e-9 and 100, got 200.0 instead\n"
        "Hint: choose a smaller one",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release epsilon=1 --delta 0.5",
        "BudgetError: delta must be 0, or between 1e-30 and 0.01, got 0.5 instead\n"
        "Hint: it should be far below one over the number of people; 1e-6 is a common choice",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release epsilon=1 --delta 0 --times 101",
        "BudgetError: a plan may cost epsilon 100 at most, this one costs 101\nHint: declare fewer or smaller releases",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release epsilon=1 --delta 0 --times 10001",
        "BudgetError: times must be from 1 to 10,000, got 10001 instead",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release epsilon --delta 0",
        "BudgetError: 'epsilon' is not a budget\nHint: write epsilon=0.1, or epsilon=0.1,delta=1e-7, or rho=0.01",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release epsilon=1,sigma=2 --delta 0",
        "BudgetError: 'epsilon=1,sigma=2' is not a budget\n"
        "Hint: write epsilon=0.1, or epsilon=0.1,delta=1e-7, or rho=0.01",
    ),
    Case(
        "ledger declare l.db a p --schema good.toml --release epsilon=1 --delta 0 --times 0",
        "BudgetError: times must be from 1 to 10,000, got 0 instead",
    ),
    Case(
        "ledger declare l.db spent p --schema good.toml --release epsilon=1 --delta 0",
        "BudgetError: this plan needs epsilon 1; dataset 'spent' has 0.125 left of 1.\n"
        "Hint: ask the owner to raise the cap: dpsketch ledger grant …",
    ),
    Case("ledger grant l.db a --epsilon inf", "BudgetError: a cap must be finite\nHint: pass --epsilon with a number"),
    Case(
        RELEASE.replace("good.toml", "rowless.toml"),
        "RecipeError: the number of rows must be declared\n"
        "Hint: pass rows (--rows) or set privacy.rows in the schema: a public order of magnitude",
    ),
    Case(RELEASE + " --rows 0", "RecipeError: rows must be a whole number from 1 to 10^15, got 0 instead"),
    Case(
        RELEASE + " --frequencies -1",
        "RecipeError: Fourier: size must be a whole number from 1 to 10000000, got -1 instead",
    ),
    # recipes
    Case(
        RELEASE + " --recipe none.toml",
        "RecipeError: none.toml: cannot be read: No such file or directory\nHint: name a TOML file with [[parts]]",
    ),
    Case(
        RELEASE + " --recipe good.toml",
        "RecipeError: good.toml: a recipe is a list of [[parts]] sections\nHint: start each with [[parts]]",
    ),
    recipe("", 'bad-recipe.toml: every part needs map and share\nHint: write map = "race" and share = 1.0'),
    recipe(
        'map = "nonsense"',
        "bad-recipe.toml: there is no map called 'nonsense'\n"
        "Hint: the maps are count, histogram, marginals, totals, pairs, contrasts, fourier, one_bit_fourier, "
        "quadratic, second_moments, grid, race, grouped, subsampled",
    ),
    recipe(
        'map = "race"\nrows = 0', "bad-recipe.toml: Race: rows must be a whole number from 1 to 1000000, got 0 instead"
    ),
    recipe(
        'map = "race"\nwidth = 0',
        "bad-recipe.toml: Race: width must be a whole number from 2 to 1073741824, got 0 instead",
    ),
    recipe(
        'map = "race"\nhash = "minhash"',
        "bad-recipe.toml: hash must be a family such as Euclidean(), got 'minhash' instead\n"
        'Hint: in a file: hash = {family = "euclidean"}',
    ),
    recipe(
        'map = "race"\nhash = {family = "minhash"}',
        "Race: MinHash needs the name of a set column\nHint: name it in columns",
    ),
    recipe(
        'map = "race"\ncolumns = ["age"]\nhash = {family = "minhash"}',
        "Race: MinHash hashes one set column, got age\n"
        'Hint: declare the column with kind = "set" and its universe, or use Euclidean()',
    ),
    recipe(
        'map = "race"\ncolumns = ["height"]',
        "map race: there is no column 'height'\nHint: the columns are age, sex, joined, member",
    ),
    recipe(
        'map = "fourier"\nsize = 0',
        "bad-recipe.toml: Fourier: size must be a whole number from 1 to 10000000, got 0 instead",
    ),
    recipe(
        'map = "race"\nrows = 3\nsize = 7',
        "bad-recipe.toml: map race has no parameter 'size'\n"
        "Hint: its parameters are columns, embedding, hash, rows, seed, weight, weights, width",
    ),
    Case(
        RELEASE + " --recipe good-recipe.toml --frequencies 5",
        "RecipeError: --frequencies is for the general recipe\nHint: set size in the recipe file instead",
    ),
    column(
        'kind = "set"',
        "columns.x.universe is still blank\n"
        "Hint: fill it in from public knowledge, not from the data: bounds taken from data leak it",
    ),
    # graphs
    Case(
        "graph t.parquet --nodes 0 --epsilon 1 --ledger l.db -o new.sketch",
        "SourceError: nodes must be a whole number from 1 to 2147483646, got 0 instead",
    ),
    Case(
        "graph t.parquet --nodes 5 --epsilon 1 --ledger l.db -o new.sketch",
        "SourceError: t.parquet has no column 'src'\nHint: the columns are age, sex, joined, member",
    ),
    Case(
        "graph t.parquet --nodes 5 --epsilon 0.000001 --repetitions 200 --ledger l.db -o new.sketch",
        "RecipeError: map race: 5 declared rows and the noise do not fit 31 bits\n"
        "Hint: raise epsilon or the part's share, or use fewer repetitions",
    ),
    Case(
        "release good.raw --schema good.toml --epsilon 1 --ledger l.db -o new.sketch",
        "FileError: a raw sketch brings its own schema and recipe\nHint: leave out the options that describe them",
    ),
    # files
    Case(
        RELEASE.replace("new.sketch", "good.sketch"),
        "FileError: good.sketch exists already\nHint: choose another name, or pass --force (force=True) to replace it",
    ),
    Case(RELEASE.replace("new.sketch", "no/new.sketch"), "FileError: no is not a folder\nHint: create it first"),
    Case(
        "show none.sketch",
        "FileError: none.sketch cannot be read: No such file or directory\nHint: check path and permissions",
    ),
    Case("show t.parquet", f"FileError: t.parquet is damaged or not a sketch file\n{COPY}"),
    Case("show cut.sketch", f"FileError: cut.sketch is damaged or not a sketch file\n{COPY}"),
    Case(
        "show good.raw",
        "FileError: good.raw is a raw sketch: unreleased and not private\n"
        "Hint: release it first: dpsketch release RAW --epsilon …",
    ),
    Case(
        "release t.parquet --epsilon 1 --ledger l.db -o new.sketch",
        "FileError: a table needs --schema\nHint: dpsketch init TABLE > schema.toml writes a template",
    ),
    Case(
        "merge good.sketch -o new.sketch",
        "MergeError: merge needs at least two sketches\nHint: dpsketch merge A.sketch B.sketch -o BOTH.sketch",
    ),
    Case(
        "merge good.sketch good.sketch -o new.sketch",
        "MergeError: both sketches hold the same input\nHint: merge each input once",
    ),
    Case(
        "merge good.sketch good.raw -o new.sketch",
        "MergeError: raw and released sketches do not merge\nHint: release the raw one first",
    ),
    Case(
        "merge good.sketch study.sketch -o new.sketch",
        "MergeError: a sketch marked NOT PRIVATE does not merge with any other\n"
        "Hint: release with a finite epsilon, or merge the raw sketches",
    ),
    Case(
        "release good.raw --groups-from study.sketch --epsilon 1 --ledger l.db -o new.sketch",
        "MergeError: groups of a sketch marked NOT PRIVATE follow from exact sums\n"
        "Hint: take them from a private release",
    ),
    Case(
        RELEASE + " --groups-from good.raw",
        "FileError: good.raw is a raw sketch: unreleased and not private\n"
        "Hint: release it first: dpsketch release RAW --epsilon …",
    ),
    Case(
        RELEASE + " --groups-from missing.sketch",
        "FileError: missing.sketch cannot be read: No such file or directory\nHint: check path and permissions",
    ),
    Case(RELEASE + " --groups-from cut.sketch", f"FileError: cut.sketch is damaged or not a sketch file\n{COPY}"),
    Case(
        RELEASE + " --groups-from good.sketch --frequencies 3",
        "RecipeError: with --groups-from the recipe is that of the other sketch\nHint: leave out --frequencies",
    ),
    Case(
        RELEASE + " --groups-from good.sketch --recipe bad-recipe.toml",
        f"MergeError: {OTHER_RECIPE}",
        recipe=COUNT_RECIPE,
    ),
    Case(
        RELEASE + " --groups-from good.sketch --recipe bad-recipe.toml",
        f"MergeError: {OTHER_RECIPE}",
        recipe="[[parts]]\nshare = 0.4\nmap = 'marginals'\n[[parts]]\nshare = 0.3\nmap = 'pairs'\npool = true\n"
        "[[parts]]\nshare = 0.3\nmap = 'count'\n",
    ),
    Case(RELEASE + " --groups-from good.sketch --only sex=Male", f"MergeError: {OTHER_RECIPE}"),
    Case(
        "release t.parquet --schema bad.toml --groups-from good.sketch --epsilon 1 --ledger l.db -o new.sketch",
        "MergeError: the sketch that groups are taken from has another schema\nHint: use one schema file at every site",
        GOOD.replace("120", "121"),
    ),
    # questions
    sql("select avg(agee) from sketch", "there is no column 'agee'\nHint: did you mean 'age'?"),
    sql("select avg(zzz) from sketch", "there is no column 'zzz'\nHint: the columns are age, sex, joined, member"),
    sql(
        "select min(age) from sketch",
        "min is one person's value and cannot be released\nHint: ask for a quantile such as 0.01 or 0.99 instead",
    ),
    sql(
        "select max(age) from sketch",
        "max is one person's value and cannot be released\nHint: ask for a quantile such as 0.01 or 0.99 instead",
    ),
    sql("select age from sketch", f"column 'age' is neither aggregated nor in group by\nHint: use {AGGREGATES}"),
    sql("select *, count(*) from sketch", f"'*' is not supported in the select list\nHint: use {AGGREGATES}"),
    sql(
        "select sex from sketch group by sex",
        f"the select list has no aggregate\nHint: use {AGGREGATES}: single records cannot be read",
    ),
    sql("select avg(age) from people", "the table is called sketch\nHint: write: … from sketch …"),
    sql(
        "select avg(age) from sketch join other using (age)",
        f"join is not supported\n{ONE_TABLE}",
    ),
    sql(
        "select avg(age) from sketch tablesample 10 percent",
        f"a sample is not supported\n{ONE_TABLE}",
    ),
    sql(
        "select sex, avg(age) from sketch group by all",
        f"group by all is not supported\n{ONE_TABLE}",
    ),
    sql(
        "select count(*) from sketch where " + " or ".join(["age = 1"] * 900),
        "the statement is too long\nHint: use between, or in with a list of values",
    ),
    sql(
        "select percentile_cont(0.9) within group (order by age desc) from sketch",
        "'age DESC' is not supported\nHint: leave out: desc",
    ),
    sql(
        "select count(*) from sketch where age between symmetric 60 and 40",
        "'(age BETWEEN 60 AND 40 OR age BETWEEN 40 AND 60)' is not supported\nHint: leave out: symmetric",
    ),
    sql("select count(age, sex) from sketch", "'COUNT(age, sex)' is not supported\nHint: leave out: expressions"),
    sql("select std(age, 1) from sketch", "'STD(age, 1)': std takes 1 argument, got 2"),
    sql(
        "select avg(age, 1) from sketch",
        "a function has too many arguments\nHint: avg(x), round(x, 2), corr(x, y), regr_slope(y, x)",
    ),
    sql(
        "select corr(age) from sketch",
        "a function or operator lacks an argument\nHint: power(x, 2), corr(x, y), regr_slope(y, x)",
    ),
    sql(
        "select avg(other.age) from sketch",
        "there is no table 'other'\nHint: write the column's name alone: age",
    ),
    sql(
        "select sex, count(*) as sex from sketch group by sex",
        "two entries of the select list have the same name\nHint: name them apart: avg(age) as mean_age",
    ),
    sql("drop table sketch", "only one select statement is supported\nHint: write: select avg(age) from sketch"),
    sql(
        "select avg(age from sketch",
        "the statement is not valid SQL\nHint: write: select avg(age) from sketch where sex = 'Female'",
    ),
    sql(
        "select avg(sex) from sketch",
        "column 'sex' is a category and has no numeric value\nHint: count it, or group by it",
    ),
    sql(
        "select sum(joined) from sketch",
        "the sum of dates in column 'joined' is not defined\nHint: ask for the mean or a quantile",
    ),
    sql(
        "select avg(age * sex) from sketch",
        "column 'sex' is a category and has no numeric value\nHint: compare it: case when sex = … then 1 else 0 end",
    ),
    sql(
        "select avg(age + joined) from sketch",
        "dates of column 'joined' cannot be used in arithmetic\n"
        "Hint: compare them: case when joined > '2024-01-31' then 1 else 0 end",
    ),
    sql(
        "select avg(joined) - 1 from sketch",
        "dates of column 'joined' cannot be used in arithmetic\nHint: ask for each in its own column",
    ),
    sql(
        "select corr(age, sex) from sketch",
        "column 'sex' is a category and has no numeric value\nHint: count it, or group by it",
    ),
    sql(
        "select regr_slope(age, joined) from sketch",
        "the covariance of dates in column 'joined' is not defined\nHint: ask for the mean or a quantile",
    ),
    sql("select avg(sin(age)) from sketch", f"the function 'sin' is not known here\n{FUNCTIONS}"),
    sql("select avg(shout(age)) from sketch", f"the function 'shout' is not known here\n{FUNCTIONS}"),
    sql("select avg('old') from sketch", "'old' is not a number that can be used here"),
    sql("select avg(age like 'x') from sketch", f"'age LIKE 'x'' is not a supported expression\n{FUNCTIONS}"),
    sql(
        "select avg(cast(age as varchar)) from sketch",
        "'CAST(age AS TEXT)' is not supported\nHint: cast to int or double",
    ),
    sql(
        "select avg(round(age, member)) from sketch",
        "'ROUND(age, member)' must round to a whole number of decimals, at most 15",
    ),
    sql(
        "select avg(exp(age * 1000)) from sketch",
        "'exp(age * 1000)' is too large at some values of its columns\nHint: limit it: least(…, 1000)",
    ),
    sql(
        "select avg(sum(age)) from sketch",
        "'SUM(age)' is an aggregate inside an expression of columns\n"
        "Hint: use one aggregate alone, and having for conditions on it",
    ),
    sql(
        "select count(*) from sketch where avg(age) > 3",
        "'AVG(age)' is an aggregate inside an expression of columns\n"
        "Hint: use one aggregate alone, and having for conditions on it",
    ),
    sql("select sum(age) over () from sketch", "window functions are not supported\nHint: use group by"),
    sql(
        "select (select avg(age) from sketch) from sketch",
        "a select inside a select is not supported\nHint: a sketch is one table; ask two questions",
    ),
    sql(
        "select count(*) from sketch where age > (select avg(age) from sketch)",
        "a select inside a select is not supported\nHint: a sketch is one table; ask two questions",
    ),
    sql("select avg(distinct age) from sketch", "distinct is not supported\nHint: count each label with group by"),
    sql("select distinct avg(age) from sketch", f"distinct is not supported\n{ONE_TABLE}"),
    sql("with t as (select 1) select avg(age) from sketch", f"with is not supported\n{ONE_TABLE}"),
    sql(
        "select avg(age) from sketch union select 1",
        "only one select statement is supported\nHint: write: select avg(age) from sketch",
    ),
    sql("select mode(age) from sketch", f"the aggregate 'MODE(age)' is not supported\nHint: use {AGGREGATES}"),
    sql("select 1 from sketch", f"'1' is not supported in the select list\nHint: use {AGGREGATES}"),
    sql(
        "select power(avg(age), avg(age)) from sketch",
        "'AVG(age)' must be a number here\nHint: power(avg(x), 2), log(2, avg(x))",
    ),
    sql(
        "select sin(avg(age)) from sketch",
        f"the function 'sin' is not known here\nHint: aggregates are {AGGREGATES}; between them use +, -, *, /, abs, "
        "sqrt, exp, ln, log, power, round, floor, ceil, least, greatest, coalesce, nullif, cast",
    ),
    sql(
        "select avg(age) from sketch having sex = 'Male'",
        "column 'sex' is neither aggregated nor in group by\nHint: put conditions on columns in where",
    ),
    sql(
        "select avg(age) as mean from sketch having mean",
        "column 'avg(age)' is not boolean\nHint: compare it with a value: avg(age) = …",
    ),
    sql(
        "select avg(age) from sketch order by 2",
        "order by 2: the select list has no such entry\nHint: entries are numbered from 1",
    ),
    sql(
        "select avg(age) from sketch group by 2",
        "group by 2: the select list has no such entry\nHint: entries are numbered from 1",
    ),
    sql(
        "select avg(age) from sketch order by sex",
        f"column 'sex' is neither aggregated nor in group by\nHint: use {AGGREGATES}",
    ),
    sql(
        "select avg(age) from sketch limit 1.5",
        "'LIMIT 1.5' is not supported\nHint: write a whole number: limit 10 offset 5",
    ),
    sql("select avg(age) from sketch group by age + joined", f"group by 'age + joined' is not supported\n{KEYS}"),
    sql("select avg(age), count(*) from sketch group by 1", f"group by 'AVG(age)' is an aggregate\n{KEYS}"),
    sql(
        "select count(*) from sketch where sex = 'Femal'",
        "column 'sex' has no listed value 'Femal'\nHint: did you mean 'Female' or 'Male'?",
    ),
    sql(
        "select count(*) from sketch where sex < 'Male'",
        "column 'sex' is a category and has no order\nHint: compare it with = or <>",
    ),
    sql(
        "select count(*) from sketch where age = 'old'",
        "column 'age' holds numbers, got 'old'\nHint: write the number without quotes",
    ),
    sql(
        "select count(*) from sketch where joined > 'soon'",
        "column 'joined' holds dates, got 'soon'\nHint: write dates as '2024-01-31'",
    ),
    sql("select count(*) from sketch where age", "column 'age' is not boolean\nHint: compare it with a value: age = …"),
    sql(
        "select count(*) from sketch where sex like 'F%'", f"'sex LIKE 'F%'' is not a supported condition\n{CONDITIONS}"
    ),
    sql("select quantile(age, 2) from sketch", "a quantile is between 0 and 1, got 2\nHint: the median is 0.5"),
    sql(
        "select joined, count(*) from sketch group by joined",
        "column 'joined' has too many values to group by\nHint: group by a category or boolean, or use where",
    ),
    sql(
        "select count(distinct age) from sketch",
        "count(distinct …) is not in this release\nHint: count each label with group by",
    ),
    # plans
    Case(
        "plan --schema good.toml --epsilon 0.1,x",
        "BudgetError: --epsilon must be numbers with commas between them, got '0.1,x' instead\n"
        "Hint: write --epsilon 0.1,1,10",
    ),
    Case(
        "plan --schema good.toml --epsilon 1,0",
        "BudgetError: epsilon must be a number above 0, got 0.0 instead\nHint: 1 is a common choice",
    ),
    Case(
        "plan --schema good.toml --epsilon inf",
        "BudgetError: a plan is for private releases\nHint: pass finite numbers",
    ),
    Case(
        "plan --schema good.toml --plot plan.jpg", "FileError: plan.jpg does not end in .png\nHint: choose this ending"
    ),
    Case(
        "plan --schema rowless.toml",
        "RecipeError: the number of rows must be declared\n"
        "Hint: pass rows (--rows) or set privacy.rows in the schema: a public order of magnitude",
    ),
    Case(
        "plan --schema good.toml --simulations 0",
        "RecipeError: plan: simulations must be a whole number from 1 to 1000, got 0 instead",
    ),
    Case(
        "plan --schema good.toml --query|select avg(wage) from sketch",
        "QueryError: there is no column 'wage'\nHint: did you mean 'age'?",
    ),
    Case(
        "plan --schema good.toml --query|select sex, avg(age) from sketch group by sex limit 1",
        "QueryError: a plan is about all groups: having, order by, limit and offset choose some by their noisy "
        "answers\n"
        "Hint: leave these clauses out of the planned query",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a table, its schema, a release, and damaged or unsuitable files."""
    path = tmp_path_factory.mktemp("bad")
    table = pa.table(
        {"age": [30, 40], "sex": ["Female", "Male"], "joined": ["2021-01-01"] * 2, "member": [True, False]}
    )
    pq.write_table(table, path / "t.parquet")
    pq.write_table(table.rename_columns(["Age", "sex", "joined", "member"]), path / "narrow.parquet")
    pq.write_table(table.set_column(0, "age", pa.array([[1], [2]])), path / "lists.parquet")
    (path / "broken.parquet").write_bytes((path / "t.parquet").read_bytes()[:-20])
    (path / "t.xlsx").write_bytes(b"")
    (path / "quote.csv").write_bytes(b'a,"b\n1,2\n')
    (path / "returns.csv").write_bytes(b"name,age\rAlice,33\rBob,44\r")
    (path / "twice.csv").write_bytes(b"age,age,sex,joined,member\n1,2,3,4,5\n")
    (path / "empty").mkdir()
    (path / "good.toml").write_text(GOOD)
    (path / "rowless.toml").write_text(GOOD.replace("rows = 100", ""))
    facts, budget = dps.Schema.load(path / "good.toml"), dps.Budget(1.0)
    recipe = dps.Recipe.general(facts, budget=budget)
    raw = dps.accumulate(path / "t.parquet", facts, recipe)
    raw.save(path / "good.raw")
    dps.release(raw, budget, dps.Ledger("sqlite://"), "t").save(path / "good.sketch")
    other = dps.accumulate(path / "t.parquet", facts, recipe)
    dps.release(other, dps.Budget(float("inf"))).save(path / "study.sketch")
    (path / "cut.sketch").write_bytes((path / "good.sketch").read_bytes()[:-1])
    (path / "empty.db").touch()
    damaged = dps.Ledger(path / "damaged.db")
    damaged.reserve("a", ("row", 1, "add-remove"), Release(dps.Budget(1.0), ()), frozenset(["i"]))
    with sqlite3.connect(path / "damaged.db") as connection:
        connection.execute("update spends set release = '{}'")
    ledger = dps.Ledger(path / "l.db")
    ledger.grant("spent", dps.Budget(1.0))
    ledger.reserve("spent", ("row", 1, "add-remove"), Release(dps.Budget(0.875), ()), frozenset(["i"]))
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W+", "-", case.message[:60]))
def test_message(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delitem(registry.MAPS, "middle", raising=False)  # the contract tests' own map
    if case.schema is not None:
        (folder / "bad.toml").write_text(case.schema)
    if case.recipe is not None:
        (folder / "bad-recipe.toml").write_text(case.recipe)
    command, _, question = case.command.partition("|")
    monkeypatch.setattr("sys.argv", ["dpsketch", *command.split(" "), *([question] if question else [])])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    captured = capsys.readouterr()
    assert captured.err.strip() == case.message
    assert captured.out == ""
    assert not os.path.exists("new.sketch")


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 40
