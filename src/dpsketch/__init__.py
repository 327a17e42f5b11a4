"""One private pass over a table, one release with differential privacy, unlimited questions afterwards."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import dpsketch.numerics.started  # noqa: F401

if TYPE_CHECKING:
    from dpsketch.engines.fit_embedding import fit_embedding
    from dpsketch.engines.local import Local, accumulate
    from dpsketch.errors import DpsketchError, FitWarning
    from dpsketch.learn.answer import Answer
    from dpsketch.learn.bounds import tighten
    from dpsketch.learn.models.classifier import DensityClassifier
    from dpsketch.learn.models.clusters.kmeans import KMeans
    from dpsketch.learn.models.clusters.mixture import GaussianMixture
    from dpsketch.learn.models.density.anomaly import AnomalyScorer
    from dpsketch.learn.models.density.kernel_density import KernelDensity
    from dpsketch.learn.models.density.modes import Modes, find_modes
    from dpsketch.learn.models.grid_density import GridDensity
    from dpsketch.learn.models.hashed_linear import HashedLinear
    from dpsketch.learn.models.losses import fit_loss
    from dpsketch.learn.models.pca import PCA
    from dpsketch.learn.models.regression import LinearRegression, LogisticRegression
    from dpsketch.learn.models.wrapped import fit_sklearn
    from dpsketch.learn.saved import load_model, save_model
    from dpsketch.learn.view import View
    from dpsketch.learn.view import open_view as open
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.maps.fourier.fourier import Fourier
    from dpsketch.maps.fourier.one_bit import OneBitFourier
    from dpsketch.maps.grouped import Grouped
    from dpsketch.maps.hashed.embedding import Embedding
    from dpsketch.maps.hashed.hashes import Euclidean, Factor, InnerProduct, MinHash, Product, SignedProjection
    from dpsketch.maps.hashed.race import Race
    from dpsketch.maps.moments.quadratic import Quadratic
    from dpsketch.maps.moments.second_moments import SecondMoments
    from dpsketch.maps.subsampled import Subsampled
    from dpsketch.maps.tables.contrasts import Contrasts
    from dpsketch.maps.tables.count import Count
    from dpsketch.maps.tables.grid import Grid
    from dpsketch.maps.tables.histogram import Histogram
    from dpsketch.maps.tables.marginals import Marginals
    from dpsketch.maps.tables.pairs import Pairs
    from dpsketch.maps.tables.totals import Totals
    from dpsketch.planning.forecast import plan
    from dpsketch.planning.task_forecast import plan_task
    from dpsketch.privacy.budget import Budget
    from dpsketch.recipe.recipe import Only, Part, Recipe, RowSampling
    from dpsketch.recipe.tasks.density_task import density_plan
    from dpsketch.recipe.tasks.synthetic_task import plan_grid
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.raw import RawSketch
    from dpsketch.sketch.release import release
    from dpsketch.sketch.released import ReleasedSketch

__all__ = [
    "PCA",
    "AnomalyScorer",
    "Answer",
    "Budget",
    "Contrasts",
    "Count",
    "DensityClassifier",
    "DpsketchError",
    "Embedding",
    "Euclidean",
    "Factor",
    "FitWarning",
    "Fourier",
    "GaussianMixture",
    "Grid",
    "GridDensity",
    "Grouped",
    "HashedLinear",
    "Histogram",
    "InnerProduct",
    "KMeans",
    "KernelDensity",
    "Ledger",
    "LinearRegression",
    "Local",
    "LogisticRegression",
    "Marginals",
    "MinHash",
    "Modes",
    "OneBitFourier",
    "Only",
    "Pairs",
    "Part",
    "Product",
    "Quadratic",
    "Race",
    "RawSketch",
    "Recipe",
    "ReleasedSketch",
    "RowSampling",
    "Schema",
    "SecondMoments",
    "SignedProjection",
    "Subsampled",
    "Totals",
    "View",
    "accumulate",
    "density_plan",
    "find_modes",
    "fit_embedding",
    "fit_loss",
    "fit_sklearn",
    "load_model",
    "open",
    "plan",
    "plan_grid",
    "plan_task",
    "release",
    "save_model",
    "tighten",
]

# Where each name lives. They are imported at first use: asking a sketch needs neither Numba nor the ledger.
_HOMES = {
    "AnomalyScorer": "learn.models.density.anomaly",
    "Answer": "learn.answer",
    "Budget": "privacy.budget",
    "Contrasts": "maps.tables.contrasts",
    "Count": "maps.tables.count",
    "DensityClassifier": "learn.models.classifier",
    "DpsketchError": "errors",
    "Embedding": "maps.hashed.embedding",
    "Euclidean": "maps.hashed.hashes",
    "Factor": "maps.hashed.hashes",
    "FitWarning": "errors",
    "Fourier": "maps.fourier.fourier",
    "GaussianMixture": "learn.models.clusters.mixture",
    "Grid": "maps.tables.grid",
    "GridDensity": "learn.models.grid_density",
    "Grouped": "maps.grouped",
    "HashedLinear": "learn.models.hashed_linear",
    "Histogram": "maps.tables.histogram",
    "InnerProduct": "maps.hashed.hashes",
    "KMeans": "learn.models.clusters.kmeans",
    "KernelDensity": "learn.models.density.kernel_density",
    "Ledger": "ledger.ledger",
    "LinearRegression": "learn.models.regression",
    "Local": "engines.local",
    "LogisticRegression": "learn.models.regression",
    "Marginals": "maps.tables.marginals",
    "MinHash": "maps.hashed.hashes",
    "Modes": "learn.models.density.modes",
    "OneBitFourier": "maps.fourier.one_bit",
    "Only": "recipe.recipe",
    "PCA": "learn.models.pca",
    "Pairs": "maps.tables.pairs",
    "Part": "recipe.recipe",
    "Product": "maps.hashed.hashes",
    "Quadratic": "maps.moments.quadratic",
    "Race": "maps.hashed.race",
    "RawSketch": "sketch.raw",
    "Recipe": "recipe.recipe",
    "ReleasedSketch": "sketch.released",
    "RowSampling": "recipe.recipe",
    "Schema": "schema.schema",
    "SecondMoments": "maps.moments.second_moments",
    "SignedProjection": "maps.hashed.hashes",
    "Subsampled": "maps.subsampled",
    "Totals": "maps.tables.totals",
    "View": "learn.view",
    "accumulate": "engines.local",
    "density_plan": "recipe.tasks.density_task",
    "find_modes": "learn.models.density.modes",
    "fit_embedding": "engines.fit_embedding",
    "fit_loss": "learn.models.losses",
    "fit_sklearn": "learn.models.wrapped",
    "load_model": "learn.saved",
    "open": "learn.view",
    "plan": "planning.forecast",
    "plan_grid": "recipe.tasks.synthetic_task",
    "plan_task": "planning.task_forecast",
    "release": "sketch.release",
    "save_model": "learn.saved",
    "tighten": "learn.bounds",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dpsketch' has no attribute {name!r}")
    found = getattr(import_module(f"dpsketch.{_HOMES[name]}"), "open_view" if name == "open" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
