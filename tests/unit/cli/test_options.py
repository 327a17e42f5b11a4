"""Options that every verb shares, and what `show` and `ask` say about a file itself."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import called
from dpsketch.cli.demo import SCHEMA, make_table
from dpsketch.errors import QueryError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("options")
    pq.write_table(pa.table(make_table(1000)), path / "hospital.parquet")
    (path / "hospital.toml").write_text(SCHEMA)
    done = called(path, *RELEASE, "--ledger", "l.db", "--create-ledger", "-o", "a.sketch")
    assert done.returncode == 0, done.stderr
    return path


RELEASE = ["release", "hospital.parquet", "--schema", "hospital.toml", "--epsilon", "1"]


def test_the_version_is_printed() -> None:
    assert called(Path(), "--version").stdout == f"dpsketch {version('dpsketch')}\n"


@pytest.mark.parametrize("words", [["-h"], ["ask", "-h"], ["ledger", "show", "-h"], ["fit", "kmeans", "-h"]])
def test_h_is_help(words: list[str]) -> None:
    assert "Usage: " in called(Path(), *words).stdout


def test_verbs_fit_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = called(Path(), "--help").stdout
    assert "..." not in said.split("Commands:")[1]


@pytest.mark.parametrize("after", [False, True])
def test_quiet_prints_results_and_errors_only(folder: Path, after: bool) -> None:
    def quietly(*words: str) -> subprocess.CompletedProcess[str]:
        return called(folder, *words, "-q") if after else called(folder, "--quiet", *words)

    release = [*RELEASE, "--ledger", "l.db", "--create-ledger", "--dataset", f"quiet {after}"]
    done = quietly(*release, "-o", f"quiet {after}.sketch")
    assert (done.returncode, done.stderr) == (0, "")
    refused = quietly(*release, "-o", "again.sketch")
    assert refused.stderr.startswith("BudgetError: ")
    shown = quietly("ledger", "show", "l.db")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "quiet" in shown.stdout


def test_the_ledger_may_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSKETCH_LEDGER", "l.db")
    assert called(folder, *RELEASE, "--dataset", "variable", "-o", "variable.sketch").returncode == 0
    assert "variable" in called(folder, "ledger", "show").stdout
    exact = ["release", "hospital.parquet", "--schema", "hospital.toml", "--epsilon", "inf", "--not-private"]
    assert called(folder, *exact, "-o", "exact.sketch").returncode == 0


def test_show_says_what_is_in_the_file(folder: Path) -> None:
    said = called(folder, "show", "a.sketch").stdout
    assert "100,000 declared rows. Good for: questions about one column" in said
    assert "cardiology" in said
    facts = json.loads(called(folder, "show", "a.sketch", "--json").stdout)["contents"]
    assert [column["column"] for column in facts["columns"]] == list(make_table(1))
    assert facts["columns"][5]["values"] == "100 to 200000, log scale"


@pytest.mark.parametrize(
    "question",
    ["describe sketch", "DESC sketch;", "show columns", "select * from sketch limit 5"],
)
def test_questions_about_the_sketch_itself_list_its_columns(question: str, folder: Path) -> None:
    said = called(folder, "ask", "a.sketch", question).stdout
    assert "for synthetic ones: dpsketch sample" in said
    assert "standard error" not in said
    rows = json.loads(called(folder, "ask", "a.sketch", question, "--json").stdout)
    assert rows[0] == {"column": "age", "kind": "integer", "values": "0 to 110"}


def test_names_of_columns_ignore_case_as_in_sql(folder: Path) -> None:
    view = dps.open(folder / "a.sketch")
    assert view.sql("select avg(AGE) from sketch where Smoker").columns == ("avg(age)",)
    assert view.count("AGE > 30").value == view.count("age > 30").value
    with pytest.raises(QueryError, match="AGE"):
        view.sql('select avg("AGE") from sketch')


def test_names_that_differ_in_case_only_are_told_apart() -> None:
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 10}, "columns": {name: {"kind": "boolean"} for name in ("flag", "Flag")}}
    )
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(), 0.5)])
    raw = dps.accumulate(pa.table({"flag": [True, False], "Flag": [True, True]}), schema, recipe)
    view = dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))
    view.count("Flag")
    with pytest.raises(QueryError, match='column FLAG is ambiguous: "Flag" or "flag"'):
        view.count("FLAG")
