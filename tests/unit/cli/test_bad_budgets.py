"""What a user can get wrong about budgets and ledgers, and the exact words they get back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_commands import RELEASE, Case, check_message, name_of

COUNT_RECIPE = "[[parts]]\nshare = 1.0\nmap = 'count'\n"
CASES = [
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
        "RecipeError: map totals: 281000000000000 declared rows and the noise do not fit 63 bits\n"
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
        "BudgetError: a private release needs a ledger\n"
        "Hint: pass --ledger ledger.db, the first time with --create-ledger",
    ),
    Case(
        RELEASE.replace("--epsilon 1", "--epsilon 0.5 --dataset spent"),
        "BudgetError: this release needs epsilon 0.5; dataset 'spent' has 0.125 left of 1.\n"
        "Hint: pass --epsilon 0.125 or less, or ask the owner to raise the cap: dpsketch ledger grant …",
    ),
    Case(
        RELEASE.replace("l.db", "no/folder/l.db --create-ledger"),
        "LedgerError: the ledger cannot be made: No such file or directory\nHint: check the path and its permissions",
    ),
    Case(
        RELEASE.replace("l.db", "t.parquet"),
        "LedgerError: t.parquet is not a ledger\nHint: check the path and its permissions",
    ),
    Case(
        RELEASE.replace("l.db", "none.db"),
        "LedgerError: there is no ledger none.db\n"
        "Hint: create it: dpsketch ledger create LEDGER, or release with --create-ledger",
    ),
    Case(
        "ledger declare none.db a p --schema good.toml --release epsilon=1 --delta 0",
        "LedgerError: there is no ledger none.db\n"
        "Hint: create it: dpsketch ledger create LEDGER, or release with --create-ledger",
    ),
    Case("ledger create l.db", "LedgerError: there is a ledger already: l.db\nHint: use it, or name another one"),
    Case(
        "ledger create empty.db",
        "LedgerError: empty.db exists but is not a ledger\n"
        "Hint: restore it from a backup if it was one; remove it if the ledger is meant to be new",
    ),
    Case(
        "ledger grant l.db spend --epsilon 1",
        "LedgerError: there is no dataset 'spend': the ledger has spent\n"
        "Hint: check the name; --force grants to a new dataset",
    ),
    Case(
        "ledger grant l.db spent --epsilon 0.5",
        "BudgetError: dataset 'spent' has spent epsilon 0.875, more than this cap of epsilon 0.5\n"
        "Hint: with --force no further release is possible until the cap is raised",
    ),
    Case(
        "ledger grant l.db spent --rho 0.1",
        "BudgetError: dataset 'spent' has spent rho 0.382813, more than this cap of rho 0.1\n"
        "Hint: with --force no further release is possible until the cap is raised",
    ),
    Case(
        RELEASE.replace("good.toml", "nameless.toml"),
        "LedgerError: a release needs the name under which its people's budget is counted\n"
        'Hint: pass --dataset NAME, or write [about] and name = "…" in the schema; '
        "files about the same people share it",
    ),
    Case(
        RELEASE + " --delta 0.01 --rows 101",
        "BudgetError: delta 0.01 is above one over the 101 declared rows: it would allow some people's records to be "
        "published as they are\nHint: pass a delta far below 0.01, or --accept-delta",
    ),
    Case(
        RELEASE + " --audit t.parquet",
        "FileError: t.parquet is not an audit's result\n"
        "Hint: write one: dpsketch audit RECIPE --schema SCHEMA --epsilon … --json > audit.json",
    ),
    Case(
        RELEASE + " --audit none.json",
        "FileError: none.json: cannot be read: No such file or directory\nHint: name a file that audit --json printed",
    ),
    Case(
        RELEASE + " --predictions t.parquet",
        "FileError: t.parquet is not a plan of answers\n"
        "Hint: write one: dpsketch plan --schema SCHEMA --epsilon … --query … --json > plan.json, with the release's "
        "options",
    ),
    Case(
        RELEASE + " --predictions none.json",
        "FileError: none.json: cannot be read: No such file or directory\nHint: name a file that plan --json printed",
    ),
    Case(
        "ledger show none.db",
        "LedgerError: there is no ledger none.db\n"
        "Hint: create it: dpsketch ledger create LEDGER, or release with --create-ledger",
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
        "ledger grant l.db a\tb --epsilon 1 --force",
        "LedgerError: a dataset's name must have 1 to 200 printable characters\nHint: pass another DATASET",
    ),
    Case(
        "ledger grant l.db  --epsilon 1 --force",  # an empty name
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
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_message(
    case: Case, bad_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_message(case, bad_folder, monkeypatch, capsys)
