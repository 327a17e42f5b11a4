from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeClassifier

import dpsketch as dps
from dpsketch.errors import QueryError


def test_a_regressor_with_its_error(view: dps.View, held_out: pa.Table) -> None:
    model = dps.fit_sklearn(view, Ridge(), "height", columns=["weight", "age"], rows=5000)
    assert model.score(held_out, held_out["height"].to_numpy()) > 0.9
    assert list(model.feature_names_in_) == ["weight", "age"]
    assert model.coef_stderr_ is not None
    assert model.coef_stderr_.shape == model.estimator_.coef_.shape
    assert 0 < model.coef_stderr_[0] < 0.3


def test_a_classifier_answers_in_the_schema_s_values(view: dps.View, held_out: pa.Table) -> None:
    model = dps.fit_sklearn(view, DecisionTreeClassifier(max_depth=3), "city", ["age"], rows=5000)
    assert model.coef_stderr_ is None
    assert set(model.predict(held_out)) <= {"north", "south", "west"}
    assert model.predict({"age": [88]})[0] == "north"
    assert model.predict_proba({"age": [88]}).shape == (1, 3)


def test_an_estimator_without_a_target(view: dps.View, held_out: pa.Table) -> None:
    model = dps.fit_sklearn(view, KMeans(2, n_init=1, random_state=0), columns=["weight", "height"], rows=2000)
    found = model.predict(held_out)
    assert abs(np.corrcoef(found, held_out["weight"].to_numpy())[0, 1]) > 0.7


def test_uncertainty_can_be_left_out(view: dps.View) -> None:
    assert dps.fit_sklearn(view, Ridge(), "height", ["weight"], rows=500, uncertainty=False).coef_stderr_ is None


def test_what_is_no_estimator_is_refused(view: dps.View) -> None:
    with pytest.raises(QueryError, match="not a scikit-learn estimator"):
        dps.fit_sklearn(view, Ridge, "height")
    with pytest.raises(QueryError, match="rows must be"):
        dps.fit_sklearn(view, Ridge(), "height", rows=0)
    with pytest.raises(QueryError, match="is a category"):
        dps.fit_sklearn(view, Ridge(), "city")
    with pytest.raises(QueryError, match="hight"):
        dps.fit_sklearn(view, Ridge(), "hight")
