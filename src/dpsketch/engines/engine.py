"""Engines and passes: one pass over a table, whatever machines or threads do the work.

An engine reads a source in any batches, folds them into partial sums wherever it likes (`Pass.partial`) and merges
those in any order (`PartialSums.merge`). The sums are the same bytes for every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from functools import partial as call
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.arrow import unit_ids
from dpsketch.encoding.layouts import Cells
from dpsketch.encoding.records import Records
from dpsketch.encoding.rows import encode
from dpsketch.engines.readers import Progress, counted, read_batches
from dpsketch.engines.row_sampling import Reservoir, kept_rows, kept_units
from dpsketch.engines.shared_sums import SharedSums
from dpsketch.engines.units import UnitSelection, belong, unit_shares
from dpsketch.errors import MergeError, RecipeError, SourceError
from dpsketch.maps.base import BoundMap, Sums
from dpsketch.noise.keystream import Keystream
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch import counters
from dpsketch.sketch.merging import new_lineage
from dpsketch.sketch.raw import RawSketch, empty_sums

_SHARES_HINT = "send each row to the share that Pass.row_shares names, and fold each share once"


@dataclass(frozen=True)
class Share:
    """Share `index` of `count`: the rows that `Pass.row_shares(batch, count)` assigns to it."""

    index: int
    count: int


WHOLE = Share(0, 1)


class Engine(Protocol):
    """Distributes a pass over machines or threads. `Local` is an example."""

    def run(self, one_pass: Pass, source: Any, progress: Progress) -> PartialSums:
        """The sums of the whole source; `progress` receives the fraction of it that was read."""


class Workers:
    """Runs the jobs of a partial sum, here one after the other. An engine with threads overrides all methods."""

    threads: int = 1
    batch_rows: int = 1 << 16

    def run(self, job: Callable[[], None]) -> None:
        """Run a job now or later."""
        job()

    def finish(self) -> None:
        """Wait for all jobs and re-raise the first error."""


@dataclass(frozen=True, eq=False)
class PartialSums:
    """Exact sums of some rows of a pass: secret, mergeable, and picklable for engines on several machines.

    `lineage` is that of the pass: every partial sum of one pass carries the same id, and none of another pass does.
    `shares` records which rows they hold, where that matters (`Pass.needs_whole_units`, `Pass.needs_whole_table`).
    Guarantee: none, as for a raw sketch.
    """

    lineage: frozenset[str]
    fingerprints: tuple[str, ...]
    sums: tuple[Sums, ...]
    shares: frozenset[Share] = frozenset()

    def __repr__(self) -> str:
        return f"PartialSums({len(self.sums)} parts): exact sums, NOT PRIVATE until released"

    def merge(self, other: PartialSums) -> PartialSums:
        """The sums of the rows of both. Refuses sums in which a unit could count twice."""
        if self.lineage != other.lineage:
            raise MergeError("the partial sums are of different passes", "merge those of one accumulate call")
        if self.fingerprints != other.fingerprints:
            raise MergeError(
                "the partial sums were made with different map parameters", "run one version of dpsketch everywhere"
            )
        if self.shares & other.shares or len({share.count for share in self.shares | other.shares}) > 1:
            raise MergeError("the partial sums may hold rows of the same units", _SHARES_HINT)
        sums = tuple(
            counters.add(mine, theirs, counters.narrow(mine))
            for mine, theirs in zip(self.sums, other.sums, strict=True)
        )
        return PartialSums(self.lineage, self.fingerprints, sums, self.shares | other.shares)


@dataclass(frozen=True)
class Pass:
    """One pass over a table: select rows, encode them, bound units, sample, add. Public and picklable.

    Each `accumulate` call creates one, so `lineage` holds one random id for its input.
    """

    schema: Schema
    recipe: Recipe
    lineage: frozenset[str] = field(default_factory=new_lineage)

    def __reduce__(self) -> tuple[type[Pass], tuple[Schema, Recipe, frozenset[str]]]:
        """Pickle without the maps, which are bound again from their public seeds."""
        return Pass, (self.schema, self.recipe, self.lineage)

    @cached_property
    def bound(self) -> BoundRecipe:
        """The recipe on this schema, with maps whose sums of the declared rows fit 63 bits."""
        bound = self.recipe.bind(self.schema)
        for feature_map in bound.maps:
            if declared_rows(self.schema) * feature_map.largest >= 2**63:
                raise RecipeError(
                    f"map {feature_map.description.name}: {self.schema.rows} declared rows do not fit 63 bits",
                    "declare fewer rows",
                )
        return bound

    @property
    def maps(self) -> tuple[BoundMap, ...]:
        return self.bound.maps

    @cached_property
    def fingerprints(self) -> tuple[str, ...]:
        return tuple(feature_map.fingerprint() for feature_map in self.maps)

    @property
    def needs_whole_units(self) -> bool:
        """Whether all rows of a unit must be in the same partial sum, because which of them count depends on the
        others.
        """
        return self.schema.unit_column is not None

    @property
    def needs_whole_table(self) -> bool:
        """Whether all rows must be in the same partial sum, because a sample of a fixed size is drawn."""
        return self.recipe.sampling is not None and self.recipe.sampling.count is not None

    @property
    def columns(self) -> list[str]:
        """The columns that a source must have."""
        unit = () if self.schema.unit_column is None else (self.schema.unit_column,)
        return [*self.schema.stored, *unit]

    @property
    def secret(self) -> bool:
        """Whether rows or features are sampled: folding the same rows twice then gives two different sums."""
        return self.recipe.sampling is not None or any(feature_map.secret for feature_map in self.maps)

    def empty(self) -> PartialSums:
        """The partial sums of no rows."""
        sums = tuple(empty_sums(feature_map, declared_rows(self.schema)) for feature_map in self.maps)
        return PartialSums(self.lineage, self.fingerprints, sums)

    def batches(self, source: Any, progress: Progress) -> Iterator[pa.RecordBatch]:
        """The needed columns of any tabular source, for `partial`."""
        sets = [column.name for column in self.schema.sets]
        return read_batches(source, self.columns, progress, sets, self.schema.csv)

    def row_shares(self, batch: pa.RecordBatch, count: int) -> NDArray[np.int64]:
        """The share, from 0 to count-1, to which each row of a batch belongs; partial sums of shares may be merged.

        A unit's share depends on its id alone, however a cell spells it.
        """
        if self.needs_whole_units:
            return unit_shares(self._unit_ids(batch), count)
        if self.needs_whole_table:
            return np.zeros(batch.num_rows, np.int64)
        return np.arange(batch.num_rows) * count // max(batch.num_rows, 1)

    def partial(
        self, batches: Iterable[pa.RecordBatch], share: Share = WHOLE, workers: Workers | None = None
    ) -> PartialSums:
        """Fold batches into a partial sum.

        `share` is the share of the table that they hold, if the pass needs whole units or the whole table; a row that
        belongs to another share is refused. Otherwise any batches may be folded and merged in any way.
        """
        workers = workers or Workers()
        sums = SharedSums(self.maps, declared_rows(self.schema), workers.threads)
        for records in self._records(_slices(batches, workers.batch_rows), share, workers):
            workers.run(call(self._add, records, sums))
        workers.finish()
        shares = frozenset([share]) if self.needs_whole_units or self.needs_whole_table else frozenset[Share]()
        return PartialSums(self.lineage, self.fingerprints, sums.total(), shares)

    def sketch(self, total: PartialSums) -> RawSketch:
        """The raw sketch of the whole table."""
        if total.lineage != self.lineage or total.fingerprints != self.fingerprints:
            raise MergeError(
                "the partial sums are of a different pass", "return the sums of the pass that was handed in"
            )
        return RawSketch.of(self.bound.settled(self.maps), total.sums, self.lineage)

    def _records(
        self, batches: Iterator[pa.RecordBatch], share: Share, workers: Workers
    ) -> Iterator[Callable[[], Records]]:
        """Calls that return the selected records, a piece at a time, in any order and thread."""
        if self.needs_whole_units:
            return self._of_units(batches, share, workers)
        if self.needs_whole_table:
            return self._of_reservoir(batches, share, workers)
        return (call(self._sampled, batch) for batch in batches)

    def _of_units(
        self, batches: Iterator[pa.RecordBatch], share: Share, workers: Workers
    ) -> Iterator[Callable[[], Records]]:
        """At most `max_rows_per_unit` rows of each unit; if units are sampled, all of these or none."""
        selection = UnitSelection(self.schema.max_rows_per_unit)
        for batch in batches:
            workers.run(call(self._collect, batch, share, selection))
        workers.finish()
        sampling = self.recipe.sampling
        for numbers, records in selection.kept():
            chosen = np.arange(len(numbers))
            if sampling is not None:
                chosen = kept_units(numbers, sampling.threshold, Keystream())
            yield from _pieces(records, chosen, workers.batch_rows)

    def _of_reservoir(
        self, batches: Iterator[pa.RecordBatch], share: Share, workers: Workers
    ) -> Iterator[Callable[[], Records]]:
        """A sample of a fixed number of rows. Rows arrive in the order of the source, which breaks ties."""
        sampling = self.recipe.sampling
        assert sampling is not None
        assert sampling.count is not None
        reservoir = Reservoir(sampling.count, Keystream())
        for batch in batches:
            if share.index != 0 and batch.num_rows:
                raise SourceError("a sample of a fixed count of rows is drawn from the first share alone", _SHARES_HINT)
            reservoir.add(self._kept(batch))
        sample = reservoir.kept()
        if sample is not None:
            yield from _pieces(sample, np.arange(len(sample)), workers.batch_rows)

    def _kept(self, batch: pa.RecordBatch) -> Records:
        """The rows of a batch that the recipe selects."""
        records, only = encode(self.schema, batch), self.recipe.only
        return records if only is None else records.take(only.places(self.schema, records))

    def _sampled(self, batch: pa.RecordBatch) -> Records:
        """The rows of a batch that count: all that the recipe selects, or each of them with the sampling rate's
        probability.
        """
        records, sampling = self._kept(batch), self.recipe.sampling
        if sampling is None:
            return records
        return records.take(kept_rows(len(records), sampling.threshold, Keystream()))

    def _collect(self, batch: pa.RecordBatch, share: Share, selection: UnitSelection) -> None:
        """Pass the rows of a batch that the recipe selects to the selection of units."""
        records, ids, only = encode(self.schema, batch), self._unit_ids(batch), self.recipe.only
        if share.count > 1 and not belong(ids, share.index, share.count):
            raise SourceError("a row belongs to another share: its unit could count twice", _SHARES_HINT)
        if only is not None:
            if only.column in self.schema.constant_per_unit:
                selection.drop(ids.take(only.places_elsewhere(self.schema, records)))
            selected = only.places(self.schema, records)
            ids, records = ids.take(selected), records.take(selected)
        selection.add(ids, records)

    def _unit_ids(self, batch: pa.RecordBatch) -> Cells:
        return unit_ids(batch.column(self.schema.unit), self.schema.unit_kind)

    def _add(self, make_records: Callable[[], Records], sums: SharedSums) -> None:
        records = make_records()
        if len(records) == 0:
            return
        if any(feature_map.secret for feature_map in self.maps):  # a separate stream: fresh masks, and no waiting
            records = replace(records, secret=Keystream())
        sums.add(records)


def accumulate(
    source: Any, schema: Schema, recipe: Recipe, engine: Engine | None = None, progress: Progress | None = None
) -> RawSketch:
    """Compute the exact sums of every map of `recipe` in one pass over `source`.

    `source` is a path, pattern or URL of CSV or Parquet files, a folder or a list of them, the folder or URL of a Delta
    Lake or Iceberg table, a `Database`, a dataset, anything with `__arrow_c_stream__` (Arrow, polars, DuckDB), a lazy
    polars frame, a pandas frame, a database cursor, a dict of arrays, or an iterable of batches: docs/sources.md.
    `engine` does the work, by default `Local`. The sums are the same bytes for any engine, batch size, number of
    threads and order of rows, except that sampled rows and the masks of subsampled maps are drawn afresh, in secret.
    `progress` receives the fraction of the source that was read.
    """
    engine = engine or default_engine(source)
    one_pass = Pass(replace(schema, rows=declared_rows(schema, recipe.rows)), recipe)
    _ = one_pass.maps  # refuse an impossible recipe before anything is read
    raw = one_pass.sketch(engine.run(one_pass, source, progress or (lambda share: None)))
    return replace(raw, inputs=(counted(source),))


def append(
    raw: RawSketch,
    source: Any,
    engine: Engine | None = None,
    progress: Progress | None = None,
    disjoint_units: bool = False,
    new_rows: bool = False,
) -> RawSketch:
    """The raw sketch of a table to which the rows of `source` were added.

    Refused are files that were counted before, whatever their name is now, other versions of such files, and tables and
    queries that were counted. The rows of objects in memory are not recognised: `new_rows=True` asserts that none of
    them was counted. With a unit column, no unit may have rows in both, which `disjoint_units=True` asserts.
    """
    now = counted(source)
    if not new_rows and not now.hashes and not now.tables:
        raise SourceError(
            f"whether rows of a {type(source).__name__} were counted before is unknown",
            "if none was, say so: new_rows=True; files, tables and queries are recognised",
        )
    for before in raw.inputs:
        if counted(source, before.key).hashes & before.hashes:
            raise SourceError("a file was counted before, perhaps in another version", "name only new files")
        if set(now.tables) & set(before.tables):
            raise SourceError("this table or query was counted before", "ask for the new rows alone: --query")
    added = accumulate(source, raw.schema, raw.recipe, engine, progress)
    return replace(raw.merge(added, disjoint_units), schema=raw.schema)


def default_engine(source: Any) -> Engine:
    """The engine whose own data frame a source is, or its edges are; otherwise this machine."""
    package = type(getattr(source, "edges", source)).__module__.partition(".")[0]
    if package == "pyspark":
        from dpsketch.engines.spark import Spark

        return Spark()
    if package in ("dask", "dask_expr"):
        from dpsketch.engines.dask import Dask

        return Dask()
    from dpsketch.engines.local import Local

    return Local()


def _slices(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _pieces(records: Records, chosen: NDArray[np.int64], rows: int) -> Iterator[Callable[[], Records]]:
    """Calls that return the chosen records, `rows` at a time."""
    for start in range(0, len(chosen), rows):
        yield call(records.take, chosen[start : start + rows])
