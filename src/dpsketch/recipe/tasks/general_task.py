"""General questions: a count, marginals and tables of pairs of columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from math import comb, sqrt
from typing import Annotated

from dpsketch.calibration import affordable
from dpsketch.denoise.cuts import CLEAR
from dpsketch.errors import RecipeError, RecipeWarning
from dpsketch.maps.base import FeatureMap
from dpsketch.maps.fourier.fourier import Fourier
from dpsketch.maps.tables.adaptive_marginals import AdaptiveMarginals
from dpsketch.maps.tables.adaptive_pairs import AdaptivePairs
from dpsketch.maps.tables.cells import cells_of
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.level_counts import Levels
from dpsketch.maps.tables.pairs import MOST_PAIRS, Pairs
from dpsketch.maps.tables.totals import Totals
from dpsketch.maps.tables.triple_tables import Triples
from dpsketch.numerics.tuned import BY_HAND, PROTOTYPE, STUDY_TABLES, UNRECORDED, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task import Shares, Task, marginal_bins, schema_counter_noise
from dpsketch.recipe.tasks.three_columns import affordable_triples
from dpsketch.schema.columns import SPAN, Column, Integer
from dpsketch.schema.schema import Schema, Workload, checked_workload, workload_pairs, workload_triples

_ORIGIN = Tuned(STUDY_TABLES, by=BY_HAND, decision=12)
_RUNS = Tuned("gas_drift, payroll, naval, and 2,000 rows of adult", by=BY_HAND, decision=41)
RUNS: Annotated[int, _RUNS] = 8  # in a bin
# Clear counts of a bin's levels, in numbers of rows, above which single levels do not choose cells well.
HIDDEN: Annotated[float, _RUNS] = 2.0
_WIDE = Tuned("covtype, nomao and simulated tables of 30 and 100 columns", by=BY_HAND, decision=30)
# Tables without numbers; the number of bins follows from it.
MARGINALS_SHARE: Annotated[float, Tuned(STUDY_TABLES, by=PROTOTYPE, decision=7)] = 0.42
PAIRS_SHARE: Annotated[float, Tuned(STUDY_TABLES, by=PROTOTYPE, decision=7)] = 0.55  # tables without numbers
FOURIER_SHARE: Annotated[float, UNRECORDED] = 0.3  # of the pairs' share, where Fourier sums are asked for
TOTALS_SHARE: Annotated[float, _ORIGIN] = 0.12  # of the budget
# Of the share of marginals, what is spent on choosing their cells.
LEVELS_PART: Annotated[float, Tuned("fare, payroll, kdd and flights of the truth study", by=BY_HAND, decision=24)] = (
    0.25
)
# Marginals and pairs under pure ε, beside totals and a count.
PURE_SHARES: Annotated[tuple[float, float], _ORIGIN] = (0.275, 0.575)
GAUSSIAN_SHARES: Annotated[tuple[float, float], _ORIGIN] = (0.33, 0.52)  # the same with δ or ρ
# The same where a release has contrasts instead of pair tables.
CONTRAST_SHARES: Annotated[tuple[float, float], _WIDE] = (0.56, 0.29)
# Standard deviation of a pair table's cell, as a share of the rows, above which contrasts are more accurate.
CONTRAST_SD: Annotated[float, Tuned(STUDY_TABLES, by=BY_HAND, decision=9)] = 0.025
# Up to this number of columns, releasing all pairs is most accurate.
FEW_COLUMNS: Annotated[int, Tuned(STUDY_TABLES, by=PROTOTYPE, decision=7)] = 16
PAIR_SD: Annotated[float, UNRECORDED] = 0.01  # as a share of the rows; `denoise.groups.groups_wanted` returns 4 there
MOST_FINE_CELLS = 40_000_000  # pair tables of a raw sketch: 160 MB in four-byte counters
FINER_BINS: Annotated[int, Tuned(STUDY_TABLES, by=BY_HAND, decision=10)] = 256  # of pair tables
# Cells of a pair table in a bin of the marginals.
MOST_TIMES_FINER: Annotated[int, Tuned(STUDY_TABLES, by=BY_HAND, decision=10)] = 8
MOST_FINER_CELLS: Annotated[int, Tuned(STUDY_TABLES, by=BY_HAND, decision=10)] = 10_000_000
_HINTS = Tuned("no table: a limit on what hints may cost", by=BY_HAND, decision=38)
OTHERS_NOISE: Annotated[float, _HINTS] = 1.5  # the most that hints may multiply the noise of other pair tables by
MOST_WEIGHT: Annotated[int, _HINTS] = 8  # of important pairs
FEW_WHOLE_NUMBERS: Annotated[int, UNRECORDED] = 130  # up to here every whole number has a cell: ages and hours do


class General(Task):
    """See `Recipe.general`."""

    name = "general"

    def parts(
        self,
        schema: Schema,
        rows: int,
        budget: Budget,
        frequencies: int | None = None,
        important: Sequence[Sequence[str]] | None = None,
    ) -> Shares:
        columns = schema.scalars
        groups = schema.workload if important is None else important
        groups = checked_workload("important", groups, schema.columns)
        if not columns:
            raise RecipeError(
                "Recipe.general needs a column that is not a set of ids",
                "write a recipe for sets: Recipe([Part(Race(hash=MinHash()), 1.0)])",
            )
        epsilon = min(budget.strength, 1000.0)
        if len(columns) == 1:
            if frequencies:
                raise RecipeError(
                    "frequencies measure dependences between columns, and this table has only one",
                    "leave out frequencies (--frequencies)",
                )
            bins, total = marginal_bins(rows * 0.95 * epsilon), TOTALS_SHARE * columns[0].numeric
            parts: Shares = [(Count(), 0.05), *_one_way(schema, rows, budget, bins, 0.95 - total)]
            return [*parts, (Totals(), TOTALS_SHARE)] if total else parts
        bins, most = pair_sizes(rows, budget, len(columns))
        bins, finer, paired = fine_columns(schema, max(bins, whole_number_bins(schema)))
        if len(paired) < 2:
            _hinted(schema, groups, budget, (), AdaptivePairs(), 1.0)  # warns
            size = frequencies or fourier_size(rows * PAIRS_SHARE * epsilon)
            return _with_marginals(schema, rows, budget, bins, [(Fourier(size=size), 1.0)])
        if most is not None and most >= comb(len(paired), 2):
            most = None
        named = None if len(paired) == len(columns) else paired
        halved = not frequencies and suits_contrasts(schema, rows, budget, len(paired), most)
        most = None if halved else most
        pairs = AdaptivePairs(named, finer, tapered=finer > bins, most=most, contrasts=halved)
        nested = finer // 2 if pairs.tapered else finer  # equal bins whose edges are all edges of the pair tables
        triples = None
        if not (frequencies or halved):
            share, whole = (PURE_SHARES if budget.pure else GAUSSIAN_SHARES)[1], not (most or named)
            listed = workload_triples(groups, paired)
            triples = affordable_triples(schema, rows, budget, nested, share, listed, whole)
        beside = triples[1] if triples is not None and triples[0].triples is not None else 0.0
        pairs = _hinted(schema, groups, budget, paired, pairs, 1 - beside)
        if frequencies:
            both: Shares = [(pairs, 1 - FOURIER_SHARE), (Fourier(size=frequencies), FOURIER_SHARE)]
            return _with_marginals(schema, rows, budget, bins, both)
        if triples is not None:
            measured: Shares = [(pairs, 1 - triples[1]), triples]
            return _with_marginals(schema, rows, budget, bins, measured)
        return _with_marginals(schema, rows, budget, bins, [(pairs, 1.0)], halved)


TASK = General()


def _hinted(
    schema: Schema, groups: Workload, budget: Budget, paired: Sequence[str], pairs: AdaptivePairs, kept: float
) -> AdaptivePairs:
    """Pair tables in which those inside the groups have less noise, from public numbers. `kept` is what tables of
    important triples leave of the pairs' share. Warns where a hint has no effect.
    """
    asked = workload_pairs(groups, [column.name for column in schema.scalars])
    important = workload_pairs(groups, paired)
    if len(important) < len(asked):
        lost = sorted({name for pair in asked for name in pair} - set(paired))
        _no_effect(budget, f"there are no pair tables with {', '.join(lost)}, as columns have too many values")
    if not important or not budget.private:
        return pairs
    if pairs.contrasts:
        _no_effect(budget, "noise would hide pair tables, and the contrasts that replace them have no weights")
        return pairs
    most = None if pairs.most is None else max(pairs.most, len(important))
    tables = most or comb(len(paired), 2)
    times = pair_weight(budget, tables, len(important), kept)
    if times == 1 and most is None:
        why = f"they are {len(important)} of {tables} pairs, too many for the others to pay for"
        if kept < 1:
            _warn(f"important pairs weigh no more than others at {budget}: {why}; triples have tables of their own")
        else:
            _no_effect(budget, why)
        return pairs
    return replace(pairs, important=important, times=times, most=most)


def pair_weight(budget: Budget, tables: int, important: int, kept: float = 1.0) -> int:
    """How often a record counts in tables of important pairs: as often as leaves the noise of the others, in standard
    deviations, below OTHERS_NOISE times what it would be without them, where pair tables keep this part of their share.

    With k of P tables counted w times, the noise of a sum grows by (P − k + kw)/P under pure ε, and by the root of
    (P − k + kw²)/P with δ or ρ. Source: docs/decisions/038-hints-weigh-pair-tables.md.
    """
    ratio = tables / important
    pure = 1 + (OTHERS_NOISE * kept - 1) * ratio
    weight = pure if budget.pure else sqrt(1 + (OTHERS_NOISE**2 * kept - 1) * ratio)
    return min(int(weight), MOST_WEIGHT)


def _no_effect(budget: Budget, why: str) -> None:
    _warn(f"important pairs have no effect at {budget}: {why}")


def _warn(fact: str) -> None:
    warnings.warn(RecipeWarning(fact), stacklevel=2)


def _with_marginals(schema: Schema, rows: int, budget: Budget, bins: int, rest: Shares, halved: bool = False) -> Shares:
    """A count, marginals, the maps for dependences between columns, by their parts of the rest, and sums of columns.

    Sums are a separate part: under pure ε they then get cube noise, which is much smaller.
    """
    separate = any(column.numeric for column in schema.scalars)
    if not separate:
        marginals, together = MARGINALS_SHARE, PAIRS_SHARE
    elif budget.pure or not budget.private:
        marginals, together = CONTRAST_SHARES if halved else PURE_SHARES
    else:
        marginals, together = GAUSSIAN_SHARES
    parts: Shares = [(Count(), 0.03), *_one_way(schema, rows, budget, bins, marginals)]
    parts += [(each, round(part * together, 4)) for each, part in rest]
    return [*parts, (Totals(), TOTALS_SHARE)] if separate else parts


def _one_way(schema: Schema, rows: int, budget: Budget, bins: int, share: float) -> Shares:
    """Counts of cells and, where columns have more values than cells, of all values, to choose the cells from."""
    binned = sum(cells_of(column, bins).binned for column in schema.scalars)
    if not binned:
        return [(AdaptiveMarginals(bins=bins), share)]
    choice = round(LEVELS_PART * share, 4)
    marginals = (AdaptiveMarginals(bins=bins), round(share - choice, 4))
    if not suits_runs(schema, rows, budget, binned, bins, choice):
        return [(Levels(bins=bins), choice), marginals]
    half = round(choice / 2, 5)
    return [(Levels(bins=bins), half), (Levels(bins=bins, runs=RUNS * bins), half), marginals]


def suits_runs(schema: Schema, rows: int, budget: Budget, columns: int, bins: int, share: float) -> bool:
    """Whether cells are chosen better from runs of levels beside single ones, with half of the share each.

    They are where the levels of a bin have so much noise together that no bin would ever be halved, but its runs would
    show a bin of half the rows. Source: docs/decisions/041-runs-of-levels.md.
    """
    levels = schema_counter_noise(schema, budget, columns, share) * sqrt(SPAN / bins)
    runs = schema_counter_noise(schema, budget, columns, share / 2) * sqrt(RUNS)
    return CLEAR * levels > HIDDEN * rows and 2 * CLEAR * runs < rows


def general_of(schema: Schema, names: tuple[str, ...], rows: int, budget: Budget) -> Shares:
    """The general recipe of the named columns, for tasks that draw rows."""
    only = replace(schema, columns=tuple(schema.column(name) for name in names), workload=())
    return [(_of_columns(schema, each, names), share) for each, share in TASK.parts(only, rows, budget)]


def _of_columns(schema: Schema, each: FeatureMap, names: tuple[str, ...]) -> FeatureMap:
    """A map of all columns, restricted to the named ones."""
    if isinstance(each, Totals) and each.columns is None:
        return Totals(tuple(name for name in names if schema.column(name).numeric))
    if isinstance(each, Levels | AdaptiveMarginals | Pairs | Triples | Fourier) and each.columns is None:
        return replace(each, columns=names)
    return each


def pair_sizes(rows: int, budget: Budget, columns: int) -> tuple[int, int | None]:
    """Bins of marginals and of pair tables, and the number of pairs that the noise supports (None for all).

    All from public numbers. Up to FEW_COLUMNS columns, all pairs answer best, even with little budget. Beyond, their
    number is such that the cells of their tables have a predicted standard deviation of at most PAIR_SD of the rows,
    which gives columns four groups (`denoise.groups`), but never fewer than connect all columns. Under pure ε contrasts
    of all pairs answer better than tables of some: `suits_contrasts`.

    Source: RESEARCH "Statistics and models from one general sketch"; docs/decisions/007-pairs-in-the-general-recipe.md.
    """
    bins = marginal_bins(rows * MARGINALS_SHARE * min(budget.strength, 1000.0) / columns)
    every = comb(columns, 2)
    if columns <= FEW_COLUMNS or not budget.private:
        return bins, None
    share = PURE_SHARES[1] if budget.pure else GAUSSIAN_SHARES[1]
    supported = max(columns - 1, int(affordable((PAIR_SD * rows) ** 2, budget, share=share, pure=sqrt(2))))
    return bins, None if supported >= every else supported


def suits_contrasts(schema: Schema, rows: int, budget: Budget, columns: int, most: int | None) -> bool:
    """Whether contrasts of all pairs of columns are more accurate than their tables, or `most` of them.

    They are under pure ε where noise allows not all tables, or its predicted standard deviation is above CONTRAST_SD of
    the rows, so that it dominates a table. Gaussian noise of a contrast equals that of a cell. Source:
    docs/decisions/009-contrasts-where-tables-drown.md, 030-hidden-causes-behind-contrasts.md.
    """
    if not budget.pure:
        return False
    noise = schema_counter_noise(schema, budget, comb(columns, 2), PURE_SHARES[1])
    return most is not None or noise > CONTRAST_SD * rows


def whole_number_bins(schema: Schema) -> int:
    """Number of bins that gives each value of ages, hours and the like its own cell."""
    return max((column.levels for column in schema.scalars if _few_whole_numbers(column)), default=2) - 2


def _few_whole_numbers(column: Column) -> bool:
    return isinstance(column, Integer) and column.levels <= FEW_WHOLE_NUMBERS


def fine_columns(schema: Schema, bins: int) -> tuple[int, int, tuple[str, ...]]:
    """Bins of marginals, bins of pair tables, and the columns that have these.

    Tables have several cells per bin of the marginals, up to MOST_FINER_CELLS in all. Where records are concentrated in
    few bins, a release can still split them, and pooled cells add no noise. Otherwise tables have at most
    MOST_FINE_CELLS: with fewer bins if that is enough, else without the columns of the most values; none if there are
    too many columns.
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


def fourier_size(signal: float) -> int:
    """Number of frequencies from rows · ε. The noise of a normalised sum, 2m/(nε), is at most one percent."""
    return int(min(max(signal * 0.005, 20), 500))
