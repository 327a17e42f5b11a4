"""Kernels of the distance between two records, in bandwidths of each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import factorial, gamma, inf, isclose, pi, prod
from numbers import Real
from typing import Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.maps.hashed.hash_inputs import bandwidth_spans
from dpsketch.maps.hashed.hashes import Euclidean
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, LOWEST
from dpsketch.schema.schema import Schema

GAUSSIAN, LAPLACIAN = "gaussian", "laplacian"
EUCLIDEAN = Euclidean.family
NAMES = (EUCLIDEAN, GAUSSIAN, LAPLACIAN)
Bandwidth = float | Mapping[str, float]


@dataclass(frozen=True)
class Radial:
    """A kernel of the distance. `spans` are the widths of the columns' bounds in bandwidths.

    "euclidean": the collision probability of `power` p-stable hashes, 1 for equal records; it falls so slowly that it
    has no integral. "gaussian": exp(−r²/2); "laplacian": exp(−r). The integral of these in the columns' units is
    `integral`; a mean kernel value divided by it is a density. Source: race §2.3.
    """

    name: str
    power: int
    spans: tuple[float, ...]
    integral: float = 1.0

    def __call__(self, squares: Floats) -> Floats:
        """Kernel values at squared distances."""
        if self.name == GAUSSIAN:
            return np.exp(-0.5 * squares)
        if self.name == LAPLACIAN:
            return np.exp(-np.sqrt(squares))
        return Euclidean(1.0, self.power).kernel(np.sqrt(squares))

    def same(self, other: Radial) -> bool:
        alike = (self.name, self.power, len(self.spans)) == (other.name, other.power, len(other.spans))
        return alike and all(isclose(*pair, rel_tol=1e-6) for pair in zip(self.spans, other.spans, strict=True))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"spans": list(self.spans)}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Radial:
        name, power, spans = facts["name"], facts["power"], tuple(facts["spans"])
        positive = all(type(number) in (int, float) and 0 < number < inf for number in (*spans, facts["integral"]))
        if name not in NAMES or type(power) is not int or power < 1 or not spans or not positive:
            raise ValueError("kernel")
        return cls(name, power, tuple(float(span) for span in spans), float(facts["integral"]))


def euclidean(schema: Schema, columns: Sequence[str], family: Euclidean) -> Radial:
    """The kernel of a hash on these columns."""
    return Radial(EUCLIDEAN, family.power, tuple(bandwidth_spans(columns, family, schema).values()))


def named(schema: Schema, columns: Sequence[str], name: str, bandwidth: Bandwidth) -> Radial:
    """A kernel by its name. The bandwidth is one number in widths of the declared bounds, or one for each column in its
    units (seconds for dates).
    """
    if name not in NAMES:
        raise QueryError(
            f"kernel must be one of {', '.join(NAMES)} or a hash such as Euclidean(0.1), got {name!r} instead"
        )
    if isinstance(bandwidth, Mapping):
        for column in columns:
            if column not in bandwidth:
                raise QueryError(f"bandwidth lacks column '{column}'", f"give {', '.join(columns)}")
        spans = tuple(units_wide(schema, column) / _checked(bandwidth[column]) for column in columns)
    else:
        spans = (1.0 / _checked(bandwidth),) * len(columns)
    if name == EUCLIDEAN:
        return Radial(EUCLIDEAN, 1, spans)
    widths = [_width(schema, column) / span for column, span in zip(columns, spans, strict=True)]
    dimension = len(columns)
    if name == GAUSSIAN:
        unit = (2 * pi) ** (dimension / 2)
    else:  # the surface of the unit sphere times the integral of r^(d − 1)·exp(−r)
        unit = 2 * pi ** (dimension / 2) / gamma(dimension / 2) * factorial(dimension - 1)
    return Radial(name, 1, spans, prod(widths) * unit)


def units_wide(schema: Schema, name: str) -> float:
    """Width of a column's bounds in its units (seconds for dates)."""
    column = schema.column(name)
    if column.scale is not None:
        raise QueryError(
            f"column '{name}' is on a {column.scale} scale, where a bandwidth in its units means nothing",
            "give the bandwidth as a number, in widths of the bounds",
        )
    return _width(schema, name)


def _width(schema: Schema, name: str) -> float:
    """As `units_wide`, but on the transformed scale of a transformed column."""
    column = schema.column(name)
    low, high = column.scaled(column.values_of(np.array([LOWEST, HIGHEST])))
    return float(high - low) / column.bandwidth_unit


def _checked(bandwidth: object) -> float:
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, Real) or not 0 < float(bandwidth) < 1e15:
        raise QueryError(f"bandwidth must be a number above 0, got {bandwidth!r} instead")
    return float(bandwidth)
