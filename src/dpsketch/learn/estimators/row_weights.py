"""Weights of the rows of hashed counters of one column, by the slopes of their hashes.

With a hash ⌊(a·x + b)/w⌋ of one column, a record at distance d of the query meets it in a row with probability
max(0, 1 − |a|·d/w), given the row's slope a: a row with a small slope has nearly all records in one counter. Few rows
have such a slope, so a mean over rows depends on how many they happen to be, and their spread does not show it. But
slopes are public, and so is the probability over all slopes, the kernel. The weights here give every distance nearly
its kernel. Source: docs/decisions/043-rows-of-one-column-have-weights.md.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from dpsketch.learn.estimators.radial_kernels import euclidean
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.columns import SPAN
from dpsketch.schema.schema import Schema

_ORIGIN = Tuned("dpbench_1d: 8 of 18", by=BY_HAND, decision=43)
_DISTANCES: Annotated[int, _ORIGIN] = 48
_NEAREST: Annotated[float, _ORIGIN] = 0.1  # of the distances, in bandwidths
_SPREAD: Annotated[float, _ORIGIN] = 0.08  # standard deviation of a counter at a given slope, over all records
_ROWS: Annotated[int, _ORIGIN] = 10  # with this spread, which errors assume beside those that are seen
_CLEAR: Annotated[float, _ORIGIN] = 2.0  # standard errors of N: there may be as many records


class RowWeights:
    """Weights of R rows and, last, of a row with slope 0, whose counter would be the number of records.

    They are the best linear prediction of a kernel sum from the counters, if all records are at one unknown distance:
    the variance of the rows at given slopes is balanced with what the weights leave of the kernel.
    """

    def __init__(self, schema: Schema, race: BoundRace, noise_variance: float, records: float) -> None:
        (projection,), family = race.projected, race.euclidean
        assert family is not None
        self._noise, self._total_variance = noise_variance, noise_variance * race.width / race.rows
        self._records = max(records, _CLEAR * float(np.sqrt(self._total_variance)), 1.0)
        span = euclidean(schema, race.columns, family).spans[0]
        distances = np.append(0.0, np.geomspace(min(_NEAREST, span / 2), span, _DISTANCES - 1))
        slopes = np.abs(projection.coefficients[:, :, 0] / 2.0**projection.shift) * SPAN / span  # bins in a bandwidth
        met = np.maximum(1.0 - slopes[:, :, None] * distances, 0.0).prod(axis=1)
        self._met = np.append(met, np.ones((1, _DISTANCES)), axis=0)
        spread = np.full(race.rows, noise_variance + (_SPREAD * self._records) ** 2)
        precise = self._met / np.append(spread, self._total_variance + 1.0)[:, None]
        # Nothing holds back the number at distance 0, so that weights sum to one.
        prior = np.append(0.0, np.full(_DISTANCES - 1, _DISTANCES / self._records**2))
        inverse = np.linalg.inv(self._met.T @ precise + np.diag(prior))
        self._fit = inverse @ precise.T  # from counters to numbers of records at each distance
        kernel = family.kernel(distances * family.bandwidth)
        self._weights: Floats = kernel @ self._fit
        self._left_out = float(np.sqrt(np.mean((kernel - self._weights @ self._met) ** 2)))

    def sums(self, counters: Floats, total: float) -> tuple[Floats, Floats]:
        """Kernel sums and their standard errors, from the corrected counters of queries, one matrix row each.

        A standard error has the deviations of the rows from what is expected at their slopes, at least their noise; as
        many of some further rows; the noise of the number of records; and what the weights leave of the kernel, if all
        records were at such a distance.
        """
        counters = np.append(counters, np.full((len(counters), 1), total), axis=1)
        own = np.einsum("rj,jr->r", self._met, self._fit)[:-1]
        residuals = (counters - counters @ self._fit.T @ self._met.T)[:, :-1] / (1 - own)
        squares = self._weights[:-1] ** 2
        unseen = _ROWS / len(squares) * (_SPREAD * self._records) ** 2
        variance = np.maximum(residuals**2 @ squares, self._noise * squares.sum()) + unseen * squares.sum()
        variance += self._weights[-1] ** 2 * self._total_variance + (self._left_out * self._records) ** 2
        return counters @ self._weights, np.sqrt(variance)


def can_weigh(schema: Schema, race: BoundRace) -> bool:
    """Whether the hash is of the distance in one column of numbers."""
    embedded = getattr(race.description, "embedding", None) is not None
    if race.euclidean is None or embedded or not race.unit_increments or len(race.columns) > 1:
        return False
    return schema.column(race.columns[0]).numeric
