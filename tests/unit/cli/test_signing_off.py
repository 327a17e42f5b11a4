"""What `release` asks of a curator before anything is spent, and what it then writes into the statement."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import called

SCHEMA = '[about]\nname = "ward"\n[privacy]\nrows = 50\n[columns.x]\nkind = "boolean"\n'
RELEASE = ("release", "t.parquet", "--schema", "s.toml", "--recipe", "r.toml", "--ledger", "l.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"x": [True, False] * 25}), tmp_path / "t.parquet")
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "r.toml").write_text("[[parts]]\nmap = 'count'\nshare = 1.0\n")
    return tmp_path


def test_a_ledger_is_made_when_asked_for_and_named_after_the_people(folder: Path) -> None:
    words = (*RELEASE, "--epsilon", "1", "-o")
    refused = called(folder, *words, "a.sketch")
    assert "LedgerError: there is no ledger l.db" in refused.stderr
    assert not (folder / "l.db").exists()
    assert called(folder, *words, "a.sketch", "--create-ledger").returncode == 0
    assert "dataset 'ward' has 0 left of 1" in called(folder, *words, "b.sketch").stderr
    named = called(folder, *words, "b.sketch", "--dataset", "other")
    assert "dataset 'other' has spent epsilon 1 of 1" in named.stderr


def test_a_large_delta_needs_a_word(folder: Path) -> None:
    words = (*RELEASE, "--create-ledger", "--epsilon", "1", "--delta", "0.01", "-o", "a.sketch")
    assert called(folder, *words).returncode == 0, "below 1/50"
    (folder / "s.toml").write_text(SCHEMA.replace("50", "500"))
    more = (*words[:-1], "b.sketch", "--dataset", "more")
    assert "BudgetError: delta 0.01 is above one over the 500 declared rows" in called(folder, *more).stderr
    assert called(folder, *more, "--accept-delta").returncode == 0
    raw = called(folder, "accumulate", "t.parquet", "--schema", "s.toml", "--recipe", "r.toml", "-o", "t.raw")
    assert raw.returncode == 0
    words = ("release", "t.raw", "--ledger", "l.db", "--epsilon", "1", "--delta", "0.01", "-o", "c.sketch")
    assert "above one over the 500 declared rows" in called(folder, *words).stderr


def test_graphs_are_asked_the_same(folder: Path) -> None:
    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 2]}), folder / "e.parquet")
    words = ("graph", "e.parquet", "--nodes", "30", "--repetitions", "2", "--ledger", "l.db", "--create-ledger")
    words += ("--epsilon", "50", "-o", "g.sketch")
    assert "LedgerError: a release needs the name under which" in called(folder, *words).stderr
    words += ("--dataset", "friends", "--delta", "0.01")
    assert called(folder, *words, "--rho", "1").returncode == 1
    assert called(folder, *words).returncode == 0


def test_an_audit_goes_into_the_statement_of_what_it_is_about(folder: Path) -> None:
    audit = called(folder, "audit", "r.toml", "--schema", "s.toml", "--epsilon", "1", "--draws", "1000", "--json")
    (folder / "audit.json").write_text(audit.stdout)
    words = (*RELEASE, "--create-ledger", "--audit", "audit.json", "-o", "a.sketch", "--epsilon")
    other = called(folder, *words, "2")
    assert "FileError: audit.json is the audit of another recipe or budget" in other.stderr
    assert called(folder, *words, "1").returncode == 0
    (stated,) = json.loads(called(folder, "show", "a.sketch", "--json").stdout)["audits"]
    assert stated["draws"] == 1000
    assert "an attack on 1,000 simulated releases of this recipe proved" in called(folder, "show", "a.sketch").stdout


def test_predicted_errors_go_into_the_statement_of_what_they_are_about(folder: Path) -> None:
    (folder / "r.toml").write_text("[[parts]]\nmap = 'count'\nshare = 0.5\n[[parts]]\nmap = 'marginals'\nshare = 0.5\n")
    asked = ("--query", "select count(*) as n, avg(x) as share from sketch", "--query", "select avg(x)\nfrom sketch")
    plan = called(
        folder,
        "plan",
        "--schema",
        "s.toml",
        "--recipe",
        "r.toml",
        "--epsilon",
        "0.5,1",
        *asked,
        "--seed",
        "3",
        "--json",
    )
    (folder / "plan.json").write_text(plan.stdout)
    words = (*RELEASE, "--create-ledger", "--predictions", "plan.json", "-o", "a.sketch", "--epsilon")
    for other in (("2",), ("1", "--delta", "1e-9"), ("1", "--rows", "60"), ("1", "--schema", "other.toml")):
        (folder / "other.toml").write_text(SCHEMA + '[columns.y]\nkind = "boolean"\n')
        refused = called(folder, *words, *other).stderr
        assert "FileError: plan.json is the plan of another recipe, schema or budget\nHint: write one: " in refused
    chosen = called(folder, *words, "1", "--mechanism", "laplace").stderr
    assert "RecipeError: a plan is about a release that chooses its mechanism" in chosen
    assert called(folder, *words, "1").returncode == 0
    (stated,) = json.loads(called(folder, "show", "a.sketch", "--json").stdout)["predicted"]
    predicted = [row for row in json.loads(plan.stdout)["predictions"] if row["epsilon"] == 1]
    assert [each["error"] for each in stated["answers"]] == [row["error"] for row in predicted]
    assert [each["answer"] for each in stated["answers"]] == ["n", "share", "avg(x)"]
    shown = called(folder, "show", "a.sketch").stdout
    assert "standard errors of answers, from" in shown
    assert f"± {predicted[0]['error']:.3g} (" in shown
    assert "n in select count(*) as n, avg(x) as share from sketch\n" in shown
    assert "avg(x) in select avg(x)\\u000afrom sketch\n" in shown, "line breaks of others do not break lines"


def test_all_blanks_are_told_at_once(folder: Path) -> None:
    (folder / "s.toml").write_text(
        '[about]\nname = ""\n[privacy]\nrows = ""\nnote = ""\n'
        '[columns.a]\nkind = ""\n[columns.b]\nkind = "integer"\nlower = ""\n[columns.c]\nkind = "category"\n'
    )
    done = called(folder, *RELEASE, "--epsilon", "1", "-o", "a.sketch")
    assert done.stderr == (
        "SchemaError: s.toml: about.name, privacy.rows, privacy.note, columns.a.kind, columns.b.lower, "
        "columns.b.upper and columns.c.values are still blank\n"
        "Hint: fill them in from public knowledge, not from the data: bounds taken from data leak it\n"
    )


def test_many_blanks_are_counted(folder: Path) -> None:
    columns = "".join(f'[columns.c{index}]\nkind = ""\n' for index in range(40))
    (folder / "s.toml").write_text(columns)
    told = called(folder, *RELEASE, "--epsilon", "1", "-o", "a.sketch").stderr
    assert "columns.c29.kind and 10 more are still blank" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = " ward"', "about.name must not begin or end with a blank\nHint: it names the dataset in the ledger"),
        ("name = 5", "about.name must be one line of up to 100 characters"),
        (f'purpose = "{"a" * 1001}"', "about.purpose must be one line of up to 1000 characters"),
        ('contact = "a\\nb"', "about.contact must be one line of up to 200 characters"),
        ('author = "me"', "about.author is not a known key"),
    ],
)
def test_words_about_a_release_are_single_bounded_lines(text: str, message: str, folder: Path) -> None:
    (folder / "s.toml").write_text(SCHEMA.replace('name = "ward"', text))
    assert f"SchemaError: s.toml: {message}" in called(folder, *RELEASE, "--epsilon", "1", "-o", "a.sketch").stderr


def test_init_proposes_codes_by_name(folder: Path) -> None:
    names = {"age": False, "zip": True, "zipCode": True, "patient_id": True, "icd-code": True, "paid": False}
    pq.write_table(pa.table({name: [1, 2] for name in names} | {"ID": [1, 2]}), folder / "codes.parquet")
    template = called(folder, "init", "codes.parquet").stdout
    for name, code in (names | {"ID": True}).items():
        assert f'[columns.{name}]\nkind = "{"code" if code else "integer"}"' in template


def test_codes_that_would_be_rounded_are_refused(folder: Path) -> None:
    (folder / "s.toml").write_text("[columns.x]\nkind = 'code'\nlower = 0\nupper = 99999\n")
    told = called(folder, *RELEASE, "--epsilon", "1", "-o", "a.sketch").stderr
    assert "columns.x has 100000 codes, more than 65535: rounded codes mean nothing" in told
