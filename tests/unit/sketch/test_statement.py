"""What a privacy statement says: its facts by their JSON Schema, its text, its page and its registry record."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

import dpsketch as dps
from command_line import called
from dpsketch.errors import BudgetError, FileError, QueryError
from dpsketch.privacy import advisories
from dpsketch.privacy.advisories import Advisory
from dpsketch.sketch import container
from dpsketch.sketch.circumstances import audited_digest, checked_audit
from dpsketch.sketch.predicted_errors import checked_predictions, planned_digest
from dpsketch.sketch.privacy_statement import statement_text
from dpsketch.sketch.registry_record import FILL_IN, registry_record
from dpsketch.sketch.statement_page import statement_page

ROOT = Path(__file__).parents[3]
FACTS = Draft202012Validator(json.loads((ROOT / "docs" / "formats" / "statement.schema.json").read_text()))
REGISTRY = Draft7Validator(
    yaml.safe_load((ROOT / "tests" / "registry" / "deployments-schema.yaml").read_text()),
    format_checker=Draft7Validator.FORMAT_CHECKER,
)
ABOUT = {
    "name": "ward",
    "curator": "St. Anne's <Hospital>",
    "contact": "data@example.org",
    "purpose": "Planning of beds.",
    "licence": "CC BY 4.0",
    "justification": "Our board set epsilon 1 for a year.",
}
ONE = dps.Budget(1.0)
TABLE = pa.table({"sex": ["Female", "Male"] * 20, "age": list(range(40))})
COLUMNS = {
    "age": {"kind": "integer", "lower": 0, "upper": 100},
    "sex": {"kind": "category", "values": ["Female", "Male"]},
}


def schema(about: dict[str, str] | None = None, **privacy: Any) -> dps.Schema:
    facts: dict[str, Any] = {"privacy": {"rows": 40} | privacy, "columns": COLUMNS}
    return dps.Schema.from_dict(facts if about is None else facts | {"about": about})


def made(
    budget: dps.Budget = ONE,
    facts: dps.Schema | None = None,
    ledger: dps.Ledger | None = None,
    **options: Any,
) -> dps.ReleasedSketch:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.25), dps.Part(dps.Histogram(), 0.75)], **options)
    raw = dps.accumulate(TABLE, facts or schema(ABOUT), recipe)
    if not budget.private:
        return dps.release(raw, budget)
    return dps.release(raw, budget, ledger or dps.Ledger("sqlite://"), "ward")


RELEASES = {
    "pure": lambda: made(),
    "delta": lambda: made(dps.Budget(1.0, 1e-6)),
    "rho": lambda: made(dps.Budget(rho=0.1)),
    "replaced": lambda: made(facts=schema(relation="replace-one", record="patient", note="A study.")),
    "sampled": lambda: made(sampling=dps.RowSampling(rate=0.5)),
    "merged": lambda: made().merge(made(dps.Budget(0.5))),
    "mixed": lambda: made().merge(made(dps.Budget(rho=0.1))),
    "part": lambda: made(only=dps.Only("sex", "Male", "2026")),
    "study": lambda: made(dps.Budget(float("inf"))),
}


@pytest.mark.parametrize("name", RELEASES)
def test_facts_obey_the_published_schema_and_survive_a_file(name: str, tmp_path: Path) -> None:
    sketch = RELEASES[name]()
    facts = json.loads(json.dumps(sketch.statement))
    FACTS.validate(facts)
    sketch.save(tmp_path / "a.sketch")
    assert dps.ReleasedSketch.load(tmp_path / "a.sketch").statement == sketch.statement
    shown = json.loads(called(tmp_path, "show", "a.sketch", "--json").stdout)
    FACTS.validate(shown)
    assert shown["advisories"] == []
    wrong = facts | {"relation": "bounded"}
    assert not FACTS.is_valid(wrong)


@pytest.mark.parametrize("name", sorted(set(RELEASES) - {"study"}))
def test_records_obey_the_schema_of_the_registry(name: str) -> None:
    sketch = RELEASES[name]()
    text = registry_record(sketch.statement)
    record = yaml.safe_load(text)
    REGISTRY.validate(record)
    assert record["tier"] == 3
    third = {  # all that the registry asks for at its third tier
        "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
        "privacy_loss": {"privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details"},
        "deployment_model": {"model_name", "actors", "release_type", "data_source_type", "access_type"},
        "accounting": {"post_processing", "composition"},
        "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    }
    for section, keys in third.items():
        assert keys <= set(record["deployment"][section])
    assert record["deployment"]["administrative"]["registry_authors"] == [f"{FILL_IN} (who files this record)"]


def test_a_record_holds_what_the_file_says() -> None:
    deployment = yaml.safe_load(registry_record(made(dps.Budget(1.0, 1e-6)).statement))["deployment"]
    assert deployment["basic"]["name"] == "ward"
    assert deployment["basic"]["data_curators"] == [ABOUT["curator"]]
    assert deployment["dp_variant"]["variant_name"] == "Approximate DP"
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert deployment["implementation"]["justification"] == ABOUT["justification"]
    assert "discrete Laplace" in deployment["implementation"]["mechanisms"]
    units = yaml.safe_load(registry_record(made(facts=schema()).statement))
    assert FILL_IN in units["deployment"]["basic"]["name"]
    assert units["url_slug"].startswith("to-fill-in")


def test_a_study_has_no_record() -> None:
    with pytest.raises(QueryError, match="there is nothing to register"):
        registry_record(RELEASES["study"]().statement)


def test_the_text_says_who_how_much_and_where_from() -> None:
    text = statement_text(made(dps.Budget(rho=0.1)).statement)
    for label, value in ABOUT.items():
        assert f"{label.capitalize().ljust(19)}{value}" in text
    assert "In terms of epsilon and delta: epsilon 1.99" in text
    assert "For 2, 3 and 4 rows together: epsilon 4.3" in text
    assert "Someone who is 50% certain beforehand that a given row is in the table, and then decides" in text
    assert "Bounds             Declared in the schema, whose author asserts" in text
    assert "One curator, who holds the table and its exact sums" in text
    assert "Arithmetic         sums, sensitivities and noise are exact integers" in text
    pure = statement_text(made().statement)
    assert "is at most 73.2% certain afterwards" in pure
    assert "epsilon 2, 3 and 4." in pure
    merged = statement_text(RELEASES["merged"]().statement)
    assert "Noise was added before the releases were merged" in merged
    assert "2, 3 and 4 rows of one of the merged tables together" in merged
    replaced = statement_text(RELEASES["replaced"]().statement)
    assert "that a given patient is in the table in the place of another is at most" in replaced


def test_nothing_is_called_anonymous() -> None:
    for make in RELEASES.values():
        sketch = make()
        shown = statement_text(sketch.statement) + statement_page(sketch.statement)
        shown += registry_record(sketch.statement) if sketch.private else ""
        assert not re.search("anonym", shown, re.IGNORECASE)


def test_the_ledger_of_a_release_is_the_one_of_its_moment(tmp_path: Path) -> None:
    ledger = dps.Ledger("sqlite://")
    ledger.grant("ward", dps.Budget(2.0))
    first, second = made(dps.Budget(0.5), ledger=ledger), made(dps.Budget(0.25), ledger=ledger)
    ledger.grant("ward", dps.Budget(3.0))
    (one,), (two,) = first.statement["ledger"], second.statement["ledger"]
    assert one == {
        "dataset": "ward",
        "number": 1,
        "cap": {"epsilon": "2", "delta": "0"},
        "before": {"epsilon": "0", "delta": "0"},
        "after": {"epsilon": "0.5", "delta": "0"},
    }
    assert (two["number"], two["before"]["epsilon"], two["after"]["epsilon"]) == (2, "0.5", "0.75")
    assert (
        "Ledger             Release 2 of dataset 'ward', which had spent epsilon 0.5 before it and has spent epsilon "
        "0.75 with it, of epsilon 2."
    ) in statement_text(second.statement)
    second.merge(first).save(tmp_path / "both.sketch")
    assert [each["number"] for each in dps.ReleasedSketch.load(tmp_path / "both.sketch").statement["ledger"]] == [2, 1]


def test_the_name_of_the_data_is_the_dataset_by_default() -> None:
    ledger, recipe = dps.Ledger("sqlite://"), dps.Recipe([dps.Part(dps.Count(), 1.0)])
    dps.release(dps.accumulate(TABLE, schema(ABOUT), recipe), ONE, ledger)
    assert [account.dataset for account in ledger.accounts()] == ["ward"]
    with pytest.raises(BudgetError, match="needs a ledger and the dataset's name"):
        dps.release(dps.accumulate(TABLE, schema(), recipe), ONE, ledger)


def test_a_capped_rho_is_stated_in_rho() -> None:
    (account,) = made(dps.Budget(rho=0.1)).statement["ledger"]
    assert account["after"] == account["cap"] == {"rho": "0.1"}


def test_tightened_bounds_are_said_to_be() -> None:
    from dpsketch.schema.schema import TIGHTENED

    assert "Tightened from an earlier private release" in statement_text(made(facts=schema(note=TIGHTENED)).statement)


def test_merged_sketches_keep_what_both_say() -> None:
    other = schema(ABOUT | {"curator": "South Hospital"})
    both = made().merge(made(facts=other))
    assert both.schema.about.curator is None
    assert both.schema.about.name == "ward"


@pytest.mark.parametrize(
    "change",
    [
        {"account": {"number": 0}},
        {"account": {"number": True}},
        {"account": {"dataset": "a\nb"}},
        {"account": {"dataset": ""}},
        {"account": {"cap": {"epsilon": "many"}}},
        {"account": {"cap": {}}},
        {"account": {"after": {"gamma": "1"}}},
        {"audit": {"draws": 0}},
        {"audit": {"lower_bound": -1.0}},
        {"audit": {"date": "today"}},
        {"library": None},
    ],
)
def test_circumstances_that_no_release_writes_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    made().save(tmp_path / "a.sketch")
    opened = container.checked(tmp_path / "a.sketch", "sketch")
    header = json.loads(json.dumps(opened.header))
    (facts,) = header["release"]["circumstances"]
    facts["audit"] = {"date": "2026-11-19", "draws": 9, "lower_bound": 0.1, "confidence": 0.9, "library": "1"}
    for key, value in change.items():
        if value is None:
            del facts[key]
        else:
            facts[key] |= value
    arrays = {name: array.load() for name, array in opened.stored_arrays().items()}
    with (tmp_path / "b.sketch").open("w+b") as file:
        container.write(file, header, arrays)
    with pytest.raises(FileError, match="the header is not valid: release"):
        dps.ReleasedSketch.load(tmp_path / "b.sketch")


class Page(HTMLParser):
    """Collects tags and attributes, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [name for name, _ in attrs if name in ("src", "href", "onload", "style")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["pure", "mixed", "study"])
