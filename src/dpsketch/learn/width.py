"""The width of Gaussian frequencies for a second release of a table, from the clusters of a small first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.models.clusters.mixture import GaussianMixture
from dpsketch.maps.base import check_columns
from dpsketch.maps.fourier.laws import LEAST_WIDTH, MOST_WIDTH

if TYPE_CHECKING:
    from dpsketch.learn.view import View


def suggest_width(view: View, n_clusters: int, columns: Sequence[str] | None = None) -> float:
    """The `width` of `Fourier(kernel="gaussian", width=…)` that resolves this number of clusters.

    Frequencies of that law have lengths of about √d/width with d columns, and point masses find clusters of deviation σ
    best where these are 1/σ. So the width is √d·σ in widths of the bounds, with the σ of a mixture that is fitted to
    `view`: a small release by `Recipe.clusters`, or any that `GaussianMixture` accepts. `columns` names those to
    cluster. Guarantee: the width depends on the released sums alone. Source: compressive §7; docs/clusters.md.
    """
    if not view.released.private:
        raise QueryError(
            "this release is not private: a width taken from it would leak the table", "take it from a private release"
        )
    names = check_columns("suggest_width", columns)
    width = GaussianMixture(n_clusters, columns=names).fit(view).kernel_width_
    return float(np.clip(float(f"{width:.3g}"), LEAST_WIDTH, MOST_WIDTH))
