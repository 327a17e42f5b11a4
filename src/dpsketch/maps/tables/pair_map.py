"""The common base of pair tables and contrasts: pairs of columns, and the marginals that go with them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from dpsketch.maps.base import BoundMap, Sums
from dpsketch.maps.tables.cells import Cells
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.numerics.arrays import Floats

Groups = tuple[tuple[int, ...], ...]


class PairMap(BoundMap):
    """A map with a table, or a single number, for each of `pairs`, over groups of the cells of its columns."""

    pairs: tuple[tuple[str, str], ...]
    cells: tuple[Cells, ...]
    bins: int
    halved: bool = False  # whether a pair has a contrast instead of a table
    separates_points = True
    sparse = True

    @property
    @abstractmethod
    def groups_of_cells(self) -> Groups:
        """For each column, the group of each of its cells."""

    @abstractmethod
    def pair_table(self, sums: Sums, pair: int) -> Floats:
        """The table of counts of a pair, given by its index, from the sums; its contrast as a table of one cell."""

    def pair_weight(self, pair: int) -> int:
        """What a record adds to the table of a pair: the noise of its counts is that of sums divided by this."""
        return 1

    def marginals_in(self, maps: Sequence[BoundMap]) -> tuple[int, OneWayMap] | None:
        """The first marginals among `maps` that have the cells of these pairs, or cells that those divide, with their
        index.
        """
        for index, bound in enumerate(maps):
            if not isinstance(bound, OneWayMap) or not set(self.columns) <= set(bound.columns):
                continue
            if self.bins % bound.bins == 0:
                return index, bound
        return None

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        return self.marginals_in(maps) is not None

    def noise_coordinates(self, maps: Sequence[BoundMap]) -> int:
        """Zero with marginals: the effect of the noise on the joint fit is estimated by refits to new noise."""
        return 0 if self.read_as_tables(maps) else self.size