def test_the_page_is_whole_and_needs_nothing_from_elsewhere(name: str, tmp_path: Path) -> None:
    RELEASES[name]().save(tmp_path / "a.sketch")
    text = called(tmp_path, "show", "a.sketch", "--html").stdout
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.links == []
    assert not page.tags & {"script", "img", "link", "iframe"}
    assert "url(" not in text
    assert "St. Anne's <Hospital>" not in text
    if name == "pure":
        assert "St. Anne&#x27;s &lt;Hospital&gt;" in text
        assert "<th>Signature</th>" in text
        assert "0 to 100" in text
    if name == "study":
        assert "NOT PRIVATE" in text
        assert "Signature" not in text


def test_show_prints_one_thing(tmp_path: Path) -> None:
    made().save(tmp_path / "a.sketch")
    done = called(tmp_path, "show", "a.sketch", "--html", "--registry")
    assert done.returncode == 1
    assert "FileError: --json, --html and --registry print different things\nHint: pass one of them" in done.stderr
    assert yaml.safe_load(called(tmp_path, "show", "a.sketch", "--registry").stdout)["status"] == "Draft"


def test_an_audit_goes_with_the_release_that_it_is_about() -> None:
    recipe = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    facts, budget = schema(ABOUT), dps.Budget(1.0)
    result = dps.audit(recipe, facts, budget, 2000)
    digest = audited_digest(recipe, facts, "auto")
    audit = checked_audit(result.to_dict(), "audit.json", digest, budget)
    raw = dps.accumulate(TABLE, facts, recipe)
    sketch = dps.release(raw, budget, dps.Ledger("sqlite://"), "ward", audit=audit)
    (stated,) = sketch.statement["audits"]
    assert stated["draws"] == 2000
    assert stated["lower_bound"] == result.lower_bound
    FACTS.validate(json.loads(json.dumps(sketch.statement)))
    assert "an attack on 2,000 simulated releases of this recipe proved" in statement_text(sketch.statement)
    refusals = {
        "is the audit of another recipe or budget": (result.to_dict(), audited_digest(recipe, facts, "gaussian")),
        "proves a violation of the budget": (result.to_dict() | {"violated": True}, digest),
        "is not an audit's result": ({"draws": 3}, digest),
    }
    for fact, (wrong, about) in refusals.items():
        with pytest.raises(FileError, match=fact):
            checked_audit(wrong, "audit.json", about, budget)
    with pytest.raises(FileError, match="another recipe or budget"):
        checked_audit(result.to_dict(), "audit.json", digest, dps.Budget(2.0))


