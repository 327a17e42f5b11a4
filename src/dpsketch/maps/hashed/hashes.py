"""Families of locality-sensitive hashes: the collision probability of two records is a kernel.

Each class is a public description of plain values; `maps.hashed.race` draws the hash functions and evaluates them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns, check_whole
from dpsketch.numerics.arrays import Floats

MOST_FACTORS = 16


class HashFamily(ABC):
    """Public description of a hash family."""

    family: ClassVar[str]

    @property
    @abstractmethod
    def hashes(self) -> int:
        """Number of projections or permutations per row of the table."""

    def to_dict(self) -> dict[str, Any]:
        parameters: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {"family": self.family} | parameters


@dataclass(frozen=True)
class Binned(HashFamily):
    """Bins of `power` concatenated random projections, each of width `bandwidth`.

    The bandwidth is in widths of the declared bounds if `scaled`, else in the columns' own units. Two different labels
    are one width, or one unit, apart.
    """

    bandwidth: float = 0.1
    power: int = 1
    scaled: bool = True

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_whole(name, "power", self.power, 1, 64)
        if isinstance(self.bandwidth, bool) or not isinstance(self.bandwidth, Real) or not 0 < self.bandwidth < 1e15:
            raise RecipeError(f"{name}: bandwidth must be a number above 0, got {self.bandwidth!r} instead")
        if not isinstance(self.scaled, bool):
            raise RecipeError(f"{name}: scaled must be true or false, got {self.scaled!r} instead")
        object.__setattr__(self, "bandwidth", float(self.bandwidth))

    @property
    def hashes(self) -> int:
        return self.power

    def kernel(self, distance: Floats) -> Floats:
        """Probability that two points at this distance collide in one row of the table."""
        ratio = self.bandwidth / np.maximum(np.asarray(distance, np.float64), 1e-9 * self.bandwidth)
        return self.same_bin(ratio) ** self.power

    @abstractmethod
    def same_bin(self, ratio: Floats) -> Floats:
        """Probability that one projection falls into the same bin, for bins of this many distances."""


@dataclass(frozen=True)
class Euclidean(Binned):
    """Bins of `power` concatenated Gaussian projections. The kernel decreases with Euclidean distance.

    A bin has width `bandwidth`: in widths of the declared bounds if `scaled`, else in the columns' own units. Source:
    race §2.3 (p-stable hashes).
    """

    family: ClassVar[str] = "euclidean"

    def same_bin(self, ratio: Floats) -> Floats:
        from scipy.special import ndtr

        return np.asarray(2 * ndtr(ratio) - 1 - np.sqrt(2 / np.pi) / ratio * -np.expm1(-0.5 * ratio**2))


@dataclass(frozen=True)
class Manhattan(Binned):
    """Bins of `power` concatenated Cauchy projections. The kernel decreases with the sum of the columns' distances.

    The sum is of distances in widths of the bounds if `scaled`, else in the columns' own units. The kernel has a
    sharper peak and a heavier tail than `Euclidean`; with power=8 it is within 0.05 of a Laplace kernel of the
    distance. Source: race §2.3 (p-stable hashes, p = 1).
    """

    family: ClassVar[str] = "manhattan"

    def same_bin(self, ratio: Floats) -> Floats:
        return np.asarray(2 * np.arctan(ratio) - np.log1p(ratio**2) / ratio) / np.pi


@dataclass(frozen=True)
class Hamming(HashFamily):
    """The values of `power` random columns, drawn with replacement. The kernel is the share of equal columns to the
    power `power`.

    Values are equal if their codes are. A missing cell equals missing cells alone. Source: bit sampling, Indyk and
    Motwani 1998.
    """

    power: int = 1

    family: ClassVar[str] = "hamming"

    def __post_init__(self) -> None:
        check_whole("Hamming", "power", self.power, 1, 64)

    @property
    def hashes(self) -> int:
        return self.power

    def kernel(self, share: Floats) -> Floats:
        """Probability that two records collide, given the share of columns in which they are equal."""
        return np.asarray(share, np.float64) ** self.power


@dataclass(frozen=True)
class SignedProjection(HashFamily):
    """Signs of `bits` random projections about the midpoint of the bounds. The kernel decreases with the angle.

    Source: race §2.3 (signed random projections).
    """

    bits: int = 8

    family: ClassVar[str] = "signed_projection"

    def __post_init__(self) -> None:
        check_whole("SignedProjection", "bits", self.bits, 1, 30)

    @property
    def hashes(self) -> int:
        return self.bits

    def kernel(self, angle: Floats) -> Floats:
        """Probability that two points at this angle (radians) collide."""
        return (1 - np.asarray(angle, np.float64) / math.pi) ** self.bits


@dataclass(frozen=True)
class InnerProduct(HashFamily):
    """Signed projections of records and queries, completed to equal length in different coordinates.

    The kernel (1 − arccos(x·q / radius²)/π)^bits grows with the inner product itself, not with the angle. Records and
    queries are clipped to the ball of `radius`, in half-widths of the bounds. Source: race §4.
    """

    bits: int = 4
    radius: float = 1.0

    family: ClassVar[str] = "inner_product"

    def __post_init__(self) -> None:
        check_whole("InnerProduct", "bits", self.bits, 1, 30)
        if isinstance(self.radius, bool) or not isinstance(self.radius, Real) or not 0.01 <= self.radius <= 1:
            raise RecipeError(f"InnerProduct: radius must be a number from 0.01 to 1, got {self.radius!r} instead")
        object.__setattr__(self, "radius", float(self.radius))

    @property
    def hashes(self) -> int:
        return self.bits

    def kernel(self, product: Floats) -> Floats:
        """Probability that a record and a query collide, given their inner product divided by radius²."""
        return (1 - np.arccos(np.clip(product, -1, 1)) / math.pi) ** self.bits


@dataclass(frozen=True)
class MinHash(HashFamily):
    """The minimum of a random permutation of a set's ids. The kernel is the Jaccard similarity to the power `power`.

    Two empty sets always collide. Source: race §2.3 (MinHash).
    """

    power: int = 1

    family: ClassVar[str] = "minhash"

    def __post_init__(self) -> None:
        check_whole("MinHash", "power", self.power, 1, 64)

    @property
    def hashes(self) -> int:
        return self.power

    def kernel(self, similarity: Floats) -> Floats:
        return np.asarray(similarity, np.float64) ** self.power


@dataclass(frozen=True)
class Factor:
    """One family on some columns."""

    hash: HashFamily
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.hash, HashFamily) or isinstance(self.hash, Product):
            raise RecipeError(f"Factor: hash must be a family such as Euclidean(), got {self.hash!r} instead")
        columns = check_columns("Factor", self.columns)
        if columns is None:
            raise RecipeError("Factor: columns must name at least one column, each once")
        object.__setattr__(self, "columns", columns)

    def to_dict(self) -> dict[str, Any]:
        return {"hash": self.hash.to_dict(), "columns": list(self.columns)}


@dataclass(frozen=True)
class Product(HashFamily):
    """Several families on groups of columns. Two records collide if they collide in all, so the kernels multiply."""

    factors: tuple[Factor, ...]

    family: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        if not isinstance(self.factors, list | tuple) or not all(isinstance(f, Factor) for f in self.factors):
            raise RecipeError("Product: factors must be a list of Factor(hash, columns)")
        if not 1 <= len(self.factors) <= MOST_FACTORS:
            raise RecipeError(f"Product: from 1 to {MOST_FACTORS} factors, got {len(self.factors)} instead")
        object.__setattr__(self, "factors", tuple(self.factors))

    @property
    def hashes(self) -> int:
        return sum(factor.hash.hashes for factor in self.factors)

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.family, "factors": [factor.to_dict() for factor in self.factors]}


FAMILIES: dict[str, type[HashFamily]] = {
    kind.family: kind for kind in (Euclidean, Manhattan, SignedProjection, InnerProduct, Hamming, MinHash, Product)
}


def hash_from_dict(facts: object) -> HashFamily:
    """Inverse of `HashFamily.to_dict`. Each family checks its own parameters."""
    if isinstance(facts, HashFamily):
        return facts
    if not isinstance(facts, Mapping):
        raise RecipeError(
            f"hash must be a family such as Euclidean(), got {facts!r} instead",
            'in a file: hash = {family = "euclidean"}',
        )
    values = dict(facts)
    name = values.pop("family", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise RecipeError(f"there is no hash family called {name!r}", f"the families are {', '.join(FAMILIES)}")
    kind = FAMILIES[name]
    if kind is Product:
        factors = values.get("factors")
        if not isinstance(factors, list | tuple) or not all(isinstance(factor, Mapping) for factor in factors):
            raise RecipeError("hash product: factors must be a list of hash and columns")
        values["factors"] = tuple(_factor(factor) for factor in factors)
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if set(values) - known or (kind is Product and set(values) != known):
        raise RecipeError(f"hash {name}: wrong parameters", f"its parameters are {', '.join(sorted(known))}")
    return kind(**values)


def _factor(facts: Mapping[str, Any]) -> Factor:
    if set(facts) != {"hash", "columns"}:
        raise RecipeError("hash product: every factor needs hash and columns, nothing else")
    inner = hash_from_dict(facts["hash"])
    return Factor(inner, facts["columns"])
