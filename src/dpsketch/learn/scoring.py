"""What a fitted model says of rows, as columns of a table: for whoever scores files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsketch.errors import QueryError

if TYPE_CHECKING:
    from dpsketch.learn.clusters.kmeans import KMeans
    from dpsketch.learn.clusters.mixture import GaussianMixture
    from dpsketch.learn.models.pca import PCA
    from dpsketch.learn.models.regression import LinearRegression, LogisticRegression

Columns = dict[str, Any]


@dataclass(frozen=True)
class _Scorer:
    inputs: Callable[[Any], tuple[str, ...]]
    scores: Callable[[Any, Any], Columns]


def input_columns(model: Any) -> tuple[str, ...]:
    """The columns that a table must have to be scored."""
    return tuple(str(name) for name in _scorer(model).inputs(model))


def scores(model: Any, table: Any) -> Columns:
    """One entry a row in every column; standard errors follow what they are of, as `…_stderr`."""
    return _scorer(model).scores(model, table)


def _kmeans(model: KMeans, table: Any) -> Columns:
    distances = model.transform(table)
    return {"cluster": distances.argmin(1), "distance": distances.min(1)}


def _mixture(model: GaussianMixture, table: Any) -> Columns:
    shares = model.predict_proba(table)
    return {"component": shares.argmax(1), "probability": shares.max(1), "log_density": model.score_samples(table)}


def _pca(model: PCA, table: Any) -> Columns:
    return {f"component_{place + 1}": along for place, along in enumerate(model.transform(table).T)}


def _linear(model: LinearRegression, table: Any) -> Columns:
    return {"prediction": model.predict(table)}


def _logistic(model: LogisticRegression, table: Any) -> Columns:
    shares = model.predict_proba(table)
    each = {f"probability_{label}": share for label, share in zip(model.classes_, shares.T, strict=True)}
    labels = model.classes_[shares.argmax(1)]
    return {"prediction": labels.astype(str) if labels.dtype == object else labels} | each


def _places(model: Any) -> tuple[str, ...]:
    return tuple(model.feature_names_in_)


def _designed(model: Any) -> tuple[str, ...]:
    return tuple(model._design.columns)


_SCORERS = {
    "GaussianMixture": _Scorer(_places, _mixture),
    "KMeans": _Scorer(_places, _kmeans),
    "LinearRegression": _Scorer(_designed, _linear),
    "LogisticRegression": _Scorer(_designed, _logistic),
    "PCA": _Scorer(_places, _pca),
}


def _scorer(model: Any) -> _Scorer:
    name = type(model).__name__
    if name not in _SCORERS:
        raise QueryError(f"a {name} does not score rows", f"models that do: {', '.join(_SCORERS)}")
    return _SCORERS[name]