def test_predictions_go_with_the_release_that_they_are_about(tmp_path: Path) -> None:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.25), dps.Part(dps.Marginals(), 0.75)])
    dated = {"day": {"kind": "datetime", "lower": "2020-01-01", "upper": "2021-01-01"}} | COLUMNS
    facts = dps.Schema.from_dict({"about": ABOUT, "privacy": {"rows": 40}, "columns": dated})
    asked = [
        "select max(day) as last, median(day) as d from sketch",
        "select avg(age) as m from sketch where age > 100",
    ]
    plan = dps.plan(facts, [asked[0].replace("max(day) as last, ", ""), asked[1]], [ONE], recipe=recipe).to_dict()
    digest = planned_digest(recipe, facts, ONE)
    predicted = checked_predictions(json.loads(json.dumps(plan)), "plan.json", digest)
    days = pa.array([None] * 40, pa.timestamp("us"))
    raw = dps.accumulate(TABLE.append_column("day", days), facts, recipe)
    sketch = dps.release(raw, ONE, dps.Ledger("sqlite://"), "ward", predicted=predicted)
    sketch.save(tmp_path / "a.sketch")
    statement = dps.ReleasedSketch.load(tmp_path / "a.sketch").statement
    assert statement == sketch.statement
    FACTS.validate(json.loads(json.dumps(statement)))
    text = statement_text(statement)
    assert re.search(r"± [0-9.]+ days \([0-9.]+ days to [0-9.]+ days\), of about 2020-[-0-9T:.]+: d in select", text)
    assert f"no answer: {asked[1]}" in text
    assert "that obey the schema" in text
    assert "drawn from an earlier release" in statement_text(
        statement | {"predicted": [statement["predicted"][0] | {"drawn": True}]}
    )
    row = plan["predictions"][0]
    wrong: list[Any] = [
        [],
        {"predictions": 3},
        plan | {"simulations": True},
        plan | {"date": "today"},
        plan | {"predictions": [row | {"error": -1.0}]},
        plan | {"predictions": [row | {"error": float("nan")}]},
        plan | {"predictions": [row | {"query": ""}]},
        plan | {"predictions": [row] * 201},
    ]
    for each in wrong:
        with pytest.raises(FileError, match=r"plan\.json is not a plan of answers"):
            checked_predictions(each, "plan.json", digest)
    for other in (planned_digest(recipe, facts, dps.Budget(2.0)), planned_digest(recipe, schema(ABOUT), ONE)):
        with pytest.raises(FileError, match="the plan of another recipe, schema or budget"):
            checked_predictions(plan, "plan.json", other)


