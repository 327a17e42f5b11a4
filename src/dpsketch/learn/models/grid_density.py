"""Densities from the counters of a grid: the estimators of the density sketch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.models.model import Columns, Model
from dpsketch.learn.population.grid_population import CellModel, CellRows, GridPopulation
from dpsketch.learn.population.grids.grid_cells import GridCells
from dpsketch.learn.population.grids.heap import (
    HEAVIEST,
    capture_ratio,
    captured,
    check_heavy,
    distance,
    number_of_records,
)
from dpsketch.learn.population.grids.heavy_cells import LevelCells
from dpsketch.learn.population.grids.level_counters import GridTable, check_recovery, grid_tables
from dpsketch.learn.saved import Arrays, Facts, Saved, columns_of, counters, finite, integers, real, whole
from dpsketch.maps.registry import map_from_dict
from dpsketch.maps.tables.grid import FINEST, BoundGrid, cells_along
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsketch.learn.view import View

METHODS = ("cells", "heap", "sketch", "normalised")
_MIX = np.uint64(0x9E3779B97F4A7C15)


class GridDensity(Model):
    """The density of the records of a release with a `Grid`: `fit(view)`, `density(X)`, `score_samples(X)`.

    Densities are joint over the grid's columns, per unit of each: a number's own unit, days for dates; labels, booleans
    and missing cells count as one each. Inside a cell the density is constant.

    | method | paper | |
    | --- | --- | --- |
    | "cells" | f_S | heavy cells from coarse to fine, nonnegative, with total one; most accurate for single cells |
    | "heap" | f_S | the `heavy` heaviest cells of one level, as in the paper |
    | "sketch" | f_C | the counter of the point's cell over rows and volume: unbiased, may be negative |
    | "normalised" | f_C* | the same over the sum of the estimates of all cells, instead of the count |

    `level` is the level of all methods but "cells", by default the finest one. `recovery` is the "mean" or the "median"
    of the K rows of counters. Standard errors cover noise and collisions, not the width of the cells. Source: density
    sec. 3 (Density Sketch), Theorems 3 to 5.

    For a heap, `captured_` is the paper's capture ratio, the share of the records in its cells, and `distance_` is
    2(1 − ratio), the integral of |f_C* − f_S|. Where it is large, a larger `heavy` helps. Where noise adds records to
    the heap, its densities are divided by the number of records, and their integral exceeds one.
    Source: density Lemma 1.
    """

    _estimator_type = "density_estimator"

    def __init__(
        self, method: str = "cells", level: int | None = None, recovery: str = "mean", heavy: int = HEAVIEST
    ) -> None:
        self.method, self.level, self.recovery, self.heavy = method, level, recovery, heavy

    def fit(self, view: View) -> GridDensity:
        self._check_view(view)
        self._check()
        tables = grid_tables(view.released)
        table = tables[-1] if self.level is None else _of_level(tables, self.level)
        self._schema, self._columns, self._offsets = view.schema, table.bound.columns, table.bound.offsets
        self.level_ = table.level
        self._table: GridTable | None = None
        if self.method in ("cells", "heap"):
            self._fit_cells(view, table)
        else:
            self._fit_counters(view, table)
        self.statement_ = view.statement
        self._set_features(self._schema, self._columns)
        return self

    def density(self, X: Any) -> Answer:
        """Densities at each row of a mapping or table of columns, or of a matrix with the grid's columns in their
        order.
        """
        codes = self._codes(X)
        value, deviation = self._of_counters(codes) if self._table is not None else self._of_cells(codes)
        return Answer(value, deviation, self.how_)

    def scores(self, X: Any) -> Columns:
        answer = self.density(X)
        return {"density": answer.value, "density_stderr": answer.stderr}

    def score_samples(self, X: Any) -> Floats:
        """Logarithm of the density at each row; minus infinity where it is not positive."""
        value = self.density(X).value
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(value, 0.0))

    def score(self, X: Any) -> float:
        """Sum of `score_samples`, as in scikit-learn."""
        return float(self.score_samples(X).sum())

    def sample(self, n: int, seed: int = 0) -> pa.Table:
        """Draw `n` rows from this density. Those of `view.sample` are more accurate for few columns at a time."""
        from dpsketch.learn.population.sampling import sample

        self._check_fitted()
        if self._table is not None:
            raise QueryError(f'method "{self.method}" is not a distribution over cells', 'fit method="cells" or "heap"')
        return sample(self._schema, CellRows(self._schema, self._model()), n, seed)

    def to_saved(self) -> Saved:
        """What scoring new rows needs: facts for a JSON file, and arrays. Nothing beyond the release."""
        self._check_fitted()
        facts: dict[str, Any] = {
            "parameters": self.get_params() | {"level": None if self.level is None else int(self.level)},
            "schema": self._schema.to_dict(),
            "columns": list(self._columns),
        }
        facts |= {"level": self.level_, "how": self.how_} | ({"offsets": self._offsets} if any(self._offsets) else {})
        if self.method == "heap":
            facts |= {"captured": [self.captured_.value, self.captured_.stderr]}
        if self._table is None:
            arrays: dict[str, NDArray[Any]] = {
                "numbers": self._numbers,
                "levels": self._levels,
                "densities": self._densities,
            }
            return facts, arrays | {"deviations": self._deviations, "elsewhere": np.array([self._elsewhere])}
        table = self._table
        facts |= {"map": table.bound.description.to_dict(), "position": table.position}
        facts |= {"noise_variance": table.noise_variance, "rows": self._rows, "rows_sd": self._rows_sd}
        return facts, {"sums": np.asarray(table.sums)}

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> GridDensity:
        found = cls(**facts["parameters"])
        found._check()
        found._schema = Schema.from_dict(facts["schema"])
        found._columns = columns_of(found._schema, facts["columns"])
        found._offsets = _offsets(facts.get("offsets", [0] * len(found._columns)), len(found._columns))
        found.level_, found.how_ = whole(facts["level"]), str(facts["how"])
        found._table = None
        if found.method in ("cells", "heap"):
            found._restore_cells(facts, arrays)
        else:
            found._restore_counters(facts, arrays)
        found._set_features(found._schema, found._columns)
        return found

    def _restore_cells(self, facts: Facts, arrays: Arrays) -> None:
        densities = finite(arrays, "densities", -1)
        numbers = integers(arrays, "numbers", len(self._columns), len(densities))
        levels, deviations = integers(arrays, "levels", len(densities)), finite(arrays, "deviations", len(densities))
        (elsewhere,) = finite(arrays, "elsewhere", 1).tolist()
        if min(densities.min(), deviations.min(), elsewhere, levels.min(), numbers.min()) < 0 or levels.max() > 16:
            raise ValueError("cells")
        self._keep_cells(numbers, levels, densities, deviations)
        self._elsewhere = elsewhere
        if "captured" in facts:
            self.captured_ = capture_ratio(real(facts["captured"][0], 0), real(facts["captured"][1], 0))
            self.distance_ = distance(self.captured_)

    def _restore_counters(self, facts: Facts, arrays: Arrays) -> None:
        bound, position = map_from_dict(facts["map"]).bind(self._schema), whole(facts["position"])
        if not isinstance(bound, BoundGrid) or bound.levels[position] != self.level_:
            raise ValueError("map")
        if (bound.columns, bound.offsets) != (self._columns, self._offsets):
            raise ValueError("map")
        sums = counters(arrays, "sums", bound.size // len(bound.levels))
        self._table = GridTable(self._schema, bound, position, sums, real(facts["noise_variance"], 0))
        self._rows, self._rows_sd = real(facts["rows"], 1), real(facts["rows_sd"], 0)
        self._cells = self._grid_cells([self.level_])

    def _check(self) -> None:
        if self.method not in METHODS:
            raise QueryError(f"method must be one of {', '.join(METHODS)}, got {self.method!r} instead")
        check_recovery(self.recovery)
        check_heavy(self.heavy)

    def _fit_cells(self, view: View, table: GridTable) -> None:
        population = GridPopulation(
            view.released,
            ReleaseNoise(view.released),
            self.method,
            self.recovery,
            self.heavy,
            None if self.method == "cells" else self.level,
            smooth=True,
        )
        model, (rows, deviation) = population.model(0), population.rows
        if self.method == "heap":
            self.captured_ = captured(model.leaves[0], (rows, deviation))
            self.distance_ = distance(self.captured_)
            deviation = float(np.hypot(deviation, max(rows - model.total, 0.0)))
            rows = min(rows, model.total)
        numbers, levels, densities, deviations = [], [], [], []
        for leaf in model.leaves:
            volume = rows * model.cells.volumes(leaf.position, leaf.ranks)
            numbers.append(model.cells.numbers(leaf.position, leaf.ranks))
            levels.append(np.full(len(leaf.masses), model.cells.levels[leaf.position]))
            densities.append(leaf.masses / volume)
            deviations.append(np.sqrt(leaf.variances + (leaf.masses * deviation / rows) ** 2) / volume)
        self._keep_cells(
            np.concatenate(numbers, axis=1).astype(np.int32),
            np.concatenate(levels).astype(np.int8),
            np.concatenate(densities),
            np.concatenate(deviations),
        )
        cells = self._grid_cells([table.level])
        share = np.sqrt(table.variance(self.recovery))
        if self.method == "heap":
            share = np.hypot(share, model.leaves[0].masses.min())
        self._elsewhere = float(share / rows / np.median(cells.columns[0].volumes(0)))
        for column in cells.columns[1:]:
            self._elsewhere /= float(np.median(column.volumes(0)))
        self.how_ = f"{len(self._densities)} cells of a grid, " + (
            "from coarse to fine" if self.method == "cells" else f"the heaviest of level {table.level}"
        )

    def _fit_counters(self, view: View, table: GridTable) -> None:
        self._cells = self._grid_cells([table.level])
        counted = ReleaseNoise(view.released).counted_rows
        if self.method == "normalised" or counted is None:
            self._rows, self._rows_sd = number_of_records(self._cells, table)
        else:
            self._rows, self._rows_sd = float(counted.value), float(counted.stderr)
        self._table = table
        self.how_ = f"{table.rows} rows of counters of level {table.level}, their {self.recovery}" + (
            ", normalised" if self.method == "normalised" else ""
        )

    def _grid_cells(self, levels: list[int]) -> GridCells:
        return GridCells(self._schema, self._columns, levels, self._offsets)

    def _keep_cells(
        self, numbers: NDArray[np.int32], levels: NDArray[np.int8], densities: Floats, deviations: Floats
    ) -> None:
        """Store the cells in the order of their keys, by which points are looked up."""
        keys = _keys(numbers.astype(np.int64), levels.astype(np.int64))
        order = np.argsort(keys, kind="stable")
        self._numbers, self._levels, self._order_keys = numbers[:, order], levels[order], keys[order]
        self._densities, self._deviations = densities[order], deviations[order]

    def _model(self) -> CellModel:
        levels = np.unique(self._levels).tolist()
        cells, leaves = self._grid_cells(levels), []
        for position, level in enumerate(levels):
            here = self._levels == level
            ranks = cells.ranks(position, self._numbers[:, here])
            masses = self._densities[here] * cells.volumes(position, ranks)
            leaves.append(LevelCells(position, ranks, masses, np.zeros(len(masses))))
        return CellModel(cells, leaves)

    def _of_cells(self, codes: Codes) -> tuple[Floats, Floats]:
        value = np.zeros(codes.shape[1])
        deviation = np.full(codes.shape[1], self._elsewhere)
        for level in np.unique(self._levels).tolist():
            numbers = cells_along(codes, level, self._offsets)
            keys = _keys(numbers, np.full(codes.shape[1], level))
            place = np.minimum(np.searchsorted(self._order_keys, keys), len(self._order_keys) - 1)
            here = self._order_keys[place] == keys
            value[here], deviation[here] = self._densities[place[here]], self._deviations[place[here]]
        return value, deviation

    def _of_counters(self, codes: Codes) -> tuple[Floats, Floats]:
        table = self._table
        assert table is not None
        numbers = self._cells.numbers_of(0, codes)
        counts, variance = table.estimates(numbers, self.recovery)
        size = self._rows * self._cells.volumes(0, self._cells.ranks(0, numbers))
        return counts / size, np.sqrt(variance + (counts * self._rows_sd / self._rows) ** 2) / size

    def _codes(self, X: Any) -> Codes:
        """Codes of the grid's columns. A matrix has the columns in their order."""
        frame = self._frame(X)
        return np.stack([frame.codes(name) for name in self._columns])


def _of_level(tables: list[GridTable], level: int) -> GridTable:
    for table in tables:
        if table.level == level:
            return table
    held = ", ".join(str(table.level) for table in tables)
    raise QueryError(f"the grid of this release has no level {level!r}", f"its levels are {held}")


def _offsets(found: Any, columns: int) -> tuple[int, ...]:
    """Offsets of the columns' levels, as a file has them."""
    if not isinstance(found, list) or len(found) != columns or any(type(each) is not int for each in found):
        raise ValueError("offsets")
    if max(map(abs, found)) > FINEST:
        raise ValueError("offsets")
    return tuple(found)


def _keys(numbers: NDArray[np.int64], levels: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One word per cell; 64 mixed bits distinguish millions of cells."""
    with np.errstate(over="ignore"):
        key = levels.astype(np.uint64) * _MIX
        for row in numbers.astype(np.uint64):
            key = (key ^ row) * _MIX
            key ^= key >> np.uint64(29)
    return key
