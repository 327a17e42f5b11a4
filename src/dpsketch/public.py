"""The public names and where each of them lives. They are imported at first use: queries on a sketch need no Numba."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Name: module, or module:other_name.
HOMES = {
    "AdaptiveMarginals": "maps.tables.adaptive_marginals",
    "AdaptivePairs": "maps.tables.adaptive_pairs",
    "AnomalyScorer": "learn.models.density.anomaly",
    "Answer": "learn.answer",
    "Budget": "privacy.budget",
    "BudgetError": "errors",
    "CellCounts": "maps.tables.adaptive_marginals",
    "Consortium": "privacy.noise_shares",
    "Contrasts": "maps.tables.contrasts",
    "Count": "maps.tables.count",
    "Dask": "engines.dask",
    "Database": "engines.sources.databases",
    "DensityClassifier": "learn.models.classifier",
    "DpsketchError": "errors",
    "Embedding": "maps.hashed.embedding",
    "Euclidean": "maps.hashed.hashes",
    "Factor": "maps.hashed.hashes",
    "FederationError": "errors",
    "FileError": "errors",
    "FitWarning": "errors",
    "FoundLabels": "sketch.found_labels",
    "Fourier": "maps.fourier.fourier",
    "GaussianMixture": "learn.models.clusters.mixture",
    "Grid": "maps.tables.grid",
    "GridDensity": "learn.models.grid_density",
    "Grouped": "maps.grouped",
    "Hamming": "maps.hashed.hashes",
    "HashedLinear": "learn.models.hashed_linear",
    "Histogram": "maps.tables.histogram",
    "InnerProduct": "maps.hashed.hashes",
    "KMeans": "learn.models.clusters.kmeans",
    "KernelDensity": "learn.models.density.kernel_density",
    "Ledger": "ledger.ledger",
    "LedgerError": "errors",
    "LedgerWarning": "errors",
    "Levels": "maps.tables.level_counts",
    "LinearRegression": "learn.models.regression",
    "Local": "engines.local",
    "LogisticRegression": "learn.models.regression",
    "Manhattan": "maps.hashed.hashes",
    "Marginals": "maps.tables.marginals",
    "MergeError": "errors",
    "MinHash": "maps.hashed.hashes",
    "Minimum": "learn.models.loss_search",
    "MissingExtraError": "errors",
    "Modes": "learn.models.density.modes",
    "OneBitFourier": "maps.fourier.one_bit",
    "Only": "recipe.recipe",
    "PCA": "learn.models.pca",
    "Pairs": "maps.tables.pairs",
    "Part": "recipe.recipe",
    "PrivacyWarning": "errors",
    "Product": "maps.hashed.hashes",
    "Quadratic": "maps.moments.quadratic",
    "QueryError": "errors",
    "Race": "maps.hashed.race",
    "RawSketch": "sketch.raw",
    "Recipe": "recipe.recipe",
    "RecipeError": "errors",
    "RecipeWarning": "errors",
    "ReleasedSketch": "sketch.released",
    "RowSampling": "recipe.recipe",
    "Schema": "schema.schema",
    "SchemaError": "errors",
    "SecondMoments": "maps.moments.second_moments",
    "SignedProjection": "maps.hashed.hashes",
    "SourceError": "errors",
    "Spark": "engines.spark",
    "Subsampled": "maps.subsampled",
    "Totals": "maps.tables.totals",
    "Triples": "maps.tables.triple_tables",
    "View": "learn.view",
    "accumulate": "engines.engine",
    "append": "engines.engine",
    "audit": "auditing",
    "density_plan": "recipe.tasks.density_task",
    "find_labels": "label_search",
    "find_modes": "learn.models.density.modes",
    "fit_embedding": "engines.fit_embedding",
    "fit_loss": "learn.models.losses",
    "fit_sklearn": "learn.models.wrapped",
    "joint_release": "sketch.joint_release",
    "least_budget": "planning.least_budget",
    "load_model": "learn.saved",
    "minimise": "learn.models.loss_search",
    "mmd": "learn.discrepancy",
    "open": "learn.view:open_view",
    "plan": "planning.forecast",
    "plan_grid": "recipe.tasks.synthetic_task",
    "plan_holders": "planning.holders",
    "plan_task": "planning.task_forecast",
    "release": "sketch.release",
    "release_jointly": "sketch.joint_release",
    "save_model": "learn.saved",
    "suggest_width": "learn.width",
    "tighten": "learn.bounds",
}
# Packages that also offer their own public names: dps.maps.Fourier is dps.Fourier.
ROOMS = {
    "dbapi": "drivers.dbapi",
    "hashes": "maps.hashed.hashes",
    "maps": "maps",
    "models": "learn.models",
    "tasks": "recipe.tasks.task_registry",
}


def names(package: str) -> list[str]:
    """The public names that a package offers: all of them, or those of its own modules."""
    if package == "dpsketch":
        return sorted([*HOMES, *ROOMS])
    return [name for name, home in HOMES.items() if f"dpsketch.{home}".startswith(f"{package}.")]


def resolve(package: str, name: str) -> Any:
    """The object behind a public name of a package."""
    if name not in names(package):
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    if name in ROOMS:
        return import_module(f"dpsketch.{ROOMS[name]}")
    module, _, renamed = HOMES[name].partition(":")
    return getattr(import_module(f"dpsketch.{module}"), renamed or name)
