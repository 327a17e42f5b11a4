"""Rows from hashed counters by rejection sampling: proposals are accepted in proportion to their kernel sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np

from dpsketch.denoise.column_fit import fit_marginal
from dpsketch.encoding.records import Records
from dpsketch.errors import QueryError
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.release_noise import ReleaseNoise, blockwise_total
from dpsketch.learn.points import Frame
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.maps.tables.cells import Cells
from dpsketch.maps.tables.column_summaries import column_summaries
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import MISSING, IdSet
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

ROUND, MOST_ROUNDS = 1 << 16, 64
GROUPS: Annotated[int, UNRECORDED] = 32  # of rows for the median of means: shared counters bias a mean upwards
FLOOR: Annotated[float, UNRECORDED] = 2.0  # standard deviations of the noise, subtracted from a kernel sum
FEW_COLUMNS: Annotated[int, UNRECORDED] = 3
FEW_HASHES: Annotated[int, UNRECORDED] = 3
TOP: Annotated[float, UNRECORDED] = 1e-4  # share of the proposals that may exceed the envelope


class KernelRows:
    """Rows whose density is the release's kernel density estimate, smoothed by the width of the kernel.

    Proposals are uniform between the bounds, or follow the noisy marginals of columns that have one. A kernel sum is
    the median over groups of rows of counters, minus FLOOR standard deviations of its noise. After MOST_ROUNDS rounds
    rows repeat. Source: race sec. 4 mentions sampling; the algorithm is ours.
    """

    def __init__(self, released: ReleasedSketch, noise: ReleaseNoise) -> None:
        self._schema = released.schema
        self._part, self._race = _race_part(released)
        self.columns = self._race.columns
        self._accident = 0.0
        if not self._race.direct:
            self._accident = blockwise_total(self._part.sums) / self._race.rows / self._race.width
        self._proposals = [_Proposal(released, noise, name) for name in self.columns]
        self._floor = FLOOR * np.sqrt(self._part.noise_variance / self._race.rows)
        self._envelope: float | None = None

    def draw(self, rows: int, seed: int) -> Iterator[Frame]:
        if self._envelope is None:
            weights = self._weights(*self._proposed(ROUND, np.random.default_rng(0)))
            self._envelope = float(np.quantile(weights, 1 - TOP))
        if not self._envelope > 0:
            raise QueryError("no kernel sum stands out from the noise", "release with a larger epsilon")
        generator = np.random.default_rng([seed, 21])
        kept: list[list[Codes]] = []
        accepted = 0
        for _ in range(MOST_ROUNDS):
            codes, shares = self._proposed(ROUND, generator)
            keep = generator.random(ROUND) * self._envelope < self._weights(codes, shares)
            kept.append([own[keep] for own in codes])
            accepted += int(keep.sum())
            if accepted >= rows:
                break
        every = [np.concatenate([block[index] for block in kept]) for index in range(len(self.columns))]
        if not accepted:
            raise QueryError("no proposal was kept", "release with a larger epsilon or a wider bandwidth")
        chosen = np.arange(rows) if accepted >= rows else generator.integers(0, accepted, rows)
        yield Frame(self._schema, {name: own[chosen] for name, own in zip(self.columns, every, strict=True)})

    def _proposed(self, rows: int, generator: np.random.Generator) -> tuple[list[Codes], Floats]:
        """Codes of the columns, and the proposal density of each row up to a common factor."""
        drawn = [proposal.draw(rows, generator) for proposal in self._proposals]
        return [codes for codes, _ in drawn], np.prod([share for _, share in drawn], axis=0)

    def _weights(self, codes: list[Codes], shares: Floats) -> Floats:
        """Kernel sums divided by the proposal density, truncated at zero."""
        every = np.full((len(self._schema.scalars), len(shares)), MISSING, np.int16)
        for name, own in zip(self.columns, codes, strict=True):
            every[self._schema.index(name)] = own
        groups = min(GROUPS, self._race.rows)
        totals, _ = self._race.totals(Records(every), self._part.sums, groups)
        sizes = np.bincount(np.arange(self._race.rows) * groups // self._race.rows)
        kernel_sums = np.median(totals / sizes[:, None], axis=0) - self._accident
        return np.maximum(kernel_sums - self._floor, 0.0) / shares


class _Proposal:
    """Proposals of one column, never missing: hashes do not distinguish a missing cell from the middle."""

    def __init__(self, released: ReleasedSketch, noise: ReleaseNoise, name: str) -> None:
        self._column = released.schema.column(name)
        self._cells: Cells | None = None
        for part, marginals in released.parts_with(OneWayMap, [name]):  # type: ignore[type-abstract]
            index = marginals.columns.index(name)
            self._cells = marginals.cells[index]
            summary = column_summaries(marginals, part.sums, part.noise_variance, noise.totals)[index]
            shares = fit_marginal(summary, float(noise.rows().value)).shares[:-1]
            self._shares = shares / shares.sum()

    def draw(self, rows: int, generator: np.random.Generator) -> tuple[Codes, Floats]:
        """Codes, and the probability of each."""
        column = self._column
        if self._cells is None:
            return column.codes_of(generator.integers(0, column.levels, rows)), np.ones(rows)
        index = generator.choice(len(self._shares), rows, p=self._shares)
        codes = codes_in_cells(self._cells, index, generator.random(rows))
        return codes, (self._shares / np.diff(self._cells.first_levels))[index]


def narrow_kernel(released: ReleasedSketch, part: ReleasedPart) -> bool:
    """Whether a part's kernel is so narrow that its density is more accurate than weights on points.

    This holds from three columns and three Euclidean hashes on. Source: measurements in docs/synthetic.md.
    """
    for own, race in released.parts_with(BoundRace):
        if own is part and race.unit_increments and race.euclidean is not None:
            return race.euclidean.power >= FEW_HASHES and len(race.columns) >= FEW_COLUMNS
    return False


def _race_part(released: ReleasedSketch) -> tuple[ReleasedPart, BoundRace]:
    for part, race in released.parts_with(BoundRace):
        columns = [released.schema.column(name) for name in race.columns]
        if race.unit_increments and not any(isinstance(column, IdSet) for column in columns):
            return part, race
    raise QueryError(
        "this release holds no RACE part of numbers and labels to draw from", "add Part(Race(…), share=…) to the recipe"
    )
