"""Conversion between users' units and positions between the declared bounds, from −½ to ½, in which clusters are
fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, LOWEST, SPAN, Column
from dpsketch.schema.schema import Schema


class Places:
    """Positions in some columns of a schema.

    A column's *feature* is its value in the user's units, or its logarithm or asinh where the schema transforms it, or
    days since 1970; a position is linear in it.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self.schema, self.columns = schema, tuple(columns)
        bounds = np.array([_feature_bounds(schema.column(name)) for name in self.columns])
        self._low, self.widths = bounds[:, 0], bounds[:, 1] - bounds[:, 0]

    def of(self, table: Any) -> Floats:
        """Places of the rows of a mapping or table of columns, or of a matrix with the columns in their order."""
        return frame_places(Frame.read(self.schema, self.columns, table), self.columns)

    def features(self, places: Floats) -> Floats:
        return self._low + (places + 0.5) * self.widths

    def units(self, places: Floats) -> Floats:
        """Values in the user's units; dates as days since 1970."""
        features = self.features(places)
        for j, name in enumerate(self.columns):
            features[..., j] = self.schema.column(name).unscaled(features[..., j])
        return features

    def unit_slopes(self, places: Floats) -> Floats:
        """Derivatives of `units`."""
        slopes = np.broadcast_to(self.widths, places.shape).copy()
        features = self.features(places)
        for j, name in enumerate(self.columns):
            slopes[..., j] *= self.schema.column(name).unscaled_slopes(features[..., j])
        return slopes


def _feature_bounds(column: Column) -> Floats:
    return column.scaled(column.values_of(np.array([LOWEST, HIGHEST])) / column.unit)


def frame_places(frame: Frame, columns: Sequence[str]) -> Floats:
    """Places of points; a missing cell counts as the lower bound, as it does for Fourier sums."""
    return np.stack([np.maximum(frame.codes(name), LOWEST) / SPAN for name in columns], axis=1)
