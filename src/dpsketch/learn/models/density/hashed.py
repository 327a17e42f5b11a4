"""Kernel densities from hashed counters: a RACE part of a release, with the kernel of its hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.control_variate import Control, control_of
from dpsketch.learn.estimators.kernel_sums import KernelSums
from dpsketch.learn.saved import Arrays, Facts, Saved, counters, read_map, real
from dpsketch.maps.base import Sums
from dpsketch.maps.hashed.hashes import HashFamily, Product
from dpsketch.maps.hashed.race import BoundRace, Race
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.recipe.tasks.density_task import ROW_ERROR, TYPICAL_DENSITY
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsketch.learn.view import View

_COMPARED: Annotated[int, UNRECORDED] = 256  # simulated records at which errors are compared


class Hashed:
    """The counters of one RACE part to which every record adds one."""

    def __init__(
        self, schema: Schema, race: BoundRace, sums: Sums, variance: float, control: Control | None = None
    ) -> None:
        self.schema, self.race, self.sums, self.variance, self.control = schema, race, sums, variance, control
        self._sums = KernelSums(schema, race, sums, variance, control)
        self._plain = KernelSums(schema, race, sums, variance)
        self.columns = self._sums.columns

    @property
    def hash(self) -> HashFamily:
        hashes = self.race.factors
        return hashes[0].hash if len(hashes) == 1 else Product(hashes)

    @property
    def embedded(self) -> bool:
        """Whether outputs of an embedding are hashed in place of the columns."""
        return getattr(self.race.description, "embedding", None) is not None

    def at(self, points: Any, method: str = "mean") -> Answer:
        """Sums of the kernel over the records, by the mean over rows of counters or by the median of means."""
        return self._sums.at(points, method)

    def plain_at(self, points: Any) -> Floats:
        """Sums without correction: ten times as fast."""
        return np.asarray(self._plain.at(points).value)

    def mean_logs(self, points: Any) -> Floats:
        """Means over the rows of the table of log(max(c, 0) + a) for a point's counters c.

        a is 1 plus the standard deviation of the noise: negative counts are impossible, and noise alone should not
        decide. Source: RESEARCH "Anomaly scores".
        """
        return self.mean_logs_of(self.records(points), self.sums)

    def mean_logs_of(self, records: Records, sums: Sums) -> Floats:
        """`mean_logs` for encoded points and any counters of this map."""
        noise = 1.0 + np.sqrt(self.variance)
        found = np.empty(len(records))
        step = max(1, (1 << 22) // self.race.rows)
        for start in range(0, len(records), step):
            part = _part(records, start, start + step)
            index, _ = self.race.entries(part, self.race.rows)
            counters = np.maximum(sums[index], 0).astype(np.float64)
            found[start : start + step] = np.log(counters + noise).mean(axis=1)
        return found

    def records(self, points: Any) -> Records:
        """Points as the map reads them."""
        return self._sums.records(points)

    @property
    def least_error(self) -> float:
        """The smallest standard error of a sum: that of the noise."""
        return float(np.sqrt(self.variance / self.race.rows))

    @property
    def typical_error(self) -> float:
        """Predicted relative error of a sum at a typical record."""
        records = TYPICAL_DENSITY * max(self._sums.total, 1.0)
        return float(np.hypot(ROW_ERROR / np.sqrt(self.race.rows), self.least_error / records))

    def to_saved(self) -> Saved:
        facts = {"schema": self.schema.to_dict(), "map": self.race.description.to_dict(), "variance": self.variance}
        arrays = {"sums": np.asarray(self.sums)}
        if self.control is None:
            return facts, arrays
        more, others = self.control.to_saved()
        return facts | {"control": more}, arrays | others

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> Hashed:
        schema = Schema.from_dict(facts["schema"])
        race = read_map(facts["map"], schema, Race, arrays["sums"]).bind(schema)
        if not race.unit_increments:
            raise ValueError("map")
        control = None
        if "control" in facts:
            control = Control.from_saved(schema, race, facts["control"], arrays)
        return cls(schema, race, counters(arrays, "sums", race.size), real(facts["variance"], 0), control)


def hashed_counters(released: ReleasedSketch, columns: tuple[str, ...] | None = None) -> list[Hashed]:
    """RACE parts without weights or groups, of these columns if any are named."""
    return [
        Hashed(released.schema, race, part.sums, part.noise_variance)
        for part, race in released.parts_with(BoundRace)
        if race.unit_increments and (columns is None or set(race.columns) == set(columns))
    ]


def corrected(hashed: Hashed, view: View) -> Hashed:
    """Counters with a control variate of simulated records, if the release can simulate them and it reduces errors
    there.
    """
    control = control_of(view.released, hashed.race, float(view.rows_in_sums().value))
    if control is None:
        return hashed
    found = Hashed(hashed.schema, hashed.race, hashed.sums, hashed.variance, control)
    points = control.points(_COMPARED)
    errors = [float(np.mean(each.at(points).stderr)) for each in (hashed, found)]
    return found if errors[1] < errors[0] else hashed


def made_up_records(view: View, columns: Sequence[str], count: int, seed: int) -> pa.Table | None:
    """Rows of `view.sample` with all of these columns, if the release has more than counters to draw them from."""
    others = [part.map for part in view.released.parts if not part.map.counter_table and not part.map.only_counts]
    if not others or not view.knows(columns):
        return None
    drawn = view.sample(count, seed)
    return drawn if set(columns) <= set(drawn.column_names) else None


def _part(records: Records, start: int, stop: int) -> Records:
    return records.take(np.arange(start, min(stop, len(records))))
