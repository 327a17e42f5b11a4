"""One private pass over a table, one release with differential privacy, unlimited questions afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dpsketch.numerics.started  # noqa: F401
from dpsketch.public import names, resolve

if TYPE_CHECKING:
    from dpsketch import maps as maps
    from dpsketch.auditing import audit as audit
    from dpsketch.drivers import dbapi as dbapi
    from dpsketch.engines.dask import Dask as Dask
    from dpsketch.engines.engine import accumulate as accumulate
    from dpsketch.engines.engine import append as append
    from dpsketch.engines.fit_embedding import fit_embedding as fit_embedding
    from dpsketch.engines.local import Local as Local
    from dpsketch.engines.sources.databases import Database as Database
    from dpsketch.engines.spark import Spark as Spark
    from dpsketch.errors import BudgetError as BudgetError
    from dpsketch.errors import DpsketchError as DpsketchError
    from dpsketch.errors import FederationError as FederationError
    from dpsketch.errors import FileError as FileError
    from dpsketch.errors import FitWarning as FitWarning
    from dpsketch.errors import LedgerError as LedgerError
    from dpsketch.errors import LedgerWarning as LedgerWarning
    from dpsketch.errors import MergeError as MergeError
    from dpsketch.errors import MissingExtraError as MissingExtraError
    from dpsketch.errors import PrivacyWarning as PrivacyWarning
    from dpsketch.errors import QueryError as QueryError
    from dpsketch.errors import RecipeError as RecipeError
    from dpsketch.errors import RecipeWarning as RecipeWarning
    from dpsketch.errors import SchemaError as SchemaError
    from dpsketch.errors import SourceError as SourceError
    from dpsketch.label_search import find_labels as find_labels
    from dpsketch.learn import models as models
    from dpsketch.learn.answer import Answer as Answer
    from dpsketch.learn.bounds import tighten as tighten
    from dpsketch.learn.discrepancy import mmd as mmd
    from dpsketch.learn.models.classifier import DensityClassifier as DensityClassifier
    from dpsketch.learn.models.clusters.kmeans import KMeans as KMeans
    from dpsketch.learn.models.clusters.mixture import GaussianMixture as GaussianMixture
    from dpsketch.learn.models.density.anomaly import AnomalyScorer as AnomalyScorer
    from dpsketch.learn.models.density.kernel_density import KernelDensity as KernelDensity
    from dpsketch.learn.models.density.modes import Modes as Modes
    from dpsketch.learn.models.density.modes import find_modes as find_modes
    from dpsketch.learn.models.grid_density import GridDensity as GridDensity
    from dpsketch.learn.models.hashed_linear import HashedLinear as HashedLinear
    from dpsketch.learn.models.loss_search import Minimum as Minimum
    from dpsketch.learn.models.loss_search import minimise as minimise
    from dpsketch.learn.models.losses import fit_loss as fit_loss
    from dpsketch.learn.models.pca import PCA as PCA
    from dpsketch.learn.models.regression import LinearRegression as LinearRegression
    from dpsketch.learn.models.regression import LogisticRegression as LogisticRegression
    from dpsketch.learn.models.wrapped import fit_sklearn as fit_sklearn
    from dpsketch.learn.saved import load_model as load_model
    from dpsketch.learn.saved import save_model as save_model
    from dpsketch.learn.view import View as View
    from dpsketch.learn.view import open_view as _open_view
    from dpsketch.learn.width import suggest_width as suggest_width
    from dpsketch.ledger.ledger import Ledger as Ledger
    from dpsketch.maps.fourier.fourier import Fourier as Fourier
    from dpsketch.maps.fourier.one_bit import OneBitFourier as OneBitFourier
    from dpsketch.maps.grouped import Grouped as Grouped
    from dpsketch.maps.hashed import hashes as hashes
    from dpsketch.maps.hashed.embedding import Embedding as Embedding
    from dpsketch.maps.hashed.hashes import Euclidean as Euclidean
    from dpsketch.maps.hashed.hashes import Factor as Factor
    from dpsketch.maps.hashed.hashes import Hamming as Hamming
    from dpsketch.maps.hashed.hashes import InnerProduct as InnerProduct
    from dpsketch.maps.hashed.hashes import Manhattan as Manhattan
    from dpsketch.maps.hashed.hashes import MinHash as MinHash
    from dpsketch.maps.hashed.hashes import Product as Product
    from dpsketch.maps.hashed.hashes import SignedProjection as SignedProjection
    from dpsketch.maps.hashed.race import Race as Race
    from dpsketch.maps.moments.quadratic import Quadratic as Quadratic
    from dpsketch.maps.moments.second_moments import SecondMoments as SecondMoments
    from dpsketch.maps.subsampled import Subsampled as Subsampled
    from dpsketch.maps.tables.adaptive_marginals import AdaptiveMarginals as AdaptiveMarginals
    from dpsketch.maps.tables.adaptive_marginals import CellCounts as CellCounts
    from dpsketch.maps.tables.adaptive_pairs import AdaptivePairs as AdaptivePairs
    from dpsketch.maps.tables.contrasts import Contrasts as Contrasts
    from dpsketch.maps.tables.count import Count as Count
    from dpsketch.maps.tables.grid import Grid as Grid
    from dpsketch.maps.tables.histogram import Histogram as Histogram
    from dpsketch.maps.tables.level_counts import Levels as Levels
    from dpsketch.maps.tables.marginals import Marginals as Marginals
    from dpsketch.maps.tables.pairs import Pairs as Pairs
    from dpsketch.maps.tables.totals import Totals as Totals
    from dpsketch.maps.tables.triple_tables import Triples as Triples
    from dpsketch.planning.forecast import plan as plan
    from dpsketch.planning.holders import plan_holders as plan_holders
    from dpsketch.planning.least_budget import least_budget as least_budget
    from dpsketch.planning.task_forecast import plan_task as plan_task
    from dpsketch.privacy.budget import Budget as Budget
    from dpsketch.privacy.noise_shares import Consortium as Consortium
    from dpsketch.recipe.recipe import Only as Only
    from dpsketch.recipe.recipe import Part as Part
    from dpsketch.recipe.recipe import Recipe as Recipe
    from dpsketch.recipe.recipe import RowSampling as RowSampling
    from dpsketch.recipe.tasks import task_registry as tasks  # noqa: F401
    from dpsketch.recipe.tasks.density_task import density_plan as density_plan
    from dpsketch.recipe.tasks.synthetic_task import plan_grid as plan_grid
    from dpsketch.schema.schema import Schema as Schema
    from dpsketch.sketch.found_labels import FoundLabels as FoundLabels
    from dpsketch.sketch.joint_release import joint_release as joint_release
    from dpsketch.sketch.joint_release import release_jointly as release_jointly
    from dpsketch.sketch.raw import RawSketch as RawSketch
    from dpsketch.sketch.release import release as release
    from dpsketch.sketch.released import ReleasedSketch as ReleasedSketch

    open = _open_view
    __version__: str

__all__ = names(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes as long to import as everything else here

        value: Any = version("dpsketch")
    else:
        value = resolve(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
