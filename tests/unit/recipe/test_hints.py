"""Hints at what will be asked: groups of columns whose pair tables get less noise."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest

import dpsketch as dps
from dpsketch.errors import RecipeError, RecipeWarning, SchemaError
from dpsketch.maps.base import FeatureMap
from dpsketch.maps.tables.adaptive_pairs import AdaptivePairs
from dpsketch.recipe.tasks.general_task import MOST_WEIGHT, OTHERS_NOISE, pair_weight
from dpsketch.recipe.tasks.three_columns import IMPORTANT_TRIPLES
from dpsketch.schema.template import schema_text

PURE, APPROXIMATE = dps.Budget(1.0), dps.Budget(1.0, 1e-6)
ROWS = 100_000


def wide(columns: int) -> dps.Schema:
    facts = {f"c{index}": {"kind": "number", "lower": 0, "upper": 1} for index in range(columns)}
    return dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": facts})


def pairs_of(recipe: dps.Recipe) -> AdaptivePairs:
    maps: list[FeatureMap] = [part.map for part in recipe.parts]
    return next(each for each in maps if isinstance(each, AdaptivePairs))


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE, dps.Budget(rho=0.1)])
def test_weights_are_the_largest_that_the_other_pairs_can_pay_for(budget: dps.Budget) -> None:
    def growth(tables: int, important: int, weight: int) -> float:
        rest = tables - important
        return (rest + important * weight) / tables if budget.pure else sqrt((rest + important * weight**2) / tables)

    for tables in range(1, 150):
        for important in range(1, tables + 1):
            weight = pair_weight(budget, tables, important)
            assert 1 <= weight <= MOST_WEIGHT
            assert growth(tables, important, weight) <= OTHERS_NOISE
            assert weight == MOST_WEIGHT or growth(tables, important, weight + 1) > OTHERS_NOISE


def test_a_group_means_all_pairs_among_its_columns(schema: dps.Schema) -> None:
    recipe = dps.Recipe.general(schema, rows=ROWS, budget=PURE, important=[["sex", "age", "height"]])
    pairs = pairs_of(recipe)
    assert pairs.important == (("age", "height"), ("age", "sex"), ("height", "sex"))
    assert pairs.times == pair_weight(PURE, 15, 3, 0.9) == 2
    overlapping = dps.Recipe.general(
        schema, rows=ROWS, budget=PURE, important=[["age", "height"], ["height", "age"], ["sex", "height", "age"]]
    )
    assert overlapping == recipe
    assert dps.Recipe.from_dict(recipe.to_dict()) == recipe


def triples_of(recipe: dps.Recipe) -> list[dps.Triples]:
    return [part.map for part in recipe.parts if isinstance(part.map, dps.Triples)]


def test_a_group_of_three_has_a_table_of_its_own() -> None:
    schema = wide(30)
    asked: list[list[str]] = [["c7", "c3", "c5"], ["c1", "c2"], ["c3", "c5", "c7", "c9"]]
    recipe = dps.Recipe.general(schema, rows=ROWS, budget=APPROXIMATE, important=asked)
    [triples] = triples_of(recipe)
    assert triples.triples == (("c3", "c5", "c7"), ("c3", "c5", "c9"), ("c3", "c7", "c9"), ("c5", "c7", "c9"))
    assert triples.pool
    shares = {part.map.name: part.share for part in recipe.parts}
    plain = {part.map.name: part.share for part in dps.Recipe.general(schema, rows=ROWS, budget=APPROXIMATE).parts}
    assert shares["triples"] == pytest.approx(IMPORTANT_TRIPLES[0] * plain["pairs"])
    assert shares["pairs"] + shares["triples"] == pytest.approx(plain["pairs"])
    assert {name: share for name, share in shares.items() if name not in ("pairs", "triples")} == {
        name: share for name, share in plain.items() if name != "pairs"
    }
    assert dps.Recipe.from_dict(recipe.to_dict()) == recipe
    recipe.bind(replace(schema, rows=ROWS))


@pytest.mark.parametrize("kept", [1.0, 0.9])
@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
def test_other_pairs_pay_no_more_where_triples_have_tables(budget: dps.Budget, kept: float) -> None:
    for tables in range(3, 150):
        weight = pair_weight(budget, tables, 3, kept)
        rest = tables - 3
        noise = (rest + 3 * weight) / kept if budget.pure else sqrt((rest + 3 * weight**2) * tables / kept)
        assert weight == 1 or noise <= OTHERS_NOISE * tables


@pytest.mark.parametrize(
    ("columns", "rows", "budget", "group"),
    [
        (30, ROWS, APPROXIMATE, ["c0", "c1"]),  # a pair
        (30, 1_000, APPROXIMATE, ["c0", "c1", "c2"]),  # noise
        (7, 30 * ROWS, PURE, ["c0", "c1", "c2"]),  # all triples have tables
        (30, ROWS, dps.Budget(float("inf")), ["c0", "c1", "c2"]),
    ],
)
def test_tables_of_important_triples_follow_from_public_numbers(
    columns: int, rows: int, budget: dps.Budget, group: list[str]
) -> None:
    recipe = dps.Recipe.general(wide(columns), rows=rows, budget=budget, important=[group])
    assert all(each.triples is None for each in triples_of(recipe))


def test_the_schema_may_hold_the_hint(schema: dps.Schema, tmp_path: Path) -> None:
    hinted = dps.Schema.from_dict(schema.to_dict() | {"workload": {"important": [["age", "sex"]]}})
    assert hinted.workload == (("age", "sex"),)
    assert hinted == schema
    assert dps.Schema.from_dict(hinted.to_dict()).workload == hinted.workload
    assert "workload" not in schema.to_dict()
    (tmp_path / "schema.toml").write_text(schema_text(hinted, "A schema."))
    assert dps.Schema.load(tmp_path / "schema.toml").workload == hinted.workload
    own = dps.Recipe.general(hinted, rows=ROWS, budget=PURE)
    assert own == dps.Recipe.general(schema, rows=ROWS, budget=PURE, important=[["age", "sex"]])
    overridden = dps.Recipe.general(hinted, rows=ROWS, budget=PURE, important=[["age", "height"]])
    assert pairs_of(overridden).important == (("age", "height"),)
    plain = dps.Recipe.general(schema, rows=ROWS, budget=PURE)
    assert dps.Recipe.general(hinted, rows=ROWS, budget=PURE, important=()) == plain
    assert "important" not in pairs_of(plain).to_dict()


def test_other_tasks_ignore_the_hint(schema: dps.Schema) -> None:
    hinted = replace(schema, workload=(("age", "sex"),))
    for name in ("synthetic", "anomaly"):
        task = getattr(dps.Recipe, name)
        assert task(hinted, rows=ROWS, budget=PURE) == task(schema, rows=ROWS, budget=PURE)


def test_a_wide_table_keeps_important_pairs() -> None:
    """Also where they are more than noise allows."""
    schema = wide(30)
    plain = pairs_of(dps.Recipe.general(schema, rows=4_000, budget=APPROXIMATE))
    assert plain.most is not None
    few = pairs_of(dps.Recipe.general(schema, rows=4_000, budget=APPROXIMATE, important=[["c3", "c20"]]))
    assert (few.most, few.important) == (plain.most, (("c3", "c20"),))
    assert few.times == pair_weight(APPROXIMATE, plain.most, 1)
    many = dps.Recipe.general(schema, rows=4_000, budget=APPROXIMATE, important=[[f"c{i}" for i in range(20)]])
    assert pairs_of(many).most == max(plain.most, 190)
    many.bind(replace(schema, rows=4_000))


@pytest.mark.parametrize(
    ("columns", "rows", "budget", "group", "why"),
    [
        (5, 200, dps.Budget(0.1), ("c0", "c1"), "noise would hide pair tables, and the contrasts"),
        (3, ROWS, PURE, ("c0", "c1", "c2"), "they are 3 of 3 pairs, too many for the others to pay for"),
        (500, ROWS, APPROXIMATE, ("c0", "c1"), "there are no pair tables with c0, c1"),
    ],
)
def test_a_hint_without_effect_is_told(
    columns: int, rows: int, budget: dps.Budget, group: tuple[str, ...], why: str
) -> None:
    schema = wide(columns)
    with pytest.warns(RecipeWarning, match=re.escape(f"important pairs have no effect at {budget}: {why}")):
        recipe = dps.Recipe.general(schema, rows=rows, budget=budget, important=[group])
    assert recipe == dps.Recipe.general(schema, rows=rows, budget=budget)


def test_a_hint_may_have_an_effect_on_triples_alone() -> None:
    group = [f"c{i}" for i in range(5)]
    told = "important pairs weigh no more than others at epsilon 1: they are 10 of 28 pairs, too many for the others"
    with pytest.warns(RecipeWarning, match=f"{told} to pay for; triples have tables of their own"):
        recipe = dps.Recipe.general(wide(8), rows=ROWS, budget=PURE, important=[group])
    [triples] = triples_of(recipe)
    assert len(triples.triples or ()) == 10


def test_a_hint_with_an_effect_is_silent(schema: dps.Schema) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dps.Recipe.general(schema, rows=ROWS, budget=PURE, important=[["age", "sex"]])
        dps.Recipe.general(schema, rows=200, budget=dps.Budget(0.1))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["age"]], "a group needs at least two columns, all different, got age\nHint: name the columns that"),
        ([[]], "a group needs at least two columns, all different, got none"),
        ([["age", "age"]], "a group needs at least two columns, all different, got age, age"),
        ([["age", "sexx"]], "there is no column 'sexx'\nHint: did you mean 'sex'"),
        ([["age", "friends"]], "column 'friends' is a set of ids, which pair tables cannot hold\nHint: leave it out"),
        ("age,sex", "must be a list of groups of column names, got 'age,sex' instead\nHint: write [["),
        ([["age", 3]], "there is no column '3'"),
    ],
)
def test_wrong_hints_are_refused_in_plain_words(groups: object, message: str, schema: dps.Schema) -> None:
    facts = schema.to_dict()
    facts["columns"] = {**facts["columns"], "friends": {"kind": "set", "universe": 9}}
    wider = dps.Schema.from_dict(facts)
    with pytest.raises(SchemaError, match=re.escape(message)) as found:
        dps.Recipe.general(wider, rows=ROWS, budget=PURE, important=groups)  # type: ignore[arg-type]
    assert str(found.value).startswith("important")
    with pytest.raises(SchemaError, match=re.escape(message)) as found:
        dps.Schema.from_dict(facts | {"workload": {"important": groups}})
    assert str(found.value).startswith("workload.important")


def test_plans_with_a_recipe_have_no_hints(schema: dps.Schema) -> None:
    recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    with pytest.raises(RecipeError, match="important pairs are a hint to the general recipe"):
        dps.plan(schema, ["select count(*) from sketch"], [PURE], recipe=recipe, important=[["age", "sex"]])
