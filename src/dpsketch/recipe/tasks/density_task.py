"""Kernel densities and modes: a table of up to three columns, or hashed counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt
from typing import Annotated, Any, ClassVar

import numpy as np

from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap
from dpsketch.maps.hashed.hash_inputs import bandwidth_spans, labels_in
from dpsketch.maps.hashed.hashes import Euclidean, HashFamily, Product
from dpsketch.maps.hashed.race import Race
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.histogram import Histogram
from dpsketch.maps.tables.marginals import Marginals
from dpsketch.numerics.tuned import BY_HAND, DENSITY_TABLES, PROTOTYPE, UNRECORDED, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.recipe import Part, Recipe
from dpsketch.recipe.tasks.task import (
    COUNT_SHARE,
    MOST_TABLE_BINS,
    MOST_TABLE_COLUMNS,
    Prediction,
    Shares,
    Task,
    marginal_bins,
    number_columns,
    schema_counter_noise,
)
from dpsketch.schema.schema import Schema

# Measurements: docs/densities.md.
_ORIGIN = Tuned(DENSITY_TABLES, by=BY_HAND)
ROW_ERROR: Annotated[float, _ORIGIN] = 0.9  # relative error of one row of hashed counters; measured 0.55 to 1.25
# The same with a correction by simulated records; measured 0.25 to 0.4.
CORRECTED_ROW_ERROR: Annotated[float, _ORIGIN] = 0.35
# Relative error of a table with cells one bandwidth wide, in two or three columns; measured 0.003 to 0.11. The power of
# their width with which it falls.
CELL_ERROR: Annotated[float, Tuned("htru2, skin, cod_rna, covtype", by=BY_HAND, decision=88)] = 0.04
CELL_POWER: Annotated[float, Tuned("htru2, skin, cod_rna, covtype", by=BY_HAND, decision=88)] = 1.5
# The same of one column, where values often repeat: a cell's records may all be at one end; measured 0.015 to 0.4.
ONE_COLUMN_CELL_ERROR: Annotated[float, Tuned("dpbench_1d: 8 of 18", by=BY_HAND, decision=44)] = 0.06
# Mean kernel value at a record, for narrow kernels or many columns; measured 0.005 to 0.07.
TYPICAL_DENSITY: Annotated[float, _ORIGIN] = 0.02
# The same for wide kernels, over the kernel at the distance of two uniform records; measured 2.7 to 9.2.
CONCENTRATED: Annotated[float, Tuned("htru2, skin, cod_rna, covtype, sf_salaries", by=BY_HAND, decision=88)] = 3.0
# Of the budget, for the marginals that simulated records are drawn from.
CONTROL_SHARE: Annotated[float, _ORIGIN] = 0.07
DENSITY_RACE_WIDTH: Annotated[int, Tuned(DENSITY_TABLES, by=PROTOTYPE)] = 1000  # counters in a row
MOST_RACE_ROWS: Annotated[int, _ORIGIN] = 2000  # corrected by simulated records
MOST_GAUSSIAN_RACE_ROWS: Annotated[int, UNRECORDED] = 4000
LEAST_RACE_ROWS: Annotated[int, UNRECORDED] = 10
MOST_TABLE_CELLS: Annotated[int, UNRECORDED] = 1 << 20
WIDEST_CELLS: Annotated[float, UNRECORDED] = 2.0  # of a table, in bandwidths


class Density(Task):
    """See `Recipe.density`."""

    name = "density"
    parameter = "bandwidth"

    def parts(
        self,
        schema: Schema,
        rows: int,
        budget: Budget,
        columns: Sequence[str] | None = None,
        bandwidth: float | None = None,
        hash: HashFamily | None = None,
    ) -> Shares:
        names, family = _kernel(schema, columns, bandwidth, hash)
        return density_shares(*density_choices(schema, rows, budget, names, family), rows, budget, names)

    def predict(
        self,
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
        bandwidth: float | None = None,
        hash: HashFamily | None = None,
        density: float | None = None,
    ) -> DensityPrediction:
        """Relative errors of both estimates of a density.

        `density` is the mean kernel value at the points of interest, from public knowledge; by default, a typical one.
        Both errors rest on constants measured on few tables.
        """
        rows, budget = self.known(schema, rows, budget)
        names, family = _kernel(schema, columns, bandwidth, hash)
        density = typical_density(schema, names, family) if density is None else density
        if not 0 < density <= 1:
            raise RecipeError(f"density must be above 0 and at most 1, got {density!r} instead")
        table, race = density_choices(schema, rows, budget, names, family, density)
        recipe = Recipe([Part(*each) for each in density_shares(table, race, rows, budget, names)])
        return DensityPrediction(
            task=self.name,
            rows=rows,
            budget=budget,
            recipe=recipe,
            density=density,
            race=race[0],
            race_error=race[1],
            table=None if table is None else table[0],
            table_error=None if table is None else table[1],
        )

    def parsed(self, argument: str) -> float:
        try:
            return float(argument)
        except ValueError:
            raise RecipeError(f"a bandwidth must be a number, got '{argument}' instead", "write density:0.05") from None

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit density {sketch}" + (f" --bandwidth {argument}" if argument else "")


TASK = Density()


@dataclass(frozen=True, kw_only=True)
class DensityPrediction(Prediction):
    """Predicted relative errors at a point whose mean kernel value is `density`; None where a table is impossible."""

    density: float
    race: Race
    race_error: float
    table: FeatureMap | None
    table_error: float | None

    note: ClassVar[str] = "Relative errors where the mean kernel value is that of a typical record."

    @property
    def better(self) -> str:
        """ "table" or "race", by the smaller predicted error."""
        return "table" if self.table_error is not None and self.table_error < self.race_error else "race"

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "density": self.density,
            "race": self.race.summary(),
            "race_error": self.race_error,
            "table": None if self.table is None else self.table.summary(),
            "table_error": self.table_error,
            "better": self.better,
        }

    def lines(self) -> list[str]:
        """The prediction as lines of text."""
        lines = [f"at points with a mean kernel value of {self.density:g}"]
        counters = f"hashed counters, {self.race.rows} rows of {self.race.width}"
        lines.append(f"{counters}: predicted relative error {self.race_error:.2%}")
        if self.table is None:
            lines.append("a table: only for up to three number columns and a kernel of distance")
        else:
            bins = getattr(self.table, "bins", 0)
            lines.append(f"a table, {bins} bins per column: predicted relative error {self.table_error:.2%}")
        return [*lines, f"better: {self.better}"]

    def cells(self) -> dict[str, str]:
        race = f"{self.race.rows} × {self.race.width}"
        table, error = "-", "-"
        if self.table is not None and self.table_error is not None:
            table, error = f"{getattr(self.table, 'bins', 0)} bins", f"{self.table_error:.2%}"
        counters = {"hashed counters": race, "their error": f"{self.race_error:.2%}"}
        return {"budget": str(self.budget)} | counters | {"a table": table, "its error": error, "better": self.better}


def density_plan(
    schema: Schema,
    *,
    rows: int | None = None,
    budget: Budget | None = None,
    columns: Sequence[str] | None = None,
    bandwidth: float | None = None,
    hash: HashFamily | None = None,
    density: float | None = None,
) -> DensityPrediction:
    """Predicted relative errors of both estimates of a density; the other arguments are those of `Recipe.density`.

    Nothing is read and nothing is spent. `density` is the mean kernel value at the points of interest, by default
    `typical_density`.
    """
    return TASK.predict(
        schema, rows=rows, budget=budget, columns=columns, bandwidth=bandwidth, hash=hash, density=density
    )


def _kernel(
    schema: Schema, columns: Sequence[str] | None, bandwidth: float | None, hash: HashFamily | None
) -> tuple[tuple[str, ...], HashFamily]:
    names = number_columns("density", schema, columns)
    if hash is not None and bandwidth is not None:
        raise RecipeError("Recipe.density: the bandwidth is part of the hash", "pass one of them")
    return names, hash or Euclidean(default_bandwidth(len(names)) if bandwidth is None else bandwidth)


def density_shares(
    table: tuple[FeatureMap, float] | None,
    counters: tuple[Race, float],
    rows: int,
    budget: Budget,
    names: tuple[str, ...],
) -> Shares:
    """A count and the better of `density_choices`, with marginals for the correction of counters where they help.

    They help with many columns and a kernel of distance. With few, strongly dependent columns, such as colours, they
    correct little.
    """
    chosen = table[0] if table is not None and table[1] < counters[1] else counters[0]
    if not _corrected(counters[0].hash, names):
        return [(Count(), COUNT_SHARE), (chosen, 1 - COUNT_SHARE)]
    bins = marginal_bins(rows * CONTROL_SHARE * min(budget.strength, 1000.0) / len(names))
    rest = round(1 - COUNT_SHARE - CONTROL_SHARE, 4)
    return [(Count(), COUNT_SHARE), (Marginals(names, bins), CONTROL_SHARE), (chosen, rest)]


def density_choices(
    schema: Schema,
    rows: int,
    budget: Budget,
    names: tuple[str, ...],
    family: HashFamily,
    density: float | None = None,
    inside: tuple[float, float] | None = None,
) -> tuple[tuple[FeatureMap, float] | None, tuple[Race, float]]:
    """A table, if these columns allow one, and hashed counters, each with its predicted relative error
    at this density. `inside` is that of `table_bins`.
    """
    density = typical_density(schema, names, family) if density is None else density
    corrected = _corrected(family, names)
    size = race_rows(schema, rows, budget, len(names), corrected)
    columns = None if isinstance(family, Product) else names
    labels = None if columns is None else labels_in(schema, columns)
    race = Race(columns, size, DENSITY_RACE_WIDTH, hash=family, labels=labels)
    counters = race, race_error(schema, rows, budget, size, density, corrected)
    spans = _table_spans(schema, names, family)
    if spans is None or not isinstance(family, Euclidean):
        return None, counters
    bins, error = table_bins(schema, rows, budget, spans, density, inside)
    if max(spans) / bins > WIDEST_CELLS:
        return None, counters
    return (Histogram(len(names), names, bins, family), error), counters


def typical_density(schema: Schema, names: tuple[str, ...], family: HashFamily) -> float:
    """A typical mean kernel value at a record, from public numbers: TYPICAL_DENSITY, or CONCENTRATED times the kernel
    at the root mean squared distance of two records that are uniform between the bounds, if that is more. The latter is
    for columns that a table can have.
    """
    spans = _table_spans(schema, names, family)
    if spans is None or not isinstance(family, Euclidean):
        return TYPICAL_DENSITY
    distance = np.array([sqrt(sum(span**2 for span in spans) / 6)])
    return max(TYPICAL_DENSITY, min(CONCENTRATED * float(Euclidean(1.0, family.power).kernel(distance)[0]), 1.0))


def _table_spans(schema: Schema, names: tuple[str, ...], family: HashFamily) -> tuple[float, ...] | None:
    """Widths of the columns in bandwidths, if a table can have these columns for this kernel."""
    numeric = all(schema.column(name).numeric for name in names)
    if not isinstance(family, Euclidean) or len(names) > MOST_TABLE_COLUMNS or not numeric:
        return None
    return tuple(bandwidth_spans(names, family, schema).values())


def _corrected(family: HashFamily, names: Sequence[str]) -> bool:
    """Whether records simulated from marginals correct the hashes."""
    return isinstance(family, Euclidean) and len(names) > MOST_TABLE_COLUMNS


def default_bandwidth(columns: int) -> float:
    """Default bandwidth in widths of the bounds. It grows like distances, with the square root of the number of
    columns.
    """
    return 0.05 * sqrt(columns)


def race_rows(schema: Schema, rows: int, budget: Budget, columns: int, corrected: bool = False) -> int:
    """Rows of hashed counters for densities.

    Gaussian noise of an answer does not grow with the number of rows: as many as are affordable. Under pure ε its
    variance does, and 0.014·rows·ε balances it with the error of the hashes. With more than twelve columns the number
    is proportionally smaller, because records lie farther apart. Corrected counters need fewer. Source: RESEARCH
    "Kernel densities (race)"; docs/densities.md.
    """
    if not budget.pure:
        return MOST_RACE_ROWS if corrected else MOST_GAUSSIAN_RACE_ROWS
    single = sqrt(2) / schema_counter_noise(schema, budget)
    share = 0.006 * min(1, 8 / columns) if corrected else 0.014 * min(1, 12 / columns)
    return int(min(max(share * rows * single, LEAST_RACE_ROWS), MOST_RACE_ROWS))


def race_error(
    schema: Schema, rows: int, budget: Budget, table_rows: int, density: float, corrected: bool = False
) -> float:
    """Predicted relative error of a density from `table_rows` rows of hashed counters."""
    noise = schema_counter_noise(schema, budget, table_rows) / sqrt(table_rows)
    one = CORRECTED_ROW_ERROR if corrected else ROW_ERROR
    return sqrt(one**2 / table_rows + (noise / (rows * density)) ** 2)


def table_noise(spans: Sequence[float]) -> float:
    """Noise variance of a density from a table with cells one bandwidth wide, relative to the noise variance of a cell.

    The columns are `spans` bandwidths wide. It is the integral of the squared p-stable kernel inside the bounds, from
    their midpoint.
    """
    radius = max(spans) / 2
    steps = np.geomspace(1e-3, max(radius, 0.1), 2000)
    surface = {1: 2.0, 2: 2 * pi, 3: 4 * pi}[len(spans)] * steps ** (len(spans) - 1)
    return float(np.trapezoid(Euclidean(1.0).kernel(steps) ** 2 * surface, steps))


def table_bins(
    schema: Schema,
    rows: int,
    budget: Budget,
    spans: Sequence[float],
    density: float,
    inside: tuple[float, float] | None = None,
) -> tuple[int, float]:
    """Bins of each column of a table for densities, and the predicted relative error.

    Cells h bandwidths wide have an error of CELL_ERROR·h^CELL_POWER from the unknown positions of records inside them,
    and noise proportional to h^(−d/2). The best h balances the two for this density. For one column, whose values often
    repeat, the error is ONE_COLUMN_CELL_ERROR·h. `inside` is another factor and power.
    """
    columns, noise = len(spans), schema_counter_noise(schema, budget)
    unseen, power = inside or ((ONE_COLUMN_CELL_ERROR, 1.0) if columns == 1 else (CELL_ERROR, CELL_POWER))
    noise = noise**2 * table_noise(spans) / (rows * density) ** 2
    width = (columns * noise / (2 * power * unseen**2)) ** (1 / (columns + 2 * power))
    most = min(int(MOST_TABLE_CELLS ** (1 / columns)) - 3, MOST_TABLE_BINS)
    bins = int(min(max(max(spans) / min(max(width, 0.02), 1.5), 4), most))
    width = max(spans) / bins
    return bins, sqrt((unseen * width**power) ** 2 + noise / width**columns)
