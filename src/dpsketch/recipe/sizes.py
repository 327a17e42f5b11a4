"""Sizes and shares of the parts of ready-made recipes: rules of public numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, comb, log2, pi, sqrt

import numpy as np

from dpsketch.calibration import affordable, count_and_sums, counter_noise
from dpsketch.errors import RecipeError
from dpsketch.maps.tables.cells import cells_of
from dpsketch.maps.tables.pairs import MOST_PAIRS
from dpsketch.privacy.budget import Budget
from dpsketch.schema.columns import Column, Integer
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

MARGINALS_SHARE, PAIRS_SHARE = 0.42, 0.55  # of tables without numbers; bins follow from the first
FOURIER_SHARE = 0.3  # of the pairs' share, where Fourier sums are asked for
FEW_COLUMNS = 16
TOTALS_SHARE = 0.12
PURE_SHARES = (0.275, 0.575)  # of marginals without totals and of pairs, beside those and a count, under pure ε
GAUSSIAN_SHARES = (0.33, 0.52)  # the same with δ or ρ
CONTRAST_SHARES = (0.43, 0.42)  # the same where pairs have contrasts
CONTRAST_SD = 0.025  # of a pair table's cell, as a share of the rows: from here on contrasts tell more
PAIR_SD = 0.01  # as a share of the rows: `fitting.groups.groups_wanted` is 4 there
MOST_FINE_CELLS = 40_000_000  # of a raw sketch's pair tables: 160 MB in counters of four bytes
FINER_BINS, MOST_TIMES_FINER, MOST_FINER_CELLS = 256, 8, 10_000_000  # of pair tables beside their marginals
FEW_WHOLE_NUMBERS = 130
LEAST_COUNT_SHARE = 0.001
LEAST_FREQUENCIES, MOST_FREQUENCIES = 2, 10  # of clusters: times clusters times columns
NOISE = 2.0  # of a normalised sum, in its sampling errors
RADII = {1: (4.0, 160.0), 2: (4.0, 160.0), 3: (2.0, 40.0)}  # by columns; radians per width of the bounds
RADII_OF_MORE = (5.0, 50.0)
CLUSTER_BINS = 1.4  # times those for which linear errors are least: measured
MOST_CLUSTER_CELLS = 1 << 18
CELLS_OF_A_CLUSTER = 2  # along each column, at least
CLUSTER_SHARES = (0.02, 0.69, 0.29)  # of a count, a table and one that is coarser
CONTROL_SHARE = 0.07  # of the budget of densities, for marginals that made-up records are drawn from
DENSITY_RACE_WIDTH, GRAPH_RACE_WIDTH = 1000, 100_000
MOST_RACE_ROWS, MOST_GAUSSIAN_RACE_ROWS, LEAST_RACE_ROWS = 2000, 4000, 10  # 2000 of corrected ones
MOST_GRAPH_ROWS, MOST_PURE_GRAPH_ROWS = 2000, 500
ROW_ERROR = 0.9  # of one row of hashed counters, relative: measured 0.55 to 1.25
CORRECTED_ROW_ERROR = 0.35  # the same where made-up records correct it: measured 0.25 to 0.4
CELL_ERROR = 0.013  # of a table whose cells are a bandwidth wide, relative: measured
TYPICAL_DENSITY = 0.02  # mean kernel value at a record: measured 0.005 to 0.07
MOST_TABLE_CELLS, MOST_TABLE_BINS, MOST_TABLE_COLUMNS = 1 << 20, 4096, 3
WIDEST_CELLS = 2.0  # of a table, in bandwidths: inside of wider ones too much is unknown
ANOMALY_BANDWIDTH, ANOMALY_POWER = 0.5, 8  # times the root of the number of columns
ANOMALY_ROWS, ANOMALY_THRESHOLD = 30, 0.3  # the share of what a threshold is found from
GAUSSIAN_ROWS, PURE_ROWS = 100, (10, 40)  # of hashed counters for classes
LEAST_BITS, MOST_BITS = 5, 10
STANDING_OUT = 56.0  # squared records of a class over the noise's variance, for each counter
LINEAR_RADIUS = 0.75  # of what clips no record: a longer record than that is rare, and noise grows with the square
HASHED_LINEAR_ROWS, HASHED_LINEAR_BITS = 1000, 4  # the race paper's; a tenth of the rows under pure ε
OCTAVES, FEW_NUMBERS = 3, 16  # of ramps, up to so many columns


def pair_sizes(rows: int, budget: Budget, columns: int) -> tuple[int, int | None]:
    """Bins of marginals and pair tables, and how many pairs the noise supports, None for all: from public numbers.

    Up to FEW_COLUMNS columns all pairs answer best, also with little budget. Beyond, as many as leave the cells of
    their tables a predicted standard deviation of at most PAIR_SD of the rows, so that columns have four groups
    (`fitting.groups`), but never fewer than connect all columns.

    Source: RESEARCH "Statistics and models from one general sketch"; docs/decisions/007-pairs-in-the-general-recipe.md.
    """
    bins = marginal_bins(rows * MARGINALS_SHARE * min(budget.strength, 1000.0) / columns)
    every = comb(columns, 2)
    if columns <= FEW_COLUMNS or not budget.private:
        return bins, None
    share = PURE_SHARES[1] if budget.pure else GAUSSIAN_SHARES[1]
    supported = max(columns - 1, int(affordable((PAIR_SD * rows) ** 2, budget, share=share, pure=sqrt(2))))
    return bins, None if supported >= every else supported


def suits_contrasts(schema: Schema, rows: int, budget: Budget, pairs: int) -> bool:
    """Whether contrasts of so many pairs tell more than their tables: under pure ε, where the predicted standard
    deviation of a cell is above CONTRAST_SD of the rows, so that most of what a table tells is noise. Gaussian noise of
    a contrast is that of a cell, not less.

    Source: docs/decisions/009-contrasts-where-tables-drown.md.
    """
    if not budget.pure:
        return False
    return schema_counter_noise(schema, budget, pairs, PURE_SHARES[1]) > CONTRAST_SD * rows


def whole_number_bins(schema: Schema) -> int:
    """As many bins as leave each value of ages, hours and the like a cell of its own."""
    return max((column.levels for column in schema.scalars if _few_whole_numbers(column)), default=2) - 2


def _few_whole_numbers(column: Column) -> bool:
    return isinstance(column, Integer) and column.levels <= FEW_WHOLE_NUMBERS


def fine_columns(schema: Schema, bins: int) -> tuple[int, int, tuple[str, ...]]:
    """Bins of marginals, bins of pair tables, and the columns that have these.

    Tables have several cells to a bin of the marginals, up to MOST_FINER_CELLS in all: where records crowd in few bins
    a release can still divide them, and noise does not grow with cells that it pools. With at most MOST_FINE_CELLS
    otherwise: with fewer bins if that is enough, else without the columns of the most values; none if there are too
    many columns.
    """
    names = [column.name for column in schema.scalars]
    if comb(len(names), 2) > MOST_PAIRS:
        return bins, bins, ()
    finer = bins * min(MOST_TIMES_FINER, max(1, FINER_BINS // bins))
    sizes = {
        each: {column.name: cells_of(column, each).count for column in schema.scalars} for each in {finer, bins, 64, 16}
    }

    def fine(names: Sequence[str], bins: int) -> int:
        counts = [sizes[bins][name] for name in names]
        return (sum(counts) ** 2 - sum(count**2 for count in counts)) // 2

    if fine(names, finer) <= MOST_FINER_CELLS:
        return bins, finer, tuple(names)
    while True:
        for fewer in (bins, 64, 16):
            if fewer <= bins and fine(names, fewer) <= MOST_FINE_CELLS:
                return fewer, fewer, tuple(names)
        names.remove(max(reversed(names), key=sizes[16].__getitem__))


def marginal_bins(signal: float) -> int:
    """Bins of a numeric marginal from rows · ε per column."""
    return 16 if signal < 200 else 64 if signal < 5000 else 128


def fourier_size(signal: float) -> int:
    """Frequencies from rows · ε: the noise of a normalised sum, 2m/(nε), stays at or below one percent."""
    return int(min(max(signal * 0.005, 20), 500))


def cluster_frequencies(schema: Schema, rows: int, budget: Budget, clusters: int, columns: int) -> int:
    """Frequencies for clusters, from public numbers: as many as give a normalised sum NOISE times its sampling error,
    1/√(2·rows), as noise, but from 2 to 10 for each cluster and column.

    Under pure ε the noise of a sum grows with their number, so that more only lose; Gaussian noise grows with its root,
    so that more than these gain little. Source: RESEARCH "Clusters, mixtures, PCA"; compressive §6.6 for the least.
    """
    least, most = (factor * clusters * columns for factor in (LEAST_FREQUENCIES, MOST_FREQUENCIES))
    if not budget.private:
        return most
    together = schema.rows_per_unit or 1
    if schema.relation is Relation.REPLACE_ONE:
        together *= 2
    wanted = affordable(NOISE**2 * rows / 2, budget, together=together, pure=1.0)  # discs under pure ε
    return int(min(max(wanted, least), most))


def cluster_bins(schema: Schema, rows: int, budget: Budget, clusters: int, columns: int) -> tuple[int, int]:
    """Bins of each column of a table for clusters, and of a coarser one beside it, both powers of two: the nearest to
    CLUSTER_BINS over that width h of cells for which the following errors are least, but at least CELLS_OF_A_CLUSTER
    for each cluster along each column; and to its root.

    Squared errors of centres, for each of d columns: a cluster narrower than its cell is taken to be in its middle,
    h²/12 off; and noise of variance v in each of the 1/(k·h^d) cells of one of k equal parts of the space, which are
    k^(−1/d) wide, moves the mean of its n/k records by v·k^(1−2/d)/(12·n²·h^d). Both are least together where
    h^(d+2) = d/2 · k^(1−2/d) · v/n². The coarser table knows much better which parts of the space are empty.
    Source: docs/clusters.md, where it was measured on made-up tables.
    """
    noise = (schema_counter_noise(schema, budget, share=CLUSTER_SHARES[1]) / rows) ** 2
    width = (columns / 2 * clusters ** (1 - 2 / columns) * noise) ** (1 / (columns + 2))
    most = int(log2(min(MOST_CLUSTER_CELLS ** (1 / columns), MOST_TABLE_BINS)))
    least = ceil(log2(CELLS_OF_A_CLUSTER * clusters ** (1 / columns)))
    power = min(max(round(log2(CLUSTER_BINS / width)) if width else most, least), most)
    return 1 << power, 1 << power // 2


def count_share(schema: Schema, rows: int, budget: Budget, frequencies: int) -> float:
    """The count's share of a budget that it divides with m Fourier sums, from public numbers alone: the one with which
    the sums divided by the count have the least noise-to-signal ratio, by the noises that they get from a release, for
    the strongest signal, to which the count matters most.

    Sums get disc or Gaussian noise, the count Laplace or Gaussian noise; of the pairs that a release may choose the one
    with the least ratio counts. The result has four decimals and is at least LEAST_COUNT_SHARE. Where neighbouring
    tables have as many rows the count needs no noise, and a release gives its share to the sums.

    Source: compressive L. 27, 28 and App. E, with the clean sums as reference and no subsampling. The paper leaves a
    term out and finds (rows·ε)^(−2/3). That holds only as long as rows·ε is well below m, where the sums are lost in
    noise; beyond, the best share stays near m^(−2/3) however many rows, and with Gaussian noise near (2m)^(−1/2).
    """
    if schema.relation is Relation.REPLACE_ONE or not budget.private:
        return LEAST_COUNT_SHARE
    unit = ((schema.rows_per_unit or 1) / rows) ** 2
    found: list[tuple[float, float]] = []
    for count, sums, squares in count_and_sums(budget, frequencies):
        share = 1 - sums_share(count * unit, 1.0, sums * unit, squares)
        power = 1 if squares else 2
        found.append(((1 + count * unit / share**power) * (1 + sums * unit / (1 - share) ** power), share))
    return max(round(min(found)[1], 4), LEAST_COUNT_SHARE)


def sums_share(count: float, rest: float, noise: float, squares: bool = False) -> float:
    """γ*, the share of a budget for the sums that makes (1 + count/(1−γ)²)·(rest + noise/γ²) least: `count` and `noise`
    are what the count's and the sums' noise would add with all of the budget, `rest` is 1 and all other noise. With
    `squares`, shares divide a squared budget, as those of Gaussian noise do, and the exponents are 1.

    Source: compressive App. E, whose cubic is solved here as it stands: with its term AB/C, which the paper leaves out
    and so finds 1 − (nε)^(−2/3), right only where the sums are lost in noise.
    """
    if min(count, rest, noise) <= 0:
        raise RecipeError("count, rest and noise must be above 0")
    if squares:
        return 1 / (1 + (count * (rest + noise) / (noise * (1 + count))) ** 0.5)
    return 1 - exact_count_share(count * rest / noise, count)


def exact_count_share(relative: float, absolute: float) -> float:
    """The root of s³ = relative·(1−s)³ + absolute·(1−2s) in (0, ½), or of less than 1 where `relative` is large:
    the best share of a count whose noise adds `absolute` with all of the budget; `relative` is that times what the sums
    are without their noise, over what the noise adds with all of the budget. Source: compressive App. E.
    """
    share = max(0.5, 1 - 1 / (1 + relative ** (1 / 3)))
    for _ in range(50):  # Newton from above, where the cubic is convex and rises: no step goes too far
        value = share**3 - relative * (1 - share) ** 3 - absolute * (1 - 2 * share)
        share -= value / (3 * share**2 + 3 * relative * (1 - share) ** 2 + 2 * absolute)
    return share


def pca_directions(rows: int, budget: Budget, columns: int, n_components: int) -> int | None:
    """How many squares of projections to sketch for principal components, None for second moments themselves.

    Under pure ε the noise of all d(d+1)/2 second moments has an operator norm of about √2·d^1.5/(rows·ε) of the squared
    radius, that of a matrix of low rank fitted to B bases of squares only √(B/d) of it, but for what is not of low
    rank. So squares are taken where d is at least 8·n_components and that norm is above 2 %; from 500 % on all is lost
    in noise. Gaussian noise of second moments does not grow with their number: they are always better.
    Source: RESEARCH "Clusters, mixtures, PCA"; docs/models.md has the measurements.
    """
    if not budget.pure:
        return None
    noise = sqrt(2) * columns**1.5 / (rows * budget.strength)
    if columns < 8 * n_components or not 0.02 < noise < 5:
        return None
    basis = 1 << (columns - 1).bit_length()
    return basis * (2 * n_components + 2)


def default_bandwidth(columns: int) -> float:
    """Of densities, in widths of the bounds: distances grow with the root of the number of columns."""
    return 0.05 * sqrt(columns)


def race_rows(schema: Schema, rows: int, budget: Budget, columns: int, corrected: bool = False) -> int:
    """Rows of hashed counters for densities. Gaussian noise of an answer does not grow with them: as many as are
    affordable. Under pure ε its variance does, and 0.014·rows·ε balance it with the error of the hashes; of more than
    twelve columns fewer, in proportion, as records lie farther apart. Corrected counters need fewer.
    Source: RESEARCH "Kernel densities (race)"; docs/densities.md.
    """
    if not budget.pure:
        return MOST_RACE_ROWS if corrected else MOST_GAUSSIAN_RACE_ROWS
    single = sqrt(2) / schema_counter_noise(schema, budget)
    share = 0.006 * min(1, 8 / columns) if corrected else 0.014 * min(1, 12 / columns)
    return int(min(max(share * rows * single, LEAST_RACE_ROWS), MOST_RACE_ROWS))


def graph_rows(schema: Schema, rows: int, budget: Budget) -> int:
    """As `race_rows` for Jaccard densities of neighbour sets: few sets are alike, so fewer rows under pure ε."""
    if not budget.pure:
        return MOST_GRAPH_ROWS
    single = sqrt(2) / schema_counter_noise(schema, budget)
    return int(min(max(0.0006 * rows * single, LEAST_RACE_ROWS), MOST_PURE_GRAPH_ROWS))


def race_error(
    schema: Schema, rows: int, budget: Budget, table_rows: int, density: float, corrected: bool = False
) -> float:
    """Predicted relative error of a density from `table_rows` rows of hashed counters."""
    noise = schema_counter_noise(schema, budget, table_rows) / sqrt(table_rows)
    one = CORRECTED_ROW_ERROR if corrected else ROW_ERROR
    return sqrt(one**2 / table_rows + (noise / (rows * density)) ** 2)


def table_noise(spans: Sequence[float]) -> float:
    """Variance of a density's noise from a table over columns that are `spans` bandwidths wide, in variances of a cell,
    if cells were a bandwidth wide: the integral of the squared p-stable kernel inside the bounds, from their middle.
    """
    from dpsketch.maps.hashed.hashes import Euclidean

    radius = max(spans) / 2
    steps = np.geomspace(1e-3, max(radius, 0.1), 2000)
    surface = {1: 2.0, 2: 2 * pi, 3: 4 * pi}[len(spans)] * steps ** (len(spans) - 1)
    return float(np.trapezoid(Euclidean(1.0).kernel(steps) ** 2 * surface, steps))


def table_bins(
    schema: Schema, rows: int, budget: Budget, spans: Sequence[float], density: float = TYPICAL_DENSITY
) -> tuple[int, float]:
    """Bins of each column of a table for densities, and the predicted relative error.

    Cells h bandwidths wide have an error of CELL_ERROR·h from records' places in them, and noise in proportion to
    h^(−d/2): the best h balances the two for a typical density.
    """
    columns, noise = len(spans), schema_counter_noise(schema, budget)
    noise = noise**2 * table_noise(spans) / (rows * density) ** 2
    width = (columns * noise / (2 * CELL_ERROR**2)) ** (1 / (columns + 2))
    most = min(int(MOST_TABLE_CELLS ** (1 / columns)) - 3, MOST_TABLE_BINS)
    bins = int(min(max(max(spans) / min(max(width, 0.02), 1.5), 4), most))
    width = max(spans) / bins
    return bins, sqrt((CELL_ERROR * width) ** 2 + noise / width**columns)


def classifier_sizes(schema: Schema, rows: int, budget: Budget, classes: int, share: float) -> tuple[int, int]:
    """Rows and bits of the tables of hashed counters for a classifier, from public numbers.

    Gaussian noise of a sum over all rows does not grow with their number, so that there are many; under pure ε it does,
    and fewer are better, 40·ε^0.3. Bits: so many counters that the average class, spread evenly over them, has a sum of
    squares STANDING_OUT times the noise's. Source: RESEARCH "Classifiers (race)"; docs/models.md.
    """
    if not budget.private:
        return GAUSSIAN_ROWS, MOST_BITS
    if budget.pure:
        least, most = PURE_ROWS
        tables = int(min(max(round(most * budget.strength**0.3), least), 2 * most))
    else:
        tables = GAUSSIAN_ROWS
    signal = rows / classes / schema_counter_noise(schema, budget, tables, share)
    bits = int(min(max(round(log2(max(signal**2 / STANDING_OUT, 1.0))), LEAST_BITS), MOST_BITS))
    if tables == GAUSSIAN_ROWS and bits < MOST_BITS:
        tables *= 2  # in noise log-odds are nearly linear in the counters, and more of them cost nothing
    return tables, bits


def schema_counter_noise(
    schema: Schema, budget: Budget, tables: int = 1, share: float = 1.0, signed: bool = False
) -> float:
    """`calibration.counter_noise` for a schema's unit and relation."""
    return counter_noise(budget, schema.rows_per_unit or 1, schema.relation, tables, share, signed)
