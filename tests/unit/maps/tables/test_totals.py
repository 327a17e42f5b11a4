"""Sums of columns: against adding up by hand, what is refused, and how little noise they get."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.tables.totals import Totals
from dpsketch.privacy.events import Mechanism
from dpsketch.schema.schema import Schema
from dpsketch.sketch.release import planned


def test_totals_add_up_codes_and_leave_out_missing_cells(schema: Schema, rng: np.random.Generator) -> None:
    bound = Totals().bind(schema)
    codes = rng.integers(-32768, 32768, (len(schema.columns), 700)).astype(np.int16)
    codes[:, rng.random(700) < 0.2] = -32768
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(codes), sums)
    for place, name in enumerate(bound.columns):
        own = codes[schema.index(name)].astype(np.int64)
        assert sums[place] == own[own != -32768].sum()
    assert (bound.features(Records(codes)) * bound.grid).sum(0) == pytest.approx(sums)


def test_every_number_is_added_up_and_nothing_else(schema: Schema) -> None:
    assert Totals().bind(schema).columns == tuple(c.name for c in schema.scalars if c.numeric)
    assert Totals(["height"]).bind(schema).columns == ("height",)


def test_what_is_no_number_is_refused(schema: Schema) -> None:
    with pytest.raises(RecipeError, match="Totals: column 'sex' is not a number"):
        Totals(["sex"]).bind(schema)
    labels = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"a": {"kind": "boolean"}}})
    with pytest.raises(RecipeError, match="Totals needs a column of numbers"):
        Totals().bind(labels)
    with pytest.raises(RecipeError, match="Marginals: totals must be true or false, got 1 instead"):
        dps.Marginals(totals=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("delta", "mechanism"), [(0, Mechanism.CUBE), (1e-6, Mechanism.GAUSSIAN)])
def test_a_general_recipe_has_totals_of_their_own(schema: Schema, delta: float, mechanism: Mechanism) -> None:
    budget = dps.Budget(0.5, delta)
    recipe = dps.Recipe.general(schema, rows=10_000, budget=budget)
    assert [part.map.name for part in recipe.parts] == ["count", "levels", "adaptive_marginals", "pairs", "totals"]
    event = planned(schema, recipe, budget)
    assert event is not None
    assert event.noises[4].mechanism is mechanism


def test_labels_alone_have_no_totals() -> None:
    columns = {name: {"kind": "category", "values": ["a", "b"]} for name in ("x", "y", "z")}
    labels = dps.Schema.from_dict({"privacy": {"rows": 10_000}, "columns": columns})
    recipe = dps.Recipe.general(labels, budget=dps.Budget(1.0))
    assert [part.map.name for part in recipe.parts] == ["count", "adaptive_marginals", "pairs"]
