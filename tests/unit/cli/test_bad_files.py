"""Files that are damaged, missing or in the way, and the exact words a user gets back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_commands import GOOD, RELEASE, Case, check_message, name_of

COUNT_RECIPE = "[[parts]]\nshare = 1.0\nmap = 'count'\n"
OTHER_RECIPE = (
    "the sketch that groups are taken from has another recipe\n"
    "Hint: sketch the table by its recipe: dpsketch release TABLE --groups-from without --recipe, --only and "
    "--frequencies does (accumulate(table, schema, other.recipe))"
)
COPY = "Hint: ask its owner for a new copy"
CASES = [
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
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_message(
    case: Case, bad_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_message(case, bad_folder, monkeypatch, capsys)
