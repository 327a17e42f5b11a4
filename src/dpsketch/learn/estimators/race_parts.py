"""The parts of a release with hashed counters, by their index and group."""

from __future__ import annotations

from typing import Any

from dpsketch.encoding.frames import read_column
from dpsketch.errors import QueryError
from dpsketch.learn.estimators.kernel_sums import KernelSums
from dpsketch.learn.shared import Memo
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch


class RaceParts:
    """Kernel sums of each RACE part and group, made once."""

    def __init__(self, released: ReleasedSketch) -> None:
        self._released, self._schema = released, released.schema
        self._kernels = Memo(self._kernels_of)

    @property
    def _races(self) -> dict[int, tuple[ReleasedPart, BoundRace]]:
        """RACE parts by their index, including those with groups."""
        parts = self._released.parts
        return {parts.index(part): (part, race) for part, race in self._released.parts_with(BoundRace, grouped=True)}

    def kernel_sums(self, index: int | None, group: Any) -> KernelSums:
        """Kernel sums from the part with this index, needed if there are several, and one of its groups."""
        indices = list(self._races)
        if not indices:
            raise QueryError("this release holds no RACE part", "add Part(Race(), share=…) to the recipe")
        if (index is None and len(indices) > 1) or (index is not None and index not in indices):
            raise QueryError(
                f"part {index} is not a RACE part" if index is not None else "this release holds several RACE parts",
                f"pass part=…, one of {', '.join(map(str, indices))}",
            )
        index = indices[0] if index is None else index
        feature_map = self._released.parts[index].map
        if feature_map.grouped_by is None:
            if group is not None:
                raise QueryError("this part has no groups", "leave out group, or release Grouped(Race(), column)")
            return self._kernels((index, 0))
        if group is None:
            raise QueryError(
                f"this part has counters for each label of '{feature_map.grouped_by}'", "pass group='label'"
            )
        codes = read_column(self._schema.column(feature_map.grouped_by), [group])
        return self._kernels((index, int(feature_map.group_of(codes)[0])))

    def _kernels_of(self, key: tuple[int, int]) -> KernelSums:
        """Kernel sums of a part, by its index, and one of its groups, by its number."""
        (part, race), group = self._races[key[0]], key[1]
        sums = part.sums[group * race.size : (group + 1) * race.size]
        return KernelSums(self._schema, race, sums, part.noise_variance)
