"""A plot of clusters: centres over the density of the fitted atoms."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpsketch.files.pictures import picture
from dpsketch.learn.models.clusters.atoms import Atoms
from dpsketch.learn.models.clusters.places import Places
from dpsketch.numerics.arrays import Floats

_STEPS = 200
_LEAST_DEVIATION = 0.004  # of an atom as drawn: a point would fall between the pixels


def plot_clusters(path: str | Path, places: Places, atoms: Atoms, centres: Floats, shares: Floats) -> None:
    with picture(path, 6, 5) as (_, axis):
        grid = np.linspace(-0.5, 0.5, _STEPS)
        features = places.features(np.repeat(grid[:, None], len(places.columns), 1))
        sizes = 20 + 400 * shares
        if len(places.columns) == 1:
            axis.plot(features[:, 0], _density(atoms, [0], grid[:, None]))
            axis.scatter(places.features(centres)[:, 0], np.zeros(len(centres)), sizes, marker="x", color="red")
            axis.set(xlabel=places.columns[0], yticks=[])
        else:
            first, second = np.sort(np.argsort(-centres.var(0), kind="stable")[:2])
            points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
            density = _density(atoms, [first, second], points).reshape(_STEPS, _STEPS)
            axis.pcolormesh(features[:, first], features[:, second], np.sqrt(density), cmap="Blues", shading="auto")
            middle = places.features(centres)
            axis.scatter(middle[:, first], middle[:, second], sizes, facecolors="none", edgecolors="red")
            axis.scatter(middle[:, first], middle[:, second], 20, marker="x", color="red", linewidths=1)
            axis.set(xlabel=places.columns[first], ylabel=places.columns[second])


def _density(atoms: Atoms, columns: list[int], points: Floats) -> Floats:
    """Density of the mixture in some of the columns."""
    total = np.zeros(len(points))
    for weight, centre, covariance in zip(atoms.weights, atoms.centres, atoms.covariances, strict=True):
        own = covariance[np.ix_(columns, columns)] + _LEAST_DEVIATION**2 * np.eye(len(columns))
        aside = points - centre[columns]
        exponent = -0.5 * np.einsum("ni,ij,nj->n", aside, np.linalg.inv(own), aside)
        total += weight * np.exp(exponent) / np.sqrt(np.linalg.det(2 * np.pi * own))
    return total
