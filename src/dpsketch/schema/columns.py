"""Kinds of columns: their values, levels and codes.

Every scalar column has `levels` distinct values, spread evenly over the codes -32767 .. 32767; -32768 means missing.
One scale for all kinds lets every feature map work on plain int16 codes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.derived import Derived

LOWEST, HIGHEST, MISSING = -32767, 32767, -32768
SPAN = HIGHEST - LOWEST  # 65534 steps, 65535 levels
OTHER = "other"
TRANSFORMS = ("log", "asinh")
SECOND, DAY = 1e6, 86_400e6  # microseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Column:
    """One declared column. `levels` distinct values, all public.

    What the values of each kind mean is stated here, once:
    - `numeric`: they have an order and distances, and codes follow it;
    - `arithmetic`: they have sums and products, which dates have not;
    - `averaged`: they have a mean, as numbers, dates, or 0 and 1;
    - `dates`: they are moments, in microseconds since 1970;
    - `unit`: what models measure them in, in terms of `values_of`; days for dates;
    - `bandwidth_unit`: what the bandwidths of kernels and hashes are in, likewise; seconds for dates.
    """

    name: str
    derived: Derived | None = field(default=None, kw_only=True)  # if it is computed from other cells of the row
    kind: ClassVar[str] = ""
    numeric: ClassVar[bool] = False
    arithmetic: ClassVar[bool] = False
    averaged: ClassVar[bool] = False
    dates: ClassVar[bool] = False
    unit: ClassVar[float] = 1.0
    bandwidth_unit: ClassVar[float] = 1.0

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the table that this one is computed from; none if it is stored itself."""
        return () if self.derived is None or self.derived.stored else self.derived.sources

    def as_stored(self) -> Column:
        """The same column of a table that holds it."""
        return self if self.derived is None else replace(self, derived=replace(self.derived, stored=True))

    @property
    def scale(self) -> str | None:
        """The transform after which levels are equidistant, one of TRANSFORMS; None if they are so by themselves."""
        return None

    def scaled(self, values: Floats) -> Floats:
        """Values after that transform."""
        return values if self.scale is None else np.log(values) if self.scale == "log" else np.arcsinh(values)

    def unscaled(self, scaled: Floats) -> Floats:
        """Inverse of `scaled`."""
        return scaled if self.scale is None else np.exp(scaled) if self.scale == "log" else np.sinh(scaled)

    def unscaled_slopes(self, scaled: Floats) -> Floats:
        """Derivatives of `unscaled`."""
        if self.scale is None:
            return np.ones_like(scaled)
        return np.exp(scaled) if self.scale == "log" else np.cosh(scaled)

    @property
    def levels(self) -> int:
        raise TypeError(f"a {self.kind} column has no levels")

    def codes_of(self, levels: NDArray[np.int64]) -> Codes:
        """Codes of the levels 0 .. levels-1; a negative level is missing. Exact integers."""
        if self.levels == SPAN + 1:
            codes = (levels + LOWEST).astype(np.int16)
            codes[levels < 0] = MISSING
            return codes
        return self._codes[levels]

    @cached_property
    def _codes(self) -> Codes:
        """Code of every level. The last entry, at index -1, is missing."""
        steps = max(self.levels - 1, 1)
        levels = np.arange(self.levels, dtype=np.int64)
        return np.append((2 * SPAN * levels + steps) // (2 * steps) + LOWEST, MISSING).astype(np.int16)

    def levels_of(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Inverse of `codes_of`. Codes between two levels go to the closer one, missing to -1."""
        steps = max(self.levels - 1, 1)
        shifted = np.asarray(codes).astype(np.int64) - LOWEST
        return np.where(shifted < 0, -1, (2 * shifted * steps + SPAN) // (2 * SPAN))

    def values_of(self, codes: NDArray[Any]) -> Floats:
        """Numbers in the user's units (for category and boolean, the level); missing is NaN."""
        levels = self.levels_of(codes)
        return np.where(levels < 0, np.nan, self._values(levels.astype(np.float64)))

    def _values(self, levels: Floats) -> Floats:
        return levels

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} | ({} if self.derived is None else self.derived.to_dict())


@dataclass(frozen=True)
class Number(Column):
    """A real number in [lower, upper], clamped; `missing` replaces unreadable cells if given."""

    lower: float = 0.0
    upper: float = 1.0
    transform: str | None = None
    missing: float | None = None
    kind: ClassVar[str] = "number"
    numeric: ClassVar[bool] = True
    arithmetic: ClassVar[bool] = True
    averaged: ClassVar[bool] = True

    @property
    def scale(self) -> str | None:
        return self.transform

    @property
    def levels(self) -> int:
        return SPAN + 1

    def _values(self, levels: Floats) -> Floats:
        share = levels / SPAN
        if self.transform == "log":
            low, high = math.log(self.lower), math.log(self.upper)
            return np.exp(low + share * (high - low))
        if self.transform == "asinh":
            low, high = math.asinh(self.lower), math.asinh(self.upper)
            return np.sinh(low + share * (high - low))
        return self.lower + share * (self.upper - self.lower)

    def to_dict(self) -> dict[str, Any]:
        facts = {"lower": self.lower, "upper": self.upper, "transform": self.transform, "missing": self.missing}
        return super().to_dict() | {key: fact for key, fact in facts.items() if fact is not None}


@dataclass(frozen=True)
class Integer(Column):
    """A whole number in [lower, upper]; exact up to 65535 distinct values, else rounded to the nearest of 65535."""

    lower: int = 0
    upper: int = 1
    missing: int | None = None
    kind: ClassVar[str] = "integer"
    numeric: ClassVar[bool] = True
    arithmetic: ClassVar[bool] = True
    averaged: ClassVar[bool] = True

    @property
    def levels(self) -> int:
        return min(self.upper - self.lower, SPAN) + 1

    def _values(self, levels: Floats) -> Floats:
        return np.rint(self.lower + levels * ((self.upper - self.lower) / (self.levels - 1)))

    def to_dict(self) -> dict[str, Any]:
        facts = {"lower": self.lower, "upper": self.upper, "missing": self.missing}
        return super().to_dict() | {key: fact for key, fact in facts.items() if fact is not None}


@dataclass(frozen=True)
class Code(Integer):
    """A whole number that names something, such as a postal code: it has an order, but neither sums nor a mean."""

    kind: ClassVar[str] = "code"
    arithmetic: ClassVar[bool] = False
    averaged: ClassVar[bool] = False


@dataclass(frozen=True)
class Datetime(Column):
    """A moment in [lower, upper]; values are microseconds since 1970 in UTC."""

    lower: datetime = _EPOCH
    upper: datetime = _EPOCH
    kind: ClassVar[str] = "datetime"
    numeric: ClassVar[bool] = True
    averaged: ClassVar[bool] = True
    dates: ClassVar[bool] = True
    unit: ClassVar[float] = DAY
    bandwidth_unit: ClassVar[float] = SECOND

    @property
    def levels(self) -> int:
        return SPAN + 1

    @property
    def bounds(self) -> tuple[float, float]:
        return float(microseconds(self.lower)), float(microseconds(self.upper))

    def _values(self, levels: Floats) -> Floats:
        low, high = self.bounds
        return low + levels / SPAN * (high - low)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"lower": self.lower.isoformat(), "upper": self.upper.isoformat()}


