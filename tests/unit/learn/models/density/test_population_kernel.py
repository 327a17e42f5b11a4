"""Densities, modes, anomaly scores and classes from releases that were not made for them."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.models.density.population_kernel import PopulationKernel
from planted_clusters import FOURIER, ROWS, SCHEMA, matrix, planted, releases

pytestmark = pytest.mark.filterwarnings("ignore::dpsketch.FitWarning")
BUDGET = dps.Budget(2.0)
NEW = {name: values[:300] for name, values in planted(2).items()}


@cache
def view(task: str) -> dps.View:
    if task == "fourier":
        return releases()(FOURIER, 2.0)
    columns = {"synthetic": {"columns": ["a", "b"]}, "pca": {"n_components": 1}}.get(task, {})
    recipe = getattr(dps.Recipe, task)(SCHEMA, rows=ROWS, budget=BUDGET, **columns)
    raw = dps.accumulate(pa.table(dict(planted())), SCHEMA, recipe)
    return dps.View(dps.release(raw, BUDGET, dps.Ledger("sqlite://"), task))


@cache
def model() -> dps.KernelDensity:
    return dps.KernelDensity().fit(view("general"))


def exact(columns: str, bandwidth: float) -> np.ndarray:
    """Mean kernel values over the records."""
    widths = {"a": 20, "b": 20, "c": 40}
    squares = sum(
        (np.subtract.outer(NEW[name][:100], planted()[name]) / widths[name] / bandwidth) ** 2 for name in columns
    )
    return dps.Euclidean(1.0).kernel(np.sqrt(squares)).mean(axis=1)


def within(found: dps.Answer, truth: np.ndarray) -> float:
    return float(np.mean(np.abs(np.asarray(found.value)[:100] - truth) <= 1.96 * np.asarray(found.stderr)[:100]))


def test_a_general_release_has_densities_of_all_its_numbers() -> None:
    assert list(model().feature_names_in_) == ["a", "b", "c"]
    assert model().how_ == "32768 rows of the joint distribution"
    found = model().density(NEW)
    assert within(found, exact("abc", 0.05 * 3**0.5)) > 0.8
    assert np.mean(found.stderr) < 0.1 * np.mean(found.value)
    assert model().typical_ is not None
    assert 0 < model().typical_.stderr < model().typical_.value


@pytest.mark.parametrize(("task", "columns"), [("synthetic", "ab"), ("fourier", "abc")])
def test_other_releases_with_rows_have_densities(task: str, columns: str) -> None:
    found = dps.KernelDensity().fit(view(task)).density(NEW)
    assert within(found, exact(columns, 0.05 * len(columns) ** 0.5)) > 0.8


def test_errors_grow_as_kernels_get_narrower() -> None:
    relative = []
    for bandwidth in (0.2, 0.05, 0.01):
        fitted = dps.KernelDensity("gaussian", bandwidth, ["a", "b", "c"]).fit(view("general"))
        found = fitted.density(NEW)
        relative.append(np.median(np.asarray(found.stderr) / np.maximum(found.value, 1e-300)))
    assert relative[0] < relative[1] < relative[2]
    assert relative[2] > 0.5  # nothing sensible is known


def test_labels_count_by_equality() -> None:
    fitted = dps.KernelDensity(columns=["a", "label"]).fit(view("general"))
    same, other = (fitted.density({"a": [-4.0], "label": [label]}).value for label in "xy")
    assert same > 3 * other


def test_a_missing_number_is_in_the_middle() -> None:
    known, missing = (model().density({"a": [a], "b": [3.0], "c": [20.0]}).value for a in (0.0, np.nan))
    assert known == missing


def test_the_release_for_densities_is_named_where_it_is_better() -> None:
    with pytest.warns(FitWarning, match=r"error is \d.* of the density\nHint: release by Recipe\.density .* predicted"):
        dps.KernelDensity().fit(view("general"))
    with pytest.warns(FitWarning, match=r"Hint: release by Recipe\.density \(--for density\) for densities$"):
        dps.KernelDensity("gaussian", 0.1, ["a", "b"]).fit(view("general"))


def test_what_rows_cannot_answer_is_refused() -> None:
    general = view("general")
    for wrong, message in (
        (dps.KernelDensity(dps.SignedProjection(4), columns=["a", "b"]), "rows answer kernels of distance alone"),
        (dps.KernelDensity("gaussian", 0.1, ["a", "label"]), "column 'label' holds labels, which have no units"),
        (dps.KernelDensity("euclidean", {"a": 1.0}, ["a", "label"]), "column 'label' holds labels"),
        (dps.KernelDensity("gaussian", columns=["a", "b"]), "kernel 'gaussian' needs a bandwidth"),
        (dps.KernelDensity(columns=["a", "zz"]), "holds no density of a, zz"),
        (dps.KernelDensity(columns=["a", "b"], method="median"), "a median of means is of hashed counters"),
    ):
        with pytest.raises(QueryError, match=message):
            wrong.fit(general)


def test_a_saved_density_of_rows_is_the_same() -> None:
    facts, arrays = model().to_saved()
    again = dps.KernelDensity.from_saved(json.loads(json.dumps(facts)), arrays)
    for one, two in zip(model().scores(NEW).values(), again.scores(NEW).values(), strict=True):
        assert np.array_equal(one, two)
    wrong = facts["facts"] | {"kernel": facts["facts"]["kernel"] | {"spans": [1.0]}}
    with pytest.raises(ValueError, match="kernel"):
        PopulationKernel.from_saved(wrong, arrays)


def test_modes_are_the_planted_centres() -> None:
    modes = dps.find_modes(view("general"), 2)
    found = matrix({name: modes.points[name] for name in "abc"})
    assert found == pytest.approx(np.array([[-4, -3, 10], [4, 3, 20]]), abs=1.0)
    assert (modes.stderrs > 0).all()


def test_records_unlike_all_others_are_anomalous() -> None:
    with pytest.warns(FitWarning, match=r"AnomalyScorer: fitted to rows .*\nHint: a release by Recipe\.anomaly"):
        scorer = dps.AnomalyScorer(0.05).fit(view("general"))
    assert list(scorer.feature_names_in_) == ["a", "b", "c", "label"]
    assert scorer.offset_stderr_ > 0
    odd = {"a": [-4.0, 4.0], "b": [3.0, 3.0], "c": [10.0, 20.0], "label": ["x", "x"]}
    assert scorer.predict(odd).tolist() == [-1, -1]
    assert 0.01 < np.mean(scorer.predict(NEW) == -1) < 0.12
    facts, arrays = scorer.to_saved()
    again = dps.AnomalyScorer.from_saved(json.loads(json.dumps(facts)), arrays)
    assert np.array_equal(again.score_samples(NEW), scorer.score_samples(NEW))
    assert again.offset_stderr_ == scorer.offset_stderr_


def test_classes_are_told_apart() -> None:
    with pytest.warns(FitWarning, match=r"DensityClassifier: fitted to rows .*\nHint: a release by Recipe\.classify"):
        classifier = dps.DensityClassifier("label").fit(view("general"))
    assert classifier.score(NEW, NEW["label"]) > 0.99
    assert classifier.class_count_ == pytest.approx([13_000, 7_000], rel=0.02)
    assert np.isfinite(classifier.log_odds(NEW).stderr).all()
    facts, arrays = classifier.to_saved()
    again = dps.DensityClassifier.from_saved(json.loads(json.dumps(facts)), arrays)
    assert np.array_equal(again.log_odds(NEW).value, classifier.log_odds(NEW).value)


def test_a_release_without_rows_is_refused() -> None:
    moments = view("pca")
    with pytest.raises(QueryError, match="no densities from counters or a table, and no joint distribution"):
        dps.AnomalyScorer().fit(moments)
    with pytest.raises(QueryError, match="for each class of 'label', and no joint distribution"):
        dps.DensityClassifier("label").fit(moments)
    with pytest.raises(QueryError, match="this release holds no density\n"):
        dps.KernelDensity().fit(moments)
