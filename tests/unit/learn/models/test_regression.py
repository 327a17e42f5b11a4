from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import dpsketch as dps
from dpsketch.errors import QueryError


@pytest.fixture(scope="module")
def linear(view: dps.View) -> dps.LinearRegression:
    return dps.LinearRegression("height").fit(view)


@pytest.fixture(scope="module")
def logistic(view: dps.View) -> dps.LogisticRegression:
    return dps.LogisticRegression("member").fit(view)


def test_a_linear_model_predicts_held_out_rows(linear: dps.LinearRegression, held_out: pa.Table) -> None:
    assert linear.score(held_out, held_out["height"]) > 0.9
    slope = linear.coef_[list(linear.feature_names_in_).index("weight")]
    assert slope == pytest.approx(1.0, abs=0.35)
    assert linear.coef_stderr_.shape == linear.coef_.shape
    assert (linear.coef_stderr_ >= 0).all()
    assert np.isfinite(linear.intercept_stderr_)


def test_one_feature_a_label(linear: dps.LinearRegression) -> None:
    labels = ["city=north", "city=south", "city=west", "city=other"]
    assert list(linear.feature_names_in_) == ["age", "income", *labels, "since", "weight", "member", "grade"]


def test_a_logistic_model_predicts_held_out_rows(logistic: dps.LogisticRegression, held_out: pa.Table) -> None:
    known = held_out.filter(held_out["member"].is_valid())
    assert list(logistic.classes_) == [False, True]
    assert logistic.coef_.shape == (1, len(logistic.feature_names_in_))
    scores = logistic.decision_function(known)
    assert roc_auc_score(known["member"].to_numpy(False), scores) > 0.9
    shares = logistic.predict_proba(known)
    assert shares.sum(1) == pytest.approx(1)
    assert ((shares[:, 1] > 0.5) == (scores > 0)).all()
    assert (logistic.predict(known) == (scores > 0)).all()
    assert logistic.coef_[0, 0] == pytest.approx(1 / 6, rel=0.35), "per year of age"


def test_classes_are_the_schema_s_values(view: dps.View, held_out: pa.Table) -> None:
    city = dps.LogisticRegression("city", columns=["age"]).fit(view)
    assert list(city.classes_) == ["north", "south", "west"], "the share of 'other' is not significant"
    assert city.coef_.shape == (3, 1)
    assert city.predict({"age": [88]})[0] == "north"
    grade = dps.LogisticRegression("grade", columns=["weight"]).fit(view)
    assert grade.classes_.dtype.kind == "i"
    assert np.mean(grade.predict(held_out) == held_out["grade"].to_numpy()) > 0.9


def test_tables_of_any_kind(linear: dps.LinearRegression, held_out: pa.Table) -> None:
    few = held_out.slice(0, 50)
    expected = linear.predict(few)
    assert linear.predict(few.to_pandas()) == pytest.approx(expected)
    assert linear.predict({name: few[name].to_pylist() for name in few.column_names}) == pytest.approx(expected)
    assert np.isfinite(expected).all(), "missing values count as their mean"


def test_a_larger_penalty_means_smaller_coefficients(view: dps.View) -> None:
    weak, strong = (
        dps.LinearRegression("height", ["weight"], penalty=penalty).fit(view).coef_[0] for penalty in (0, 1)
    )
    assert strong == pytest.approx(weak / 2, rel=0.01)


@pytest.mark.parametrize(
    ("model", "fact"),
    [
        (dps.LogisticRegression("heigth"), "heigth"),
        (dps.LinearRegression("nothing"), "nothing"),
        (dps.LogisticRegression("height"), "is a number, not a class"),
        (dps.LogisticRegression("age"), "is a integer, not a class"),
        (dps.LinearRegression("city"), "is a category"),
        (dps.LinearRegression("since"), "dates"),
        (dps.LinearRegression("height", ["weight", "length"]), "no column 'length'"),
        (dps.LinearRegression("height", ["weight", "height"]), "is the target"),
        (dps.LinearRegression("height", []), "no column to learn from"),
        (dps.LinearRegression("height", "weight"), "list of names"),
        (dps.LinearRegression("height", penalty=-1), "penalty"),
    ],
)
def test_bad_models_are_refused(view: dps.View, model: dps.LinearRegression, fact: str) -> None:
    with pytest.raises(QueryError, match=fact):
        model.fit(view)


def test_a_target_of_one_class_is_refused() -> None:
    schema = dps.Schema.from_dict(
        {
            "privacy": {"rows": 5000},
            "columns": {"x": {"kind": "number", "lower": 0, "upper": 1}, "y": {"kind": "boolean"}},
        }
    )
    table = pa.table({"x": np.linspace(0, 1, 5000), "y": np.zeros(5000, bool)})
    recipe = dps.Recipe([dps.Part(dps.Marginals(bins=16), 0.5), dps.Part(dps.Pairs(pool=True, bins=16), 0.5)])
    released = dps.release(dps.accumulate(table, schema, recipe), dps.Budget(1.0), dps.Ledger("sqlite://"), "a")
    with pytest.raises(QueryError, match="fewer than two classes"):
        dps.LogisticRegression("y").fit(dps.View(released))


@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_a_target_without_values_is_refused(epsilon: float) -> None:
    names = ("x", "y", "z")
    facts = {"privacy": {"rows": 5000}, "columns": {name: {"kind": "number", "lower": 0, "upper": 1} for name in names}}
    place = np.linspace(0, 1, 5000)
    table = pa.table({"x": place, "y": np.full(5000, np.nan), "z": place[::-1]})
    recipe = dps.Recipe([dps.Part(dps.Marginals(bins=8), 0.5), dps.Part(dps.Pairs(pool=True, bins=8), 0.5)])
    raw = dps.accumulate(table, dps.Schema.from_dict(facts), recipe)
    private = () if epsilon == float("inf") else (dps.Ledger("sqlite://"), "a")
    with pytest.raises(QueryError, match=r"'y' has no values with a significant share(.|\n)*choose another target"):
        dps.LinearRegression("y").fit(dps.View(dps.release(raw, dps.Budget(epsilon), *private)))


def test_bad_tables_are_refused(linear: dps.LinearRegression, held_out: pa.Table) -> None:
    with pytest.raises(QueryError, match="the rows lack column 'weight'"):
        linear.predict(held_out.drop_columns(["weight"]))
    with pytest.raises(QueryError, match="X must have 7 columns: age, income, city"):
        linear.predict([[1, 2]])
    with pytest.raises(QueryError, match="a int is not a table"):
        linear.predict(3)
    columns = {name: held_out[name].to_pylist()[:5] for name in held_out.column_names}
    with pytest.raises(QueryError, match="different lengths"):
        linear.predict(columns | {"age": [30]})
    with pytest.raises(QueryError, match="single value"):
        linear.predict(columns | {"age": 30})
    with pytest.raises(QueryError, match="different lengths"):
        linear.score(columns, [1.0])


def test_predicting_before_fitting_is_refused() -> None:
    with pytest.raises(QueryError, match="not fitted"):
        dps.LogisticRegression("member").predict({"age": [30]})


def test_a_release_without_pairs_says_what_is_missing(counts_only: dps.View) -> None:
    with pytest.raises(QueryError, match=r"Part\(Pairs\(pool=True\)"):
        dps.LogisticRegression("member").fit(counts_only)
