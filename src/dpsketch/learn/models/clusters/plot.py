"""A picture of clusters: centres over the density of the fitted atoms."""

from __future__ import annotations

import numpy as np

from dpsketch.learn.histogram_bins import even_edges, number_axis
from dpsketch.learn.models.clusters.atoms import Atoms
from dpsketch.learn.models.clusters.places import Places
from dpsketch.numerics.arrays import Floats
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import Axis, Picture, Series, Surface

_STEPS = {1: 200, 2: 100}
_LEAST_DEVIATION = 0.004  # of an atom as drawn: a point would fall between the steps
_CENTRES = "crosses: centres, in circles whose areas are the shares of records"


def clusters_drawing(places: Places, atoms: Atoms, centres: Floats, shares: Floats) -> Drawing:
    """Centres over the fitted density, in the two columns in which they differ most."""
    chosen = np.sort(np.argsort(-centres.var(0), kind="stable")[:2]).tolist()
    columns = [places.schema.column(places.columns[index]) for index in chosen]
    steps = _STEPS[len(columns)]
    middles = (np.arange(steps) + 0.5) / steps - 0.5
    edges = [even_edges(column, steps) for column in columns]
    axes = [number_axis(column) for column in columns]
    units = np.array([column.unit for column in columns])
    at = (places.units(centres)[:, chosen] * units).T
    if len(columns) == 1:
        density = _density(atoms, chosen, middles[:, None])
        height = density / density.max()
        line = Series.exact("line", (edges[0][:-1] + edges[0][1:]) / 2, height)
        marks = Series.exact("crosses", at[0], np.interp(centres[:, 0], middles, height), sizes=shares)
        label = Axis("density, 1 where it is largest")
        return Drawing((Picture("fitted clusters", axes[0], label, (line, marks), note=_CENTRES),))
    points = np.stack(np.meshgrid(middles, middles), axis=-1).reshape(-1, 2)
    height = np.sqrt(_density(atoms, chosen, points)).reshape(steps, steps)
    surface = Surface(height / height.max(), *edges)
    marks = Series.exact("crosses", at[0], at[1], sizes=shares)
    title = "fitted clusters, over the square root of their density"
    return Drawing((Picture(title, axes[0], axes[1], (marks,), note=_CENTRES, surface=surface),))


def _density(atoms: Atoms, columns: list[int], points: Floats) -> Floats:
    """Density of the mixture in some of the columns."""
    total = np.zeros(len(points))
    for weight, centre, covariance in zip(atoms.weights, atoms.centres, atoms.covariances, strict=True):
        own = covariance[np.ix_(columns, columns)] + _LEAST_DEVIATION**2 * np.eye(len(columns))
        aside = points - centre[columns]
        exponent = -0.5 * np.einsum("ni,ij,nj->n", aside, np.linalg.inv(own), aside)
        total += weight * np.exp(exponent) / np.sqrt(np.linalg.det(2 * np.pi * own))
    return total