def test_a_planted_advisory_is_seen_wherever_the_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = dps.Ledger(tmp_path / "l.db")
    made(ledger=ledger).save(tmp_path / "a.sketch")
    del ledger
    fault = Advisory("DPS-1", "0.1", None, "its noise is too small", ("histogram",), ("discrete Laplace",))
    elsewhere = Advisory("DPS-2", "0.1", None, "not this", ("fourier",))
    monkeypatch.setattr(advisories, "ADVISORIES", (fault, elsewhere))
    with pytest.warns(dps.PrivacyWarning, match=r"a\.sketch may be affected by DPS-1: its noise is too small"):
        dps.open(tmp_path / "a.sketch")
    shown = called(tmp_path, "show", "a.sketch")
    assert "KNOWN FAULT        DPS-1: its noise is too small" in shown.stdout
    assert "Warning: a.sketch may be affected by DPS-1" in shown.stderr
    facts = json.loads(called(tmp_path, "show", "a.sketch", "--json").stdout)
    FACTS.validate(facts)
    assert facts["advisories"] == [{"id": "DPS-1", "text": "its noise is too small"}]
    assert "Warning: a.sketch" in called(tmp_path, "ask", "a.sketch", "select count(*) from sketch").stderr
    account = called(tmp_path, "ledger", "show", "l.db")
    assert "Warning: 1 release of dataset 'ward' may be affected by DPS-1: its noise is too small" in account.stderr
    (spend,) = json.loads(called(tmp_path, "ledger", "show", "l.db", "--json").stdout)[0]["spends"]
    assert spend["advisories"][0] == {"id": "DPS-1", "text": "its noise is too small"}
