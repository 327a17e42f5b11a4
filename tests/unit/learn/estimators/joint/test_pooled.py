"""Labels that pair tables count as one group are named where a question tells them apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.learn.estimators.joint.from_release import product_parts

LABELS = ("large", "medium", "rare", "scarce", "seldom")
ROWS = 20_000


@pytest.fixture(scope="module")
def view() -> dps.View:
    random = np.random.default_rng(SEED)
    kind = random.choice(LABELS, ROWS, p=[0.6, 0.3985, 0.0005, 0.0005, 0.0005])
    delay = random.random(ROWS) * np.where(kind == "large", 1.0, 0.5)
    facts = {
        "privacy": {"rows": ROWS},
        "columns": {
            "kind": {"kind": "category", "values": list(LABELS)},
            "delay": {"kind": "number", "lower": 0, "upper": 1},
        },
    }
    schema, budget = dps.Schema.from_dict(facts), dps.Budget(1.0)
    recipe = dps.Recipe.general(schema, budget=budget)
    raw = dps.accumulate(pa.table({"kind": kind, "delay": delay}), schema, recipe)
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "kinds"))


def pooled_with(view: dps.View, label: str) -> set[str]:
    """Labels in the same group as this one, as the file has them."""
    parts = product_parts(view.released)
    assert parts is not None
    groups = parts.pair_map.groups_of_cells[parts.pair_map.columns.index("kind")]
    column = view.schema.column("kind")
    names = [*column.labels, "missing"]
    return {name for name, group in zip(names, groups, strict=True) if group == groups[names.index(label)]}


def test_a_condition_on_a_pooled_label_names_the_others(view: dps.View) -> None:
    together = pooled_with(view, "rare")
    assert len(together) > 1, "rare labels are pooled"
    *_, note = view.count("kind = 'rare' and delay < 0.3").explain().splitlines()
    start, _, labels = note.partition(": ")
    assert start == "counted as one group of kind in the pair tables"
    assert set(labels.split(", ")) == together


def test_groups_name_what_was_pooled_in_each(view: dps.View) -> None:
    table = view.sql("select avg(delay) as mean from sketch group by kind")
    (found,) = {answer.explain().splitlines()[-1] for (answer,) in table.rows}
    assert pooled_with(view, "rare") <= set(found.partition(": ")[2].replace("; ", ", ").split(", "))


@pytest.mark.parametrize("condition", ["kind = 'large' and delay < 0.3", "kind = 'rare'", "delay < 0.3"])
def test_nothing_is_said_where_no_label_was_pooled(view: dps.View, condition: str) -> None:
    assert pooled_with(view, "large") == {"large"}
    assert "counted as one" not in view.count(condition).explain()
