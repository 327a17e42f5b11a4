"""The public terms of a market: what is sold, to how many points, under which budgets. All parties hold the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dpsketch.errors import RecipeError
from dpsketch.federate.market.feature_hash import FeatureHash
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import budget_facts
from dpsketch.recipe.recipe import declared_rows
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

COUNTS = ("noised", "public")
MOST_POINTS = 10**6
MOST_OVER = 10.0


@dataclass(frozen=True)
class Terms:
    """`schema` declares the columns that owners sell, `label` the one that is not matched. `size` is p, the points of
    the summary, and `over` is c: owners ship c·p points, of which the aggregator keeps p.

    `validation_rows` is the consumer's public order of magnitude. `count` "noised" protects the number of records of
    the validation set; with "public" it is shown, and neighbouring sets differ by replacing a record.
    """

    schema: Schema
    label: str | None
    width: float
    size: int
    owner_budget: Budget
    consumer_budget: Budget
    validation_rows: int
    features: int = 512
    seed: int = 0
    over: float = 1.25
    redraws: int = 60
    count: str = "noised"

    def __post_init__(self) -> None:
        if self.count not in COUNTS:
            raise RecipeError(f"count must be one of {', '.join(COUNTS)}, got {self.count!r} instead")
        if not 1 <= self.size <= MOST_POINTS:
            raise RecipeError(f"a summary has 1 to {MOST_POINTS} points, got {self.size!r} instead")
        if not 1 <= self.over <= MOST_OVER:
            raise RecipeError(f"over must be from 1 to {MOST_OVER:g}, got {self.over!r} instead")
        if not self.owner_budget.private or not self.consumer_budget.private:
            raise RecipeError("a market needs finite budgets", "pass epsilon and delta")
        declared_rows(self.schema)
        _ = self.hashed

    @cached_property
    def hashed(self) -> FeatureHash:
        return FeatureHash(self.schema, self.width, self.features, self.seed, self.label)

    @property
    def strata(self) -> tuple[str, ...]:
        """The strata of every owner: the labels, and last the records without one."""
        if self.label is None:
            return ("all",)
        column = self.schema.column(self.label)
        return (*column.labels, "missing")  # type: ignore[attr-defined]

    @property
    def shipped(self) -> int:
        """c·p, the points that all owners ship together."""
        return max(self.size, round(self.size * self.over))

    @property
    def consumer_schema(self) -> Schema:
        """The schema of a validation set: without labels, a row for each record."""
        relation = Relation.REPLACE_ONE if self.count == "public" else Relation.ADD_REMOVE
        schema = replace(self.hashed.unlabelled(), rows=self.validation_rows, relation=relation)
        return replace(schema, unit="row", max_rows_per_unit=1, unit_kind="text", workload=())

    def to_dict(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in _PLAIN}
        budgets = {name: budget_facts(getattr(self, name)) for name in ("owner_budget", "consumer_budget")}
        return {"schema": self.schema.to_dict()} | facts | budgets

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Terms:
        values: dict[str, Any] = dict(facts)
        schema = Schema.from_dict(values.pop("schema"))
        owner, consumer = (Budget(**values.pop(name)) for name in ("owner_budget", "consumer_budget"))
        return cls(schema=schema, owner_budget=owner, consumer_budget=consumer, **values)

    @cached_property
    def digest(self) -> str:
        """A hash that every message carries: parties whose terms differ refuse each other."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


_PLAIN = (
    "label",
    "width",
    "size",
    "validation_rows",
    "features",
    "seed",
    "over",
    "redraws",
    "count",
)
