"""Simulated records in the counters of a release, as a control variate for the error of the hashes."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dpsketch.denoise.column_fit import fit_marginal
from dpsketch.encoding.records import Records
from dpsketch.learn.estimators.joint.draws import drawn_frame
from dpsketch.learn.estimators.joint.single import independent
from dpsketch.learn.estimators.release_noise import released_totals
from dpsketch.learn.points import Frame
from dpsketch.learn.saved import Arrays, Facts, Saved, real
from dpsketch.maps.base import Sums
from dpsketch.maps.hashed.hashes import Euclidean
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.maps.tables.column_summaries import column_summaries
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import MISSING
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

CORRECTED = ", corrected by simulated records"
DRAWN: Annotated[int, UNRECORDED] = 8192  # simulated records: about eighty in a bin with a share of 1 %
MOST_COUNTERS = 1 << 24  # larger tables are read from the file, not copied
_STEPS = 4096  # in the table of kernel values
_AT_ONCE = 1 << 20  # distances


class Control:
    """Simulated records in the same counters, each with the weight of `scale` records of the release.

    Their kernel sums are known, and so are the errors of their counters. The difference between the released counters
    and theirs varies less between hashes the more similar the simulated records are to the actual ones. It is unbiased
    for any simulated records.
    """

    how = CORRECTED

    def __init__(self, schema: Schema, race: BoundRace, codes: Codes, scale: float) -> None:
        family = race.euclidean
        assert family is not None
        self._schema, self._race, self._codes, self.scale = schema, race, codes, scale
        self.columns = race.factors[0].columns
        self._power = family.power
        own = np.zeros(race.size, np.int64)
        race.accumulate(Records(self._everything), own)
        self.counters: Sums = np.rint(own * scale).astype(np.int64)

    def at(self, records: Records) -> Floats:
        """Kernel sums over the simulated records, times `scale`."""
        points = self._scaled(records.codes)
        totals = np.empty(points.shape[1])
        step = max(1, _AT_ONCE // self._codes.shape[1])
        for start in range(0, len(totals), step):
            part = points[:, start : start + step]
            squares = (part**2).sum(axis=0)[:, None] + self._squares - 2 * (part.T @ self._own)
            totals[start : start + step] = self._values(np.maximum(squares, 0.0)).sum(axis=1)
        return self.scale * totals

    def points(self, count: int) -> dict[str, Any]:
        """The first `count` simulated records, in users' units."""
        frame = Frame(self._schema, dict(zip(self.columns, self._codes[:, :count], strict=True)))
        return {name: frame.cells(name) for name in self.columns}

    def to_saved(self) -> Saved:
        return {"scale": self.scale}, {"control": self._codes}

    @classmethod
    def from_saved(cls, schema: Schema, race: BoundRace, facts: Facts, arrays: Arrays) -> Control:
        codes = np.asarray(arrays["control"])
        if not can_control(race) or codes.dtype != np.int16 or codes.ndim != 2 or len(codes) != len(race.columns):
            raise ValueError("control")
        return cls(schema, race, codes, real(facts["scale"], 0))

    def _scaled(self, codes: Codes) -> Floats:
        """Positions in bandwidths: the hash's kernel is a function of their distances."""
        return self._race.projected[0].positions(codes)

    @property
    def _everything(self) -> Codes:
        """Codes of the simulated records, with missing ones in the columns that are not hashed."""
        codes = np.full((len(self._schema.scalars), self._codes.shape[1]), MISSING, np.int16)
        codes[[self._schema.index(name) for name in self.columns]] = self._codes
        return codes

    @cached_property
    def _own(self) -> Floats:
        return self._scaled(self._everything)

    @cached_property
    def _squares(self) -> Floats:
        return np.asarray((self._own**2).sum(axis=0))

    @cached_property
    def _table(self) -> Floats:
        """Kernel values at even steps of 1/(1 + r), in which they are nearly linear."""
        nearness = np.arange(1, _STEPS + 1) / _STEPS
        return np.concatenate([[0.0], Euclidean(1.0, self._power).kernel(1 / nearness - 1), [1.0]])

    def _values(self, squares: Floats) -> Floats:
        steps = _STEPS / (1 + np.sqrt(squares))
        below = steps.astype(np.int64)
        steps -= below
        low = self._table[below]
        return np.asarray(low + steps * (self._table[below + 1] - low))


def can_control(race: BoundRace) -> bool:
    """Whether the kernel depends on the distance of two records, and there are not too many counters."""
    embedded = getattr(race.description, "embedding", None) is not None
    return race.unit_increments and race.euclidean is not None and not embedded and race.size <= MOST_COUNTERS


def control_of(released: ReleasedSketch, race: BoundRace, rows: float) -> Control | None:
    """Simulate records from the marginals of a release, column by column; None unless all hashed columns have one."""
    if not can_control(race):
        return None
    for part, marginals in released.parts_with(OneWayMap, race.columns):  # type: ignore[type-abstract]
        codes = _drawn(released, part, marginals, race.factors[0].columns, rows)
        return Control(released.schema, race, codes, rows / DRAWN)
    return None


def _drawn(
    released: ReleasedSketch, part: ReleasedPart, marginals: OneWayMap, columns: tuple[str, ...], rows: float
) -> Codes:
    summaries = column_summaries(marginals, part.sums, part.noise_variance, released_totals(released))
    indices = [marginals.columns.index(name) for name in columns]
    products = independent(tuple(fit_marginal(summaries[index], rows) for index in indices))
    cells = [marginals.cells[index] for index in indices]
    frame = drawn_frame(released.schema, cells, products, products.mixture.sample(DRAWN, 0), 0)
    return np.stack([frame.codes(name) for name in columns])
