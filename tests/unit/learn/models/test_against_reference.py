"""Coefficients of labels against a reference label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.learn.models.against_reference import against_references, references
from dpsketch.learn.models.design import Design

ROWS = 20_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "x": {"kind": "number", "lower": -5, "upper": 5},
            "y": {"kind": "number", "lower": -9, "upper": 9},
            "member": {"kind": "boolean"},
            "ward": {"kind": "category", "values": ["a", "b", "c"]},
        },
    }
)
DESIGN = Design(SCHEMA, ["x", "ward"])  # x, ward=a, ward=b, ward=c, ward=other
MEANS = np.array([0.1, 0.2, 0.5, 0.3, 0.0])
EFFECTS = {"a": 2.0, "b": 0.0, "c": -1.0}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> dps.View:
    rng = np.random.default_rng(4)
    ward = rng.choice(list("abc"), ROWS, p=[0.2, 0.5, 0.3])
    x = rng.normal(size=ROWS).clip(-5, 5)
    score = x + np.array([EFFECTS[each] for each in ward])
    rows = {"x": x, "ward": ward, "y": (score + rng.normal(size=ROWS)).clip(-9, 9)}
    rows["member"] = rng.random(ROWS) < 1 / (1 + np.exp(-score))
    budget = dps.Budget(5.0)
    raw = dps.accumulate(pa.table(rows), SCHEMA, dps.Recipe.general(SCHEMA, rows=ROWS, budget=budget))
    ledger = dps.Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db")
    return dps.View(dps.release(raw, budget, ledger=ledger, dataset="wards"))


def test_errors_use_the_covariance_of_both_coefficients() -> None:
    rng = np.random.default_rng(1)
    factor = rng.normal(size=(6, 6))
    covariance, values = factor @ factor.T, rng.normal(size=6)
    found = against_references(DESIGN, MEANS, values[None], covariance[None], {}, False)
    assert found.reference == {"ward": "b"}
    answer = found.coefficients
    assert answer.labels == ("intercept", "x", "ward=a", "ward=c", "ward=other")
    expected = [values[0] + values[3], values[1], values[2] - values[3], values[4] - values[3], values[5] - values[3]]
    assert answer.value == pytest.approx(expected)
    difference = np.array([0, 0, 1, -1, 0, 0])
    assert answer.stderr[2] == pytest.approx(np.sqrt(difference @ covariance @ difference))
    level = np.array([1, 0, 0, 1, 0, 0])
    assert answer.stderr[0] == pytest.approx(np.sqrt(level @ covariance @ level))
    assert answer.stderr[1] == pytest.approx(np.sqrt(covariance[1, 1]))


def test_what_has_no_coefficient_is_not_known() -> None:
    covariance = np.diag([1.0, 1.0, 1.0, 1.0, 1.0, np.nan])
    answer = against_references(DESIGN, MEANS, np.zeros((1, 6)), covariance[None], {}, False).coefficients
    assert answer.known.tolist() == [True, True, True, True, False]
    assert "no record has the label or its reference" in answer.reason
    nothing = against_references(
        DESIGN, MEANS, np.zeros((1, 6)), covariance[None], {"ward": "other"}, False
    ).coefficients
    assert nothing.known.tolist() == [False, True, False, False, False]


def test_a_reference_is_named_or_the_most_common_label() -> None:
    assert references(DESIGN, MEANS) == {"ward": (slice(1, 5), 2)}
    assert references(DESIGN, MEANS, {"ward": "c"})["ward"][1] == 3
    assert references(Design(SCHEMA, ["x", "member"]), MEANS[:2]) == {}
    with pytest.raises(dps.QueryError, match=r"column 'ward' has no label 'd'") as wrong:
        references(DESIGN, MEANS, {"ward": "d"})
    assert "name one of: a, b, c, other" in str(wrong.value.hint)
    with pytest.raises(dps.QueryError, match=r"'x' is no column of labels in this model") as wrong:
        references(DESIGN, MEANS, {"x": 1})
    assert "name one of: ward" in str(wrong.value.hint)
    with pytest.raises(dps.QueryError, match="no column of labels") as wrong:
        references(Design(SCHEMA, ["x"]), MEANS[:1], {"ward": "a"})
    assert "leave out the reference" in str(wrong.value.hint)


@pytest.mark.parametrize(
    "model", [dps.LinearRegression("y", ["x", "ward"]), dps.LogisticRegression("member", ["x", "ward"])]
)
def test_coefficients_are_the_differences_of_labels(view: dps.View, model: dps.LinearRegression) -> None:
    found = model.fit(view).against({"ward": "c"})
    assert found.reference == {"ward": "c"}
    answer = found.coefficients
    at = [(answer.labels or ()).index(name) for name in ("ward=a", "ward=b")]
    low, high = answer.interval(0.99)
    assert (low[at] - 0.3 < [3, 1]).all()
    assert (high[at] + 0.3 > [3, 1]).all()
    own = dict(zip(model.feature_names_in_, np.ravel(model.coef_stderr_), strict=True))
    apart = np.hypot([own["ward=a"], own["ward=b"]], own["ward=c"])
    assert not np.allclose(answer.stderr[at], apart, rtol=0.01), "the coefficients of labels err together"


def test_errors_are_not_known_without_the_covariance(view: dps.View, tmp_path: Path) -> None:
    model = dps.LinearRegression("y", ["x", "ward"]).fit(view)
    dps.save_model(model, tmp_path / "y.model")
    read = dps.load_model(tmp_path / "y.model").against()
    assert read.coefficients.raw == pytest.approx(model.against().coefficients.raw)
    assert not read.coefficients.known.any()
    assert "read from a file" in read.coefficients.reason
    numbers = dps.LinearRegression("y", ["x"]).fit(view)
    dps.save_model(numbers, tmp_path / "x.model")
    again = dps.load_model(tmp_path / "x.model").against()
    assert again.reference == {}
    assert again.coefficients.stderr == pytest.approx(numbers.against().coefficients.stderr)
