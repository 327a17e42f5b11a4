"""Files written by earlier versions stay readable and give the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from shutil import copy
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.privacy.events import Mechanism

FOLDER = Path(__file__).parent
BUDGET = dps.Budget(1.0, 1e-6)
RAW = [500, 17, 11603942]
RELEASED = [417, 16, 10491448]
MEAN = 53.84704764688687
RELEASED_2 = [500, -11, 10365441]
MEAN_2 = 62.97630451222586
RAW_2 = [500, 1114112, 2]
LABELS_IN_ORDER = [
    [201.2467741935484, 221.78870967741935, -33.69516129032259, 126.04677419354837],
    [409.75, 694.45, 145.4, 362.7],
]
ANOMALIES_IN_ORDER = [5.677908225167455, 5.713781867541893, 4.521161159919827, 5.354306065754072]
MODELS = [
    "LinearRegression",
    "LogisticRegression",
    "KMeans",
    "GaussianMixture",
    "PCA",
    "KernelDensity",
    "DensityClassifier",
    "GridDensity",
]


def test_format_1_released() -> None:
    view = dps.open(FOLDER / "format-1.sketch")
    assert view.statement["epsilon"] == "1"
    assert view.released.library == "0.1.0"
    assert [int(part.sums[0]) for part in view.released.parts] == RELEASED
    assert view.mean("age").value == pytest.approx(MEAN)


def test_format_1_raw() -> None:
    raw = dps.RawSketch.load(FOLDER / "format-1.raw")
    assert [int(part.sums[0]) for part in raw.parts] == RAW


def test_format_1_says_laplace_noise_by_shares() -> None:
    released = dps.ReleasedSketch.load(FOLDER / "format-1.sketch")
    (release,) = released.releases
    assert {noise.mechanism for noise in release.noises} == {Mechanism.LAPLACE}
    assert sum(noise.epsilon or 0 for noise in release.noises) == 1


def test_format_2_released() -> None:
    view = dps.open(FOLDER / "format-2.sketch")
    (release,) = view.released.releases
    assert release.budget == BUDGET
    assert view.statement["relation"] == "replace-one"
    assert [int(part.sums[0]) for part in view.released.parts] == RELEASED_2
    assert view.mean("age").value == pytest.approx(MEAN_2)


def test_format_2_raw() -> None:
    raw = dps.RawSketch.load(FOLDER / "format-2.raw")
    assert [int(part.sums[0]) for part in raw.parts] == RAW_2
    dps.release(raw, BUDGET, dps.Ledger("sqlite://"), "golden")


def test_hashed_labels_without_a_field_are_in_order() -> None:
    """Files written before labels counted by equality place labels on a line, and keep their counters."""
    view = dps.open(FOLDER / "labels-in-order.sketch")
    points = {
        "ward": ["a", "c", "other", None],
        "age": [50, 40, 60, None],
        "member": [True, False, None, True],
    }
    for part, sums in enumerate(LABELS_IN_ORDER):
        assert view.kernel_sum(points, part=part).value.tolist() == pytest.approx(sums)
        assert view.released.recipe.parts[part].map.labels == "ordered"  # type: ignore[attr-defined]
        assert "labels" not in view.released.recipe.parts[part].map.to_dict()
    scorer = dps.AnomalyScorer(columns=["ward", "age", "member"]).fit(view)
    assert scorer.score_samples(points).tolist() == pytest.approx(ANOMALIES_IN_ORDER)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    """A model that was saved predicts what it predicted then."""
    model = dps.load_model(FOLDER / f"{name}.model")
    assert type(model).__name__ == name
    assert predicted(model) == pytest.approx(json.loads((FOLDER / "models.json").read_text())[name], rel=1e-9)


def test_a_ledger_of_the_second_version_is_brought_up_to_date(tmp_path: Path) -> None:
    copy(FOLDER / "ledger-0002.db", tmp_path / "ledger.db")
    ledger = dps.Ledger(tmp_path / "ledger.db")
    caps = {account.dataset: (account.cap.epsilon, account.cap.delta, account.cap.rho) for account in ledger.accounts()}
    assert caps == {
        "plain": (2, Fraction(1, 10**6), None),
        "planned": (Fraction(1, 2), 0, None),
        "concentrated": (None, 0, 1),
    }
    totals = {account.dataset: account.total for account in ledger.accounts()}
    assert totals["plain"].epsilon == Fraction(3, 4)
    assert totals["planned"].epsilon == Fraction(1, 2)
    assert totals["concentrated"].rho == Fraction(1, 10)
    assert [spend.committed for account in ledger.accounts() for spend in account.spends] == [
        True,
        True,
        True,
        False,
    ]  # the last of a killed process


def models() -> Iterator[Any]:
    from pinned.cases import released

    general = released("mixed", "general", dps.Budget(1.0))
    yield dps.LinearRegression("height", ["age", "member"]).fit(general)
    yield dps.LogisticRegression("member", ["age", "height"]).fit(general)
    yield dps.KMeans(n_clusters=3).fit(released("two", "clusters", dps.Budget(1.0)))
    yield dps.GaussianMixture(n_components=2).fit(released("two", "clusters", dps.Budget(1.0)))
    yield dps.PCA(n_components=2).fit(released("ten", "pca", dps.Budget(1.0)))
    yield dps.KernelDensity().fit(released("two", "density", dps.Budget(1.0)))
    yield dps.DensityClassifier("sex").fit(released("mixed", "classify", dps.Budget(4.0)))
    yield dps.GridDensity().fit(released("two", "synthetic", dps.Budget(1.0)))


def predicted(model: Any) -> list[float]:
    """What `dpsketch score` would write of two rows."""
    from pinned.cases import table

    names = model.input_columns
    source = next(name for name in ("mixed", "two", "ten") if set(names) <= set(table(name, 2).column_names))
    columns = model.scores(table(source, 2).select(names)).values()
    return [float(cell) for column in columns for cell in pa.array(column).to_pylist() if isinstance(cell, int | float)]


if __name__ == "__main__":  # writes the files of this version; run once a format, with tests/ on the path
    from conftest import MIXED, mixed_table

    facts = MIXED | {"privacy": MIXED["privacy"] | {"relation": "replace-one"}}  # type: ignore[operator]
    schema = dps.Schema.from_dict(facts)
    pairs = dps.Pairs(columns=["age", "sex", "member"], bins=4, pool=True)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Marginals(bins=4), 0.4), dps.Part(pairs, 0.5)])
    made = dps.accumulate(mixed_table(500), schema, recipe)
    made.save(FOLDER / "format-2.raw")
    print(f"RAW_2 = {[int(part.sums[0]) for part in made.parts]}")
    known = {}
    for model in models():
        dps.save_model(model, FOLDER / f"{type(model).__name__}.model")
        known[type(model).__name__] = predicted(model)
    (FOLDER / "models.json").write_text(json.dumps(known, indent=1))
    book = dps.Ledger(FOLDER / "ledger-0002.db")
    row_schema = dps.Schema.from_dict(MIXED)
    book.grant("plain", dps.Budget(2.0, 1e-6))
    book.grant("concentrated", dps.Budget(rho=1.0))
    counts = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    for dataset, budget in (
        ("plain", dps.Budget(0.25)),
        ("plain", dps.Budget(0.5)),
        ("concentrated", dps.Budget(rho=0.1)),
    ):
        dps.release(dps.accumulate(mixed_table(10), row_schema, counts), budget, book, dataset)
    book.declare("planned", row_schema.accounted, "yearly", [dps.Budget(0.25)] * 2, 0.0)
    from dpsketch.sketch.release import planned

    event = planned(row_schema, counts, dps.Budget(0.25))
    book.reserve("planned", row_schema.accounted, event, frozenset(), None, "yearly")  # type: ignore[arg-type]


def test_a_file_with_its_place_in_the_ledger_and_an_audit() -> None:
    sketch = dps.ReleasedSketch.load(FOLDER / "statement-2.sketch")
    facts = sketch.statement
    assert facts["version"] == 2
    assert facts["about"] == {"name": "ward", "curator": "St. Anne's Hospital", "justification": "Our board allows it."}
    (account,) = facts["ledger"]
    assert (account["dataset"], account["number"]) == ("ward", 2)
    assert (account["before"]["epsilon"], account["after"]["epsilon"], account["cap"]["epsilon"]) == ("0.5", "1.5", "2")
    (audit,) = facts["audits"]
    assert (audit["draws"], audit["confidence"]) == (2000, 0.9999)
    assert facts["attack"]["half_certain"] == 0.731059
    assert [group["epsilon"] for group in facts["groups"]] == ["1", "2", "3", "4"]
