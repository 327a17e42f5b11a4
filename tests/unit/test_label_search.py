"""Labels found in a release of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import BudgetError, LedgerError, SchemaError, SourceError
from dpsketch.schema.parsing import LONGEST_NOTE
from dpsketch.schema.schema import LABELS_FOUND
from dpsketch.schema.template import schema_text

FACTS: dict[str, Any] = {
    "about": {"name": "flights"},
    "privacy": {"rows": 2000},
    "columns": {"delay": {"kind": "integer", "lower": 0, "upper": 9}},
}
SCHEMA = dps.Schema.from_dict(FACTS)
TABLE = pa.table({"origin": ["JFK"] * 500 + [" LAX"] * 900 + ["only me", None] * 300, "delay": [3] * 2000})
RARE = pa.table({"origin": ["JFK"] * 500 + ["LAX"] * 900 + [f"me {row}" for row in range(600)], "delay": [3] * 2000})
BUDGET = dps.Budget(1.0, 1e-6)


def found(schema: dps.Schema = SCHEMA, table: pa.Table = RARE, **options: Any) -> dps.FoundLabels:
    return dps.find_labels(table, schema, "origin", BUDGET, dps.Ledger("sqlite://"), **options)


def refused(schema: dps.Schema, column: str = "origin") -> str:
    """The message of a refusal, before anything is read or spent."""
    ledger = dps.Ledger("sqlite://")
    with pytest.raises(SchemaError) as error:
        dps.find_labels("nowhere.parquet", schema, column, BUDGET, ledger, "a")
    assert ledger.accounts() == ()
    return str(error.value)


def test_frequent_labels_are_found_verbatim_and_rare_ones_are_not() -> None:
    result = found()
    assert result.labels == ("JFK", "LAX")  # in alphabetical order; LAX is the more frequent one
    assert found(table=TABLE).labels == ("JFK", "LAX", "only me")
    assert "LAX" not in repr(result)
    assert "500" not in result.statement


def test_the_schema_serves_the_next_release(tmp_path: Path) -> None:
    result = found()
    (tmp_path / "new.toml").write_text(schema_text(result.schema, "Found."))
    schema = dps.Schema.load(tmp_path / "new.toml")
    assert schema == result.schema
    assert schema.column("origin").to_dict() == {"kind": "category", "values": ["JFK", "LAX"], "ordered": False}
    assert (schema.accounted, schema.about, schema.note) == (SCHEMA.accounted, SCHEMA.about, LABELS_FOUND)
    ledger = dps.Ledger("sqlite://")
    ledger.grant("flights", dps.Budget(2.0, 1e-6))
    dps.find_labels(RARE, SCHEMA, "origin", BUDGET, ledger)
    recipe = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    sketch = dps.release(dps.accumulate(RARE, schema, recipe), dps.Budget(1.0), ledger)
    assert LABELS_FOUND in sketch.statement["note"]
    standing = ledger.standing("flights")
    assert standing is not None
    assert (standing.total.epsilon, float(standing.total.delta)) == (2, 1e-6)


def test_declared_labels_stay() -> None:
    column = {"origin": {"kind": "category", "values": ["ZZZ", "JFK", 7]}}
    schema = found(dps.Schema.from_dict(FACTS | {"columns": column | FACTS["columns"]})).schema
    assert [each.name for each in schema.columns] == ["origin", "delay"]
    assert schema.column("origin").to_dict()["values"] == [7, "JFK", "LAX", "ZZZ"]


def test_without_any_label_the_column_stays_undeclared() -> None:
    result = found(table=RARE.slice(1400))
    assert (result.labels, [each.name for each in result.schema.columns]) == ((), ["delay"])
    assert result.labels == found(table=RARE.slice(0, 0)).labels


def test_the_spend_is_recorded_with_epsilon_and_delta() -> None:
    ledger = dps.Ledger("sqlite://")
    result = dps.find_labels(TABLE, SCHEMA, "origin", BUDGET, ledger, "a")
    (account,) = ledger.accounts()
    (spend,) = account.spends
    assert (account.dataset, spend.release, spend.committed) == ("a", result.release, True)
    with pytest.raises(BudgetError, match="needs epsilon 1 and delta 1e-06; dataset 'a' has epsilon 0 left of 1"):
        dps.find_labels("nowhere.parquet", SCHEMA, "origin", BUDGET, ledger, "a")  # before it is read


def test_noise_is_drawn_after_the_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no randomness")

    monkeypatch.setattr("dpsketch.sketch.release.noisy_labels", fail)
    ledger = dps.Ledger("sqlite://")
    with pytest.raises(OSError, match="no randomness") as error:
        dps.find_labels(TABLE, SCHEMA, "origin", BUDGET, ledger)
    note = "The spend of epsilon 1 and delta 1e-06 by dataset 'flights' stands, but nothing was released."
    assert error.value.__notes__ == [note]
    standing = ledger.standing("flights")
    assert standing is not None
    assert standing.total.epsilon == 1


def test_a_release_with_other_noise_than_the_schema_asks_for_is_refused() -> None:
    from dpsketch.privacy.label_threshold import label_event
    from dpsketch.schema.relation import Relation
    from dpsketch.sketch.release import release_labels

    event = label_event(BUDGET, 1, Relation.REPLACE_ONE)
    with pytest.raises(RuntimeError, match="a bug"):
        release_labels({}, SCHEMA, event, dps.Ledger("sqlite://"), "a")


def test_a_missing_column_costs_nothing() -> None:
    ledger = dps.Ledger("sqlite://")
    with pytest.raises(SourceError, match="gate"):
        dps.find_labels(TABLE, SCHEMA, "gate", BUDGET, ledger)
    assert ledger.accounts() == ()


def test_a_ledger_and_a_name_are_needed() -> None:
    nameless = dps.Schema.from_dict({key: FACTS[key] for key in ("privacy", "columns")})
    for schema, ledger in ((SCHEMA, None), (nameless, dps.Ledger("sqlite://"))):
        with pytest.raises(BudgetError, match="needs a ledger and the dataset's name\nHint: pass ledger=Ledger"):
            dps.find_labels(TABLE, schema, "origin", BUDGET, ledger)


def test_another_relation_is_refused_by_the_ledger() -> None:
    ledger = dps.Ledger("sqlite://")
    ledger.grant("flights", dps.Budget(9.0, 1e-5))
    dps.find_labels(TABLE, SCHEMA, "origin", BUDGET, ledger)
    replaced = dps.Schema.from_dict(FACTS | {"privacy": {"rows": 2000, "relation": "replace-one"}})
    with pytest.raises(LedgerError, match="relation"):
        dps.find_labels(TABLE, replaced, "origin", BUDGET, ledger)


def test_columns_without_labels_are_refused() -> None:
    assert refused(SCHEMA, "delay") == (
        "column 'delay' is declared as integer: it has no labels to find\n"
        "Hint: remove [columns.delay] from the schema, or declare it as a category"
    )
    units = dps.Schema.from_dict(FACTS | {"privacy": {"unit": "id", "max_rows_per_unit": 2}})
    assert refused(units, "id") == (
        "column 'id' is the privacy unit: ids of people are never released\nHint: name another"
    )
    grouped = {"origin": {"from": "delay", "edges": [5]}} | FACTS["columns"]
    assert "is computed from others: it has no labels to find" in refused(
        dps.Schema.from_dict(FACTS | {"columns": grouped})
    )
    ordered = {"origin": {"kind": "category", "values": ["b", "a"], "ordered": True}}
    assert refused(dps.Schema.from_dict(FACTS | {"columns": ordered})) == (
        "column 'origin' is declared in an order, in which found labels have no place\n"
        "Hint: remove ordered = true, or type the labels into the schema"
    )


def test_what_the_result_could_not_say_is_refused_before_the_spend() -> None:
    noted = dps.Schema.from_dict(FACTS | {"privacy": {"rows": 2000, "note": "x" * LONGEST_NOTE}})
    assert refused(noted) == (
        "the schema's note has no room for the origin of bounds or labels\nHint: shorten privacy.note"
    )
    assert "cannot be seen" in refused(SCHEMA, "a\u202eb")


@pytest.mark.parametrize(
    ("privacy", "who"),
    [
        (
            {},
            "for one row, added or removed. Each label in the table got a count with discrete Laplace noise of scale "
            "1,",
        ),
        (
            {"unit": "id", "max_rows_per_unit": 3, "relation": "replace-one"},
            "for one value of 'id', with at most 3 labels, replaced. Each label in the table got a count with discrete "
            "Laplace noise of scale 6,",
        ),
    ],
    ids=["rows", "units"],
)
def test_the_statement(privacy: dict[str, Any], who: str) -> None:
    schema = dps.Schema.from_dict(FACTS | {"privacy": {"rows": 2000} | privacy})
    result = found(schema, RARE.append_column("id", pa.array(range(2000))))
    assert result.statement == (
        f"Labels of 'origin' were found with epsilon 1 and delta 1e-06 {who} and is listed if that exceeds "
        f"{result.release.threshold}. Listed labels are published verbatim. That any label of one unit alone is listed "
        "has a probability of at most 1e-06. The budget is counted for dataset 'flights'."
    )
    assert result.labels == ("JFK", "LAX")
