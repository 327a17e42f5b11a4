"""Models that are fitted to a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.public import names, resolve

if TYPE_CHECKING:
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

__all__ = names(__name__)


def __getattr__(name: str) -> Any:
    return resolve(__name__, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
