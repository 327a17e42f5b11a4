"""What to sketch: maps, each with its share of the budget. Sizes and shares come from public numbers only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.displays import brief, counted, html_table
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.files.toml_file import read_toml
from dpsketch.maps.base import BoundMap, FeatureMap, check_whole, check_work, named_errors
from dpsketch.maps.hashed.hashes import HashFamily
from dpsketch.maps.registry import MAPS, map_from_dict
from dpsketch.maps.tables.pairs import BoundPairs
from dpsketch.privacy.budget import Budget
from dpsketch.recipe import ready
from dpsketch.schema.columns import Boolean, Category
from dpsketch.schema.schema import Schema, nearest

MOST_PARTS = 100
_MOST_LETTERS = 200  # of a snapshot's name


@dataclass(frozen=True)
class Part:
    """A map and the share of the budget that its noise may use."""

    map: FeatureMap
    share: float

    def __post_init__(self) -> None:
        if not isinstance(self.map, FeatureMap):
            raise RecipeError(f"Part: map must be a feature map such as Count(), got {self.map!r} instead")
        if isinstance(self.share, bool) or not isinstance(self.share, Real) or not 1e-9 <= self.share <= 1:
            raise RecipeError(f"Part: share must be above 0 and at most 1, got {self.share!r} instead")
        object.__setattr__(self, "share", float(self.share))  # a NumPy number has another repr

    def __repr__(self) -> str:
        return f"Part({brief(self.map)}, {self.share})"

    @property
    def exact_share(self) -> Fraction:
        """The share as written: 0.03 is three hundredths."""
        return Fraction(repr(self.share))


@dataclass(frozen=True)
class RowSampling:
    """A random part of the rows: each with probability `rate`, or `count` of them without replacement.

    Rows are chosen by secret randomness; with a unit column `rate` keeps or drops whole units. A rate, between tables
    with one unit more or less, lowers the noise that a budget needs: docs/proofs/accounting.md.
    """

    rate: float | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.count is None):
            raise RecipeError("RowSampling needs either rate or count", "pass rate=0.1 or count=10_000")
        if self.rate is not None:
            if isinstance(self.rate, bool) or not isinstance(self.rate, Real) or not 2.0**-32 <= self.rate <= 1:
                raise RecipeError(f"RowSampling: rate must be from 2^-32 to 1, got {self.rate!r} instead")
            object.__setattr__(self, "rate", float(self.rate))
        else:
            check_whole("RowSampling", "count", self.count, 1, 10**9)

    @property
    def threshold(self) -> int:
        """A row is kept if a uniform 32-bit word is below this."""
        return round((self.rate or 0.0) * 2**32)

    @property
    def exact_rate(self) -> Fraction:
        """The rate as it is drawn: a multiple of 2^-32."""
        return Fraction(self.threshold, 2**32)

    def weight(self, rows: int) -> float:
        """How many of `rows` declared rows a sampled one stands for."""
        return float(1 / self.exact_rate) if self.count is None else max(1.0, rows / self.count)

    def to_dict(self) -> dict[str, Any]:
        return {"rate": self.rate} if self.count is None else {"count": self.count}

    @classmethod
    def from_dict(cls, facts: object) -> RowSampling:
        if not isinstance(facts, Mapping) or not set(facts) <= {"rate", "count"}:
            raise RecipeError("sampling has the parameters rate and count", "write rate = 0.1 or count = 10000")
        return cls(**facts)


@dataclass(frozen=True)
class Only:
    """The rows in which a category or boolean column has this value: one part of a partition.

    With `snapshot` you assert that the whole of a table is read, and that everything released of a dataset with this
    snapshot's name is read from the whole of the same, unchanged table. Then releases of different parts cost as much
    as the most costly of them. Without a snapshot, or with different ones, they add up: a person may have moved from
    one part to another, or be in both of two files.
    """

    column: str
    value: str
    snapshot: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not isinstance(self.value, str):
            raise RecipeError("Only needs the name of a column and a value, both texts", 'pass Only("region", "north")')
        name = self.snapshot
        if name is not None and not (isinstance(name, str) and name.isprintable() and 1 <= len(name) <= _MOST_LETTERS):
            raise RecipeError(
                f"Only: a snapshot's name must have 1 to {_MOST_LETTERS} printable characters",
                'pass its date: Only("region", "north", snapshot="2026-11-01")',
            )

    def level(self, schema: Schema) -> int:
        """The value's place among those of the column."""
        column = schema.column(self.column)
        if not isinstance(column, Category | Boolean):
            raise RecipeError(f"Only: '{self.column}' is not a category or boolean column", "partition by one that is")
        if self.value not in column.labels:
            raise RecipeError(
                f"Only: column '{self.column}' has no value '{self.value}'",
                nearest(self.value, column.labels, "values"),
            )
        return column.labels.index(self.value)

    def places(self, schema: Schema, records: Records) -> NDArray[np.int64]:
        """Of the records with this value."""
        return np.flatnonzero(self._levels(schema, records) == self.level(schema))

    def places_elsewhere(self, schema: Schema, records: Records) -> NDArray[np.int64]:
        """Of the records with another value; a missing cell is in no part."""
        levels = self._levels(schema, records)
        return np.flatnonzero((levels >= 0) & (levels != self.level(schema)))

    def _levels(self, schema: Schema, records: Records) -> NDArray[np.int64]:
        return schema.column(self.column).levels_of(records.codes[schema.index(self.column)])

    def to_dict(self) -> dict[str, Any]:
        snapshot = {} if self.snapshot is None else {"snapshot": self.snapshot}
        return {"column": self.column, "value": self.value} | snapshot

    @classmethod
    def from_dict(cls, facts: object) -> Only:
        if not isinstance(facts, Mapping) or not {"column", "value"} <= set(facts) <= {"column", "value", "snapshot"}:
            raise RecipeError(
                "only has the parameters column, value and perhaps snapshot",
                'write column = "region", value = "north"',
            )
        return cls(**facts)


