"""What a fitted model says of rows, as columns of a table: for whoever scores files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsketch.errors import QueryError
from dpsketch.schema.columns import IdSet

if TYPE_CHECKING:
    from dpsketch.learn.models.classifier import DensityClassifier
    from dpsketch.learn.models.clusters.kmeans import KMeans
    from dpsketch.learn.models.clusters.mixture import GaussianMixture
    from dpsketch.learn.models.density.anomaly import AnomalyScorer
    from dpsketch.learn.models.density.kernel_density import KernelDensity
    from dpsketch.learn.models.grid_density import GridDensity
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


def universe(model: Any) -> int | None:
    """How many ids there are, if it is sets of ids that the model scores."""
    schema = getattr(model, "_schema", None)
    columns = [schema.column(name) for name in input_columns(model)] if schema is not None else []
    return columns[0].universe if len(columns) == 1 and isinstance(columns[0], IdSet) else None


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


def _hashed_linear(model: Any, table: Any) -> Columns:
    found = model.predict(table)
    return {"prediction": found.astype(str) if found.dtype == object else found}


def _logistic(model: LogisticRegression, table: Any) -> Columns:
    shares = model.predict_proba(table)
    each = {f"probability_{label}": share for label, share in zip(model.classes_, shares.T, strict=True)}
    labels = model.classes_[shares.argmax(1)]
    return {"prediction": labels.astype(str) if labels.dtype == object else labels} | each


def _kernel_density(model: KernelDensity, table: Any) -> Columns:
    answer = model.density(table)
    return {"density": answer.value, "density_stderr": answer.stderr, "log_density": model.logarithms(answer.value)}


def _anomaly(model: AnomalyScorer, table: Any) -> Columns:
    """Without a threshold there are scores alone."""
    found = model.score_samples(table)
    return {"score": found} | ({} if model.offset_ is None else {"anomaly": found < model.offset_})


def _density_classifier(model: DensityClassifier, table: Any) -> Columns:
    answer = model.log_odds(table)
    labels = model.classes_[answer.value.argmax(1)]
    found: Columns = {"prediction": labels.astype(str) if labels.dtype == object else labels}
    shares = model.probabilities(answer.value)
    found |= {f"probability_{label}": share for label, share in zip(model.classes_, shares.T, strict=True)}
    for place, label in enumerate(model.classes_):
        found[f"log_odds_{label}"] = answer.value[:, place]
        found[f"log_odds_{label}_stderr"] = answer.stderr[:, place]
    return found


def _grid_density(model: GridDensity, table: Any) -> Columns:
    answer = model.density(table)
    return {"density": answer.value, "density_stderr": answer.stderr}


def _places(model: Any) -> tuple[str, ...]:
    return tuple(model.feature_names_in_)


def _designed(model: Any) -> tuple[str, ...]:
    return tuple(model._design.columns)


_SCORERS = {
    "AnomalyScorer": _Scorer(_places, _anomaly),
    "DensityClassifier": _Scorer(_places, _density_classifier),
    "GaussianMixture": _Scorer(_places, _mixture),
    "GridDensity": _Scorer(_places, _grid_density),
    "HashedLinear": _Scorer(_designed, _hashed_linear),
    "KMeans": _Scorer(_places, _kmeans),
    "KernelDensity": _Scorer(_places, _kernel_density),
    "LinearRegression": _Scorer(_designed, _linear),
    "LogisticRegression": _Scorer(_designed, _logistic),
    "PCA": _Scorer(_places, _pca),
}


def _scorer(model: Any) -> _Scorer:
    name = type(model).__name__
    if name not in _SCORERS:
        raise QueryError(f"a {name} does not score rows", f"models that do: {', '.join(_SCORERS)}")
    return _SCORERS[name]
