"""What a user can get wrong in recipes, graphs and plans, and the exact words they get back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_commands import RELEASE, Case, check_message, column, name_of, recipe

CASES = [
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
        "Hint: the maps are count, histogram, marginals, levels, adaptive_marginals, cell_counts, totals, pairs, "
        "contrasts, triples, fourier, one_bit_fourier, quadratic, second_moments, grid, race, grouped, subsampled",
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
        "Hint: its parameters are columns, embedding, hash, labels, rows, seed, weight, weights, width",
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
        "graph t.parquet --nodes 0 --epsilon 1 --ledger l.db --dataset g -o new.sketch",
        "SourceError: nodes must be a whole number from 1 to 2147483646, got 0 instead",
    ),
    Case(
        "graph t.parquet --nodes 5 --epsilon 1 --ledger l.db --dataset g -o new.sketch",
        "SourceError: t.parquet has no column 'src'\nHint: the columns are age, sex, joined, member",
    ),
    Case(
        "graph t.parquet --nodes 5 --epsilon 0.000001 --repetitions 200 --ledger l.db --dataset g -o new.sketch",
        "RecipeError: map race: 5 declared rows and the noise do not fit 31 bits\n"
        "Hint: raise epsilon or the part's share, or use fewer repetitions",
    ),
    Case(
        "release good.raw --schema good.toml --epsilon 1 --ledger l.db -o new.sketch",
        "FileError: a raw sketch brings its own schema and recipe\nHint: leave out the options that describe them",
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
        "plan --schema good.toml --plot plan.jpg",
        "FileError: plan.jpg does not end in .svg or .png\nHint: choose one of these endings",
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


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_message(
    case: Case, bad_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_message(case, bad_folder, monkeypatch, capsys)