@dataclass(frozen=True)
class Recipe:
    """The parts of a sketch. `rows`, if given, overrides the schema's declared number of rows. `sampling`, if given,
    sketches a random part of the rows, `only` those with one value in a column.
    """

    parts: tuple[Part, ...]
    rows: int | None = field(default=None, compare=False)
    sampling: RowSampling | None = None
    only: Only | None = None

    def __init__(
        self,
        parts: Sequence[Part],
        rows: int | None = None,
        sampling: RowSampling | None = None,
        only: Only | None = None,
    ) -> None:
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "sampling", sampling)
        object.__setattr__(self, "only", only)
        if only is not None and not isinstance(only, Only):
            raise RecipeError(f"Recipe: only must be Only(column, value), got {only!r} instead")
        if sampling is not None and not isinstance(sampling, RowSampling):
            raise RecipeError(f"Recipe: sampling must be RowSampling(…), got {sampling!r} instead")
        if not self.parts or not all(isinstance(part, Part) for part in self.parts):
            raise RecipeError("Recipe: parts must be a list of Part(map, share=…), at least one")
        if len(self.parts) > MOST_PARTS:
            raise RecipeError(
                f"Recipe: {len(self.parts)} parts are more than {MOST_PARTS}", "use maps of several columns"
            )
        total = sum(part.exact_share for part in self.parts)
        if total > 1:
            raise RecipeError(f"Recipe: the shares add up to {float(total):g}, more than 1", "lower some shares")

    def __repr__(self) -> str:
        options = {"sampling": self.sampling, "only": self.only}
        given = "".join(f", {name}={brief(value)}" for name, value in options.items() if value is not None)
        return f"Recipe([{', '.join(map(repr, self.parts))}]{given})"

    def _repr_html_(self) -> str:
        rows = [(brief(part.map), f"{part.share:.3g}") for part in self.parts]
        return html_table(f"Recipe of {counted(len(rows), 'part')}", ("map", "share of the budget"), rows)

    def bind(self, schema: Schema) -> tuple[BoundMap, ...]:
        """Every map on this schema."""
        if self.sampling is not None and self.sampling.count is not None and schema.unit_column is not None:
            raise RecipeError(
                f"a fixed count of rows cannot be sampled with the unit column '{schema.unit_column}'",
                "sample by rate: whole units are then kept or dropped",
            )
        if self.only is not None:
            self.only.level(schema)
        bound = []
        check_work([part.map for part in self.parts], schema)
        for part in self.parts:
            with named_errors(part.map):
                bound.append(part.map.bind(schema))
        for each in bound:
            if each.grouped_by is not None and each.core.pending:
                raise RecipeError("Grouped: pairs that a release pools cannot be grouped", "give groups, not pool")
            if isinstance(each, BoundPairs) and each.description.pool and each.marginals_in(bound) is None:
                raise RecipeError(
                    "Pairs: pool needs Marginals of the same columns with as many bins, or a fraction of them",
                    f"add Part(Marginals(bins={each.description.bins}), share=0.4) to the recipe, or leave out pool",
                )
        return tuple(bound)

    def settled(self, maps: Sequence[BoundMap]) -> Recipe:
        """This recipe with the choices that its maps made when they were bound: what a sketch keeps."""
        parts = [Part(bound.description, part.share) for part, bound in zip(self.parts, maps, strict=True)]
        return Recipe(parts, self.rows, self.sampling, self.only)

    def to_dict(self) -> dict[str, Any]:
        parts = [{"share": part.share} | part.map.to_dict() for part in self.parts]
        sampling = {} if self.sampling is None else {"sampling": self.sampling.to_dict()}
        only = {} if self.only is None else {"only": self.only.to_dict()}
        return json.loads(json.dumps({"parts": parts} | sampling | only))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Recipe:
        parts = []
        for part in facts["parts"]:
            values = dict(part)
            share = values.pop("share")
            parts.append(Part(map_from_dict(values), share))
        sampling = RowSampling.from_dict(facts["sampling"]) if "sampling" in facts else None
        only = Only.from_dict(facts["only"]) if "only" in facts else None
        return cls(parts, sampling=sampling, only=only)

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a TOML recipe: one [[parts]] section a map, with its share, perhaps [sampling] and [only]; see
        docs/recipes.md.
        """
        path = Path(path)
        facts = read_toml(
            path,
            RecipeError,
            "name a TOML file with [[parts]]",
            'each part is [[parts]], then map = "…" and share = …',
        )
        parts = facts.get("parts")
        if (
            not set(facts) <= {"parts", "sampling", "only"}
            or not isinstance(parts, list)
            or not all(isinstance(part, Mapping) for part in parts)
        ):
            raise RecipeError(f"{path}: a recipe is a list of [[parts]] sections", "start each with [[parts]]")
        for part in parts:
            if not isinstance(part.get("map"), str) or "share" not in part:
                raise RecipeError(f"{path}: every part needs map and share", 'write map = "race" and share = 1.0')
        try:
            return cls.from_dict(facts | {"parts": [_versioned(part) for part in parts]})
        except RecipeError as error:
            raise RecipeError(f"{path}: {error.fact}", error.hint) from None

    @classmethod
    def general(
        cls, schema: Schema, rows: int | None = None, budget: Budget | None = None, frequencies: int | None = None
    ) -> Recipe:
        """Count, marginals and tables of pairs of columns: answers most questions.

        `rows` is a public order of magnitude; sizes follow from it, the budget and the columns. `frequencies` adds as
        many Fourier frequencies, with three tenths of the pairs' share. Tables too wide for pairs get them instead;
        a table of one column is refused any.
        """
        rows, budget = _known("general", schema, rows, budget)
        return cls._of(ready.general(schema, rows, budget, frequencies), rows)

    @classmethod
    def clusters(
        cls,
        schema: Schema,
        rows: int | None = None,
        budget: Budget | None = None,
        n_clusters: int = 8,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """For `KMeans` and `GaussianMixture` of the named columns, by default of every number, integer and date: a
        count and Fourier sums; of up to three columns a count, a table and a coarser one.

        The number of frequencies (`cluster_frequencies`) or bins (`cluster_bins`) follows from declared rows, budget,
        clusters and columns.
        """
        rows, budget = _known("clusters", schema, rows, budget)
        return cls._of(ready.clusters(schema, rows, budget, n_clusters, columns), rows)

    @classmethod
    def pca(
        cls,
        schema: Schema,
        rows: int | None = None,
        budget: Budget | None = None,
        n_components: int = 2,
        columns: Sequence[str] | None = None,
        radius: float | None = None,
        of: str = "covariance",
    ) -> Recipe:
        """Count, second moments and means of number columns, for `PCA(n_components, of=of)`; for "second_moments" no
        means.

        Records are clipped to a ball of `radius` half-widths of their bounds; by default nothing is. A smaller one
        needs less noise, in proportion to its square. Uncentred second moments of many columns give way to squares of
        projections where they would be lost in noise (`pca_directions`).
        """
        rows, budget = _known("pca", schema, rows, budget)
        return cls._of(ready.pca(schema, rows, budget, n_components, columns, radius, of), rows)

    @classmethod
    def density(
        cls,
        schema: Schema,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
        bandwidth: float | None = None,
        hash: HashFamily | None = None,
    ) -> Recipe:
        """For `KernelDensity` and `find_modes` of the named columns, by default of every number, integer and date: a
        count, and a table of up to three columns or hashed counters, whichever is predicted to be nearer
        (`density_plan` tells by how much). Of more columns, with a Euclidean kernel, also marginals: records made up
        from them correct the hashes.

        `bandwidth` is in widths of the declared bounds, by default 0.05·√columns; `hash` is any other kernel in its
        place, as Euclidean(5000, scaled=False). Cells of tables (`table_bins`) and rows of hashed counters
        (`race_rows`) follow from declared rows, budget and bandwidth.
        """
        rows, budget = _known("density", schema, rows, budget)
        return cls._of(ready.density(schema, rows, budget, columns, bandwidth, hash), rows)

    @classmethod
    def anomaly(
        cls,
        schema: Schema,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """For `AnomalyScorer` of the named columns, by default of all that are not sets: hashed counters, and with
        three tenths of the budget the general recipe, which thresholds are found from; of up to three columns of
        numbers, as `Recipe.density`.
        """
        rows, budget = _known("anomaly", schema, rows, budget)
        return cls._of(ready.anomaly(schema, rows, budget, columns), rows)

    @classmethod
    def bounds(cls, schema: Schema, columns: Sequence[str] | None = None) -> Recipe:
        """For `tighten`: the marginals of the named columns, by default of all numbers, integers and dates. A tenth of
        the budget is usually enough; the rest is for a second release, by the tighter schema.
        """
        return cls._of(ready.bounds(schema, columns))

    @classmethod
    def graph(cls, schema: Schema, rows: int | None = None, budget: Budget | None = None) -> Recipe:
        """For Jaccard densities of nodes by their neighbour sets: MinHash counters. `schema` is that of
        `engines.graph.graph_schema`, with one column of sets. What is protected is one list of neighbours, not a node.
        """
        rows, budget = _known("graph", schema, rows, budget)
        return cls._of(ready.graph(schema, rows, budget), rows)

    @classmethod
    def synthetic(
        cls,
        schema: Schema,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Count and a grid of the named columns, by default of all: for rows that are as the table's in all columns
        together (`view.sample`, `GridDensity`). Levels and width follow from the predicted error: `dps.plan_grid`.

        With more than four columns of numbers, or with few rows for the budget, a grid's cells hold too few records
        each: the recipe then has the parts of `Recipe.general` for these columns (`grid_sizes.suits_grid`).
        """
        rows, budget = _known("synthetic", schema, rows, budget)
        return cls._of(ready.synthetic(schema, rows, budget, columns), rows)

    @classmethod
    def classify(
        cls,
        schema: Schema,
        target: str,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Counts and hashed counters of each class, for `DensityClassifier(target)`: by default of all columns but the
        target.

        A record is in one class, so that classes share no budget. Numbers of tables and counters follow from declared
        rows, budget and classes (`classifier_sizes`). Hashes are signs of projections; what they see of few columns,
        booleans and categories: `maps.ramps`.
        """
        rows, budget = _known("classify", schema, rows, budget)
        return cls._of(ready.classify(schema, target, rows, budget, columns), rows)

    @classmethod
    def linear(
        cls,
        schema: Schema,
        target: str,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Count, second moments and means, for `LinearRegression(target)` on the named columns, by default on every
        number and integer. Records longer than three quarters of the longest possible one are shortened.
        """
        rows, budget = _known("linear", schema, rows, budget)
        return cls._of(ready.linear(schema, target, rows, budget, columns), rows)

    @classmethod
    def hashed_linear(
        cls,
        schema: Schema,
        target: str,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Hashed counters of inner products for `HashedLinear(target)`: of the named columns, by default every number
        and integer, with a one and a numeric target; or of the columns by the two classes of the target. For comparison
        with the race paper: `Recipe.linear` and `Recipe.classify` are more accurate.
        """
        rows, budget = _known("hashed_linear", schema, rows, budget)
        return cls._of(ready.hashed_linear(schema, target, rows, budget, columns), rows)

    @classmethod
    def _of(cls, shares: ready.Shares, rows: int | None = None) -> Recipe:
        return cls([Part(each, share) for each, share in shares], rows)


def _known(name: str, schema: Schema, rows: int | None, budget: Budget | None) -> tuple[int, Budget]:
    """What the sizes of a ready-made recipe follow from."""
    rows = declared_rows(schema, rows)
    if budget is None:
        raise RecipeError(f"Recipe.{name} needs a budget", "pass budget=Budget(epsilon=1.0)")
    return rows, budget


def _versioned(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part as a person writes it: the current version and defaults of its map, also inside `of`."""
    facts = dict(part)
    kind = MAPS.get(str(facts.get("map")))
    if kind is not None:
        facts.setdefault("version", kind.version)
        for entry in fields(kind):  # type: ignore[arg-type]
            if entry.name in kind.absent:  # in a sketch its absence means something else than in a person's file
                facts.setdefault(entry.name, entry.default)
    if isinstance(facts.get("of"), Mapping):
        facts["of"] = _versioned(facts["of"])
    return facts


def declared_rows(schema: Schema, rows: int | None = None) -> int:
    """The public order of magnitude of the rows: as passed, or as the schema says."""
    rows = schema.rows if rows is None else rows
    if rows is None:
        raise RecipeError(
            "the number of rows must be declared",
            "pass rows (--rows) or set privacy.rows in the schema: a public order of magnitude",
        )
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= 10**15:
        raise RecipeError(f"rows must be a whole number from 1 to 10^15, got {rows!r} instead")
    return rows
