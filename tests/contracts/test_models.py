"""Every model keeps scikit-learn's conventions, reads any table alike, and survives a file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import dpsketch as dps
from dpsketch.errors import QueryError
from dpsketch.learn.models.model import Columns, Model
from dpsketch.learn.saved import Arrays, Facts, Saved, finite, model_class, model_names, register
from dpsketch.schema.schema import Schema
from pinned.cases import released, schema_of, table

ONE = dps.Budget(1.0)


@register
class MeanRow(Model):
    """A toy: the distance of each row to the column means of the release."""

    def __init__(self, columns: list[str], power: float = 1.0) -> None:
        self.columns, self.power = columns, power

    def fit(self, view: dps.View) -> Self:
        self._check_view(view)
        self.means_ = np.array([view.mean(name).value for name in self.columns])
        self.statement_ = view.statement
        self._set_features(view.schema, self.columns)
        return self

    def predict(self, X: Any) -> np.ndarray:
        frame = self._frame(X)
        values = np.stack([frame.values(name) for name in self.columns], axis=1)
        return (np.abs(values - self.means_) ** self.power).sum(axis=1)

    def scores(self, X: Any) -> Columns:
        return {"distance": self.predict(X)}

    def to_saved(self) -> Saved:
        self._check_fitted()
        return self.get_params() | {"schema": self._schema.to_dict()}, {"means": self.means_}

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> Self:
        model = cls(facts["columns"], facts["power"])
        model.means_ = finite(arrays, "means", len(model.columns))
        model._set_features(Schema.from_dict(facts["schema"]), model.columns)
        return model


@cache
def hashed_linear_view() -> dps.View:
    recipe = dps.Recipe.hashed_linear(schema_of("two"), target="y", rows=1000, budget=dps.Budget(8.0))
    raw = dps.accumulate(table("two", 1000), schema_of("two"), recipe)
    return dps.View(dps.release(raw, dps.Budget(8.0), dps.Ledger("sqlite://"), "two"))


# A model as users make it, an argument to change, a release to fit it to and the table of the rows that it scores.
EXAMPLES: dict[str, tuple[Callable[[], Any], dict[str, Any], Callable[[], dps.View], str]] = {
    "KMeans": (lambda: dps.KMeans(3), {"n_clusters": 2}, lambda: released("two", "clusters", ONE), "two"),
    "GaussianMixture": (
        lambda: dps.GaussianMixture(2),
        {"random_state": 1},
        lambda: released("two", "clusters", ONE),
        "two",
    ),
    "PCA": (lambda: dps.PCA(2), {"of": "second_moments"}, lambda: released("ten", "pca", ONE), "ten"),
    "LinearRegression": (
        lambda: dps.LinearRegression("height", ["age", "sex"]),
        {"penalty": 0.5},
        lambda: released("mixed", "general", ONE),
        "mixed",
    ),
    "LogisticRegression": (
        lambda: dps.LogisticRegression("member", ["age", "height"]),
        {"columns": ["age"]},
        lambda: released("mixed", "general", ONE),
        "mixed",
    ),
    "KernelDensity": (
        lambda: dps.KernelDensity(columns=["y", "x"]),
        {"bandwidth": 0.3},
        lambda: released("two", "density", ONE),
        "two",
    ),
    "GridDensity": (
        lambda: dps.GridDensity(recovery="median"),
        {"method": "heap"},
        lambda: released("two", "synthetic", ONE),
        "two",
    ),
    "DensityClassifier": (
        lambda: dps.DensityClassifier("sex"),
        {"prior": "ml"},
        lambda: released("mixed", "classify", dps.Budget(4.0)),
        "mixed",
    ),
    "AnomalyScorer": (
        lambda: dps.AnomalyScorer(0.02),
        {"contamination": 0.1},
        lambda: released("two", "density", ONE),
        "two",
    ),
    "HashedLinear": (lambda: dps.HashedLinear("y"), {"loss": "hinge"}, hashed_linear_view, "two"),
    "MeanRow": (lambda: MeanRow(["y", "x"]), {"power": 2.0}, lambda: released("two", "density", ONE), "two"),
}
METHODS = ("predict", "predict_proba", "decision_function", "transform", "score_samples", "scores", "density")
every = pytest.mark.parametrize("name", EXAMPLES)


@cache
def fitted(name: str) -> Any:
    make, _, view, _ = EXAMPLES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        return make().fit(view())


def rows(name: str, count: int = 5) -> pa.Table:
    return table(EXAMPLES[name][3], count)


def said(model: Any, X: Any) -> dict[str, np.ndarray]:
    """What each of its methods says of rows."""
    answers: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        for method in METHODS:
            if hasattr(model, method):
                answer = getattr(model, method)(X)
                answers |= answer if isinstance(answer, dict) else {method: getattr(answer, "value", answer)}
    return {key: np.asarray(value) for key, value in answers.items()}


def assert_same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        np.testing.assert_array_equal(value, right[key], err_msg=key)


def test_there_is_an_example_of_every_model() -> None:
    assert set(EXAMPLES) == set(model_names())
    assert all(issubclass(model_class(name), Model) for name in model_names())


@every
def test_parameters(name: str) -> None:
    make, change, _, _ = EXAMPLES[name]
    model = make()
    parameters = model.get_params()
    assert type(model)(**parameters).get_params() == parameters
    assert type(model)(*parameters.values()).get_params() == parameters
    assert model.set_params(**change) is model
    assert model.get_params(deep=False) == parameters | change
    with pytest.raises(QueryError, match=r"has no parameter 'evil'\nHint: its parameters are "):
        model.set_params(evil=1)
    assert not hasattr(model, "evil")


@every
def test_a_clone_has_the_parameters_and_nothing_else(name: str) -> None:
    model = fitted(name)
    again = clone(model)
    assert again is not model
    assert again.get_params() == model.get_params()
    assert not any(attribute.endswith("_") for attribute in vars(again))
    assert repr(again) == repr(model).replace(": fitted", ": not fitted")


@every
def test_repr(name: str) -> None:
    make, change, _, _ = EXAMPLES[name]
    assert repr(fitted(name)).startswith(f"<{name}(")
    assert repr(fitted(name)).endswith("): fitted>")
    changed = make().set_params(**change)
    (parameter, value), *_ = change.items()
    assert f"{parameter}={value!r}" in repr(changed)
    assert "&lt;" in changed._repr_html_()


def test_repr_leaves_out_defaults() -> None:
    assert repr(dps.KMeans()) == "<KMeans(): not fitted>"
    assert repr(dps.LinearRegression("height", ["age"])) == (
        "<LinearRegression(target='height', columns=['age']): not fitted>"
    )


@every
def test_before_fit(name: str, tmp_path: Path) -> None:
    model = EXAMPLES[name][0]()
    message = rf"this {name} is not fitted\nHint: call fit\(view\) first"
    for method in (method for method in METHODS if hasattr(model, method)):
        with pytest.raises(QueryError, match=message):
            getattr(model, method)(rows(name))
    with pytest.raises(QueryError, match=message):
        dps.save_model(model, tmp_path / "a.model")
    with pytest.raises(QueryError, match=message):
        _ = model.input_columns


@every
def test_rows_are_no_release(name: str) -> None:
    model = EXAMPLES[name][0]()
    with pytest.raises(QueryError, match=rf"{name} is fitted to a release, got a DataFrame instead\nHint: pass a view"):
        model.fit(rows(name).to_pandas())
    assert "not fitted" in repr(model)


@every
def test_feature_names(name: str) -> None:
    model = fitted(name)
    assert model.n_features_in_ == len(model.feature_names_in_)
    assert set(model.input_columns) <= set(rows(name).column_names)
    assert model.statement_["epsilon"]


@every
def test_every_kind_of_table_is_read_alike(name: str) -> None:
    model = fitted(name)
    X = rows(name).select(list(model.input_columns))
    expected = said(model, X)
    frame = X.to_pandas()
    others = [
        rows(name),  # with more columns, which are ignored
        X.to_batches()[0],
        frame,
        frame[frame.columns[::-1]],
        pl.from_arrow(X),
        X.to_pydict(),
        frame.to_numpy(),
        frame.to_numpy().tolist(),
    ]
    for other in others:
        assert_same(said(model, other), expected)


@every
def test_wrong_tables_are_refused(name: str) -> None:
    model = fitted(name)
    X = rows(name).select(list(model.input_columns))
    missing = model.input_columns[-1]
    with pytest.raises(QueryError, match=f"the rows lack column '{missing}'"):
        model.scores(X.drop_columns([missing]))
    wide = np.zeros((3, len(model.input_columns) + 1))
    for matrix in (wide, wide.tolist(), wide[0], [[1.0], [1.0, 2.0]]):
        with pytest.raises(QueryError, match=f"X must have {len(model.input_columns)} columns?: "):
            model.scores(matrix)


@every
def test_a_file_keeps_the_model(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    dps.save_model(model, tmp_path / "a.model")
    again = dps.load_model(tmp_path / "a.model")
    assert type(again) is type(model)
    assert again.statement_ == json.loads(json.dumps(model.statement_))
    assert again.input_columns == model.input_columns
    assert again.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    assert_same(said(again, rows(name)), said(model, rows(name)))


def test_a_name_stands_for_one_class() -> None:
    for name in ("KMeans", "MeanRow"):
        with pytest.raises(QueryError, match=f"there is a model {name} already"):
            register(type(name, (Model,), {}))


def test_a_class_of_the_same_name_is_not_saved_as_another(tmp_path: Path) -> None:
    impostor = type("KMeans", (dps.KMeans,), {})
    with pytest.raises(QueryError, match="a KMeans cannot be saved"):
        dps.save_model(impostor(2), tmp_path / "a.model")


def labelled() -> tuple[pd.DataFrame, pd.Series]:
    frame = table("mixed", 200).to_pandas()
    return frame, frame["member"]


def test_a_pipeline_may_end_in_a_fitted_model() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model, (frame, y) = fitted("LogisticRegression"), labelled()
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows.rename(columns={"years": "age"})), model)
    found = pipeline.predict(frame.rename(columns={"age": "years"}))
    np.testing.assert_array_equal(found, model.predict(frame))
    with pytest.raises(QueryError, match="is fitted to a release, got a DataFrame"):
        pipeline.fit(frame, y)


@pytest.mark.parametrize("name", ["LogisticRegression", "LinearRegression", "DensityClassifier"])
def test_cross_validation_of_a_frozen_model_on_labelled_rows(name: str) -> None:
    frozen = pytest.importorskip("sklearn.frozen")
    from sklearn.base import is_classifier, is_regressor
    from sklearn.model_selection import cross_val_score

    model, (frame, _) = fitted(name), labelled()
    assert is_classifier(model) == (name != "LinearRegression")
    assert is_regressor(model) == (name == "LinearRegression")
    each = cross_val_score(frozen.FrozenEstimator(model), frame, frame[model.target], cv=4)
    assert len(each) == 4
    if name != "LinearRegression":  # folds of the same size, so that means are means
        assert each.mean() == pytest.approx(model.score(frame, frame[model.target]), abs=0.01)