@dataclass(frozen=True)
class Category(Column):
    """One of the listed values; anything else falls into `other`. `ordered` declares whether the list has an order."""

    values: tuple[str | int, ...] = ()
    ordered: bool | None = None
    kind: ClassVar[str] = "category"

    @property
    def labels(self) -> tuple[str, ...]:
        listed = tuple(str(value) for value in self.values)
        return listed if OTHER in listed else (*listed, OTHER)

    @property
    def levels(self) -> int:
        return len(self.labels)

    @property
    def in_order(self) -> bool:
        """Whether labels are listed in an order that means something. If that is not declared: an alphabetical list is
        not, unless all labels hold digits, or are letters that follow each other, such as grades.
        """
        if self.ordered is not None:
            return self.ordered
        listed = [str(value).casefold() for value in self.values]
        numbers = all(any(letter.isdigit() for letter in label) for label in listed)
        letters = all(len(label) == 1 for label in listed) and all(
            ord(two) - ord(one) == 1 for one, two in pairwise(listed)
        )
        return listed != sorted(listed) or numbers or letters

    def to_dict(self) -> dict[str, Any]:
        declared = {} if self.ordered is None else {"ordered": self.ordered}
        return super().to_dict() | {"values": list(self.values)} | declared


@dataclass(frozen=True)
class Boolean(Column):
    """True or false."""

    kind: ClassVar[str] = "boolean"
    averaged: ClassVar[bool] = True
    labels: ClassVar[tuple[str, str]] = ("false", "true")

    @property
    def levels(self) -> int:
        return 2


@dataclass(frozen=True)
class IdSet(Column):
    """A set of ids 0 .. universe-1; others become the one overflow id `universe`."""

    universe: int = 1
    kind: ClassVar[str] = "set"

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"universe": self.universe}


def microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def as_moment(value: object) -> datetime | None:
    """An ISO text, a date or a datetime as a moment in UTC; naive ones are interpreted as UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        return None
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        return None
