"""Predicted errors of answers before any budget is spent, from releases of simulated tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpsketch.errors import BudgetError, QueryError, RecipeError
from dpsketch.learn.answer import Answer
from dpsketch.learn.queries import Table
from dpsketch.learn.sql.statement import parse_select
from dpsketch.learn.view import View
from dpsketch.maps.base import check_whole
from dpsketch.numerics.arrays import Floats
from dpsketch.planning.compared import Compared, compared_levels
from dpsketch.planning.forecast_picture import drawn, html
from dpsketch.planning.simulated_release import (
    ALONE,
    Sharing,
    SimulatedView,
    affordable_simulations,
    columns_to_simulate,
    planned_release,
)
from dpsketch.planning.simulation import SimulatedTable, drawn_table, simulated_table
from dpsketch.plots.drawing import Drawing
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.recipe import Only, Recipe, declared_rows
from dpsketch.schema.schema import Schema

MOST_ROWS = 100_000  # in a simulated table; more declared rows are simulated as copies of these
GOOD = 0.1
_SMALL = 64  # rows


@dataclass(frozen=True)
class Prediction:
    """The predicted error of one answer at one budget, pooled over all groups with `group by`."""

    query: str
    answer: str  # the entry of the select list
    budget: Budget
    typical: float | np.datetime64  # median size of the true answers; nan if the simulated tables have none
    error: float  # the median standard error that simulated releases state, in seconds for dates; infinite if unknown
    low: float  # the least and the largest of the simulated tables
    high: float
    how: str
    without_hint: float | None = None  # the error without important pairs; None where they change nothing

    @property
    def texts(self) -> tuple[str, str]:
        """The typical answer and the error as texts; the error of a date is a duration."""
        if np.isnan(self.error):
            return "no such rows", "-"
        return str(Answer(self.typical, self._as_error(self.error))).split(" ± ")[0], self._text(self.error)

    @property
    def text_without_hint(self) -> str:
        """The error without important pairs as a text; that of the release where they change nothing."""
        error = self.error if self.without_hint is None else self.without_hint
        return "-" if np.isnan(error) else self._text(error)

    @property
    def range_text(self) -> str:
        return "-" if np.isnan(self.error) else f"{self._text(self.low)} – {self._text(self.high)}"

    def _text(self, error: float) -> str:
        if not np.isfinite(error):
            return "no answer"
        return str(Answer(self.typical, self._as_error(error))).split(" ± ")[1]

    def _as_error(self, error: float) -> float | np.timedelta64:
        if not isinstance(self.typical, np.datetime64):
            return error
        known = np.isfinite(error)
        return np.timedelta64(int(min(error * 1e6, 2.0**62)), "us") if known else np.timedelta64("NaT", "us")

    @property
    def relative(self) -> float:
        """The error divided by the typical answer; NaN for dates."""
        if isinstance(self.typical, np.datetime64) or not self.typical:
            return float("nan")
        return self.error / abs(self.typical)

    def to_dict(self) -> dict[str, Any]:
        budget = {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        typical = str(self.typical) if isinstance(self.typical, np.datetime64) else _plain(self.typical)
        numbers = {name: _plain(getattr(self, name)) for name in ("error", "low", "high", "relative")}
        spent = budget if self.budget.rho is None else {"rho": self.budget.rho}
        if self.without_hint is not None:
            numbers["without_hint"] = _plain(self.without_hint)
        return {"query": self.query, "answer": self.answer} | spent | {"typical": typical} | numbers | {"how": self.how}


@dataclass(frozen=True)
class Forecast:
    """Predictions for every query, budget and entry of the select list. (Unrelated to the plans of a ledger.)"""

    predictions: tuple[Prediction, ...]
    simulations: int = 1
    drawn: bool = False  # tables are drawn from an earlier release

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain rows, with None for numbers that are not finite."""
        return [prediction.to_dict() for prediction in self.predictions]

    def answers(self) -> dict[str, list[Prediction]]:
        """The predictions of each answer by budget, keyed by its query, and its name if a query has several."""
        several = {each.query for each in self.predictions for other in self.predictions if _differ(each, other)}
        by_answer: dict[str, list[Prediction]] = {}
        for each in self.predictions:
            label = f"{each.answer} in {each.query}" if each.query in several else each.query
            by_answer.setdefault(label, []).append(each)
        return {label: sorted(each, key=lambda one: one.budget.strength) for label, each in by_answer.items()}

    def enough(self, relative: float = GOOD) -> dict[str, Budget | None]:
        """The smallest budget at which each answer has a relative error below `relative`, or None."""
        return {
            label: next((each.budget for each in predictions if each.relative < relative), None)
            for label, predictions in self.answers().items()
        }

    @property
    def drawing(self) -> Drawing:
        """Relative error against the budget, one line an answer."""
        return drawn(self.answers(), GOOD)

    def plot(self, path: str | Path) -> None:
        """Draw it to an SVG or PNG file."""
        self.drawing.save(path)

    def _repr_html_(self) -> str:
        return html(self.answers()) + self.drawing.svg


def plan(
    schema: Schema,
    queries: Sequence[str],
    budgets: Sequence[Budget],
    rows: int | None = None,
    recipe: Recipe | None = None,
    simulations: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    like: View | None = None,
    important: Sequence[Sequence[str]] | None = None,
    sharing: Sharing = ALONE,
) -> Forecast:
    """Predict the errors of select statements for several budgets, from public facts alone.

    In each simulation a table is drawn from the schema and the declared rows, released with every budget and asked
    every query. The seed determines tables and noise. Only the columns that the queries use are simulated, with the
    noise that they have in a release of all columns. Nothing is read, nothing is spent. `recipe` defaults to the
    general one, `simulations` to a number that takes seconds. With `like`, an earlier release of this table or of a
    similar one, tables are rows drawn from that release: predictions are then much more accurate. `important` is as in
    `Recipe.general`; where it has an effect, predictions also hold the error without it. `sharing`: who releases.

    Source: a sketch is a sum, so the sums of a table times k are the sums of that table with every row k times. More
    than MOST_ROWS declared rows are simulated in this way, with the noise and the recipe of the declared rows.
    """
    if simulations is not None:
        check_whole("plan", "simulations", simulations, 1, 1000)
    _check(queries, budgets)
    queries, budgets = list(dict.fromkeys(queries)), list(dict.fromkeys(budgets))
    schema = schema.as_stored()  # columns are simulated as if the table held them
    rows = declared_rows(schema, rows)
    copies = -(-rows // MOST_ROWS)
    cases = _cases(schema, rows, budgets, recipe, important)
    only = cases[0].recipe.only
    names = columns_to_simulate(schema, [case.recipe for case in cases], _asked(schema, queries, only))
    releases = [planned_release(schema, case.recipe, case.budget, names, sharing) for case in cases]
    facts = schema if names is None else _with_columns(schema, names, only)
    simulations = simulations or affordable_simulations(facts, [each.recipe for each in releases])
    compared = compared_levels(facts, queries)
    _check_like(facts, like)
    tables = (
        _simulated(facts, like, rows // copies, (seed, each), compared, (each + 0.5) / simulations)
        for each in range(simulations)
    )
    errors_of_queries = [[_Errors() for _ in cases] for _ in queries]
    done, steps = 0, simulations * len(cases) * len(queries)
    for simulation, table in enumerate(tables):
        simulated = SimulatedTable(facts, table, only, copies)
        truths = [simulated.sql(query) for query in queries]
        for index, (case, each) in enumerate(zip(cases, releases, strict=True)):
            noise = np.random.default_rng([seed, simulation, budgets.index(case.budget)])
            view = SimulatedView(each.simulated(table, facts, copies, noise))
            for query, truth, errors in zip(queries, truths, errors_of_queries, strict=True):
                errors[index].add(truth, view.sql(query))
                done += 1
                if progress is not None:
                    progress(done / steps)
    asked = zip(queries, errors_of_queries, strict=True)
    found = tuple(each for query, errors in asked for each in _predictions(query, cases, errors))
    return Forecast(found, simulations, like is not None)


class _Case(NamedTuple):
    """A release to simulate; `plain` is one without the important pairs of another case of the same budget."""

    budget: Budget
    recipe: Recipe
    plain: bool = False


def _cases(
    schema: Schema,
    rows: int,
    budgets: Sequence[Budget],
    recipe: Recipe | None,
    important: Sequence[Sequence[str]] | None,
) -> list[_Case]:
    """A case for each budget and, where important pairs have an effect, another one without them."""
    if recipe is not None:
        if important is not None:
            raise RecipeError(
                "important pairs are a hint to the general recipe", "list them in the recipe's own pairs part instead"
            )
        return [_Case(budget, Recipe(recipe.parts, rows, recipe.sampling, recipe.only)) for budget in budgets]
    found = [_Case(budget, Recipe.general(schema, rows=rows, budget=budget, important=important)) for budget in budgets]
    plain = [Recipe.general(schema, rows=rows, budget=budget, important=()) for budget in budgets]
    changed = zip(found, plain, strict=True)
    return found + [_Case(case.budget, other, True) for case, other in changed if case.recipe != other]


def _predictions(query: str, cases: Sequence[_Case], errors: Sequence[_Errors]) -> Iterator[Prediction]:
    """Predictions for each budget; with the errors without important pairs where these have an effect."""
    every = [(case, list(each.predictions(query, case.budget))) for case, each in zip(cases, errors, strict=True)]
    plain = {case.budget: found for case, found in every if case.plain}
    for case, found in every:
        if not case.plain:
            others = [each.error for each in plain[case.budget]] if case.budget in plain else [None] * len(found)
            yield from (replace(one, without_hint=other) for one, other in zip(found, others, strict=True))


def _simulated(
    schema: Schema, like: View | None, rows: int, seed: tuple[int, int], compared: Compared, dependence: float
) -> pa.Table:
    """Without an earlier release, some tables are weakly and some strongly dependent."""
    generator = np.random.default_rng(seed)
    if like is not None:
        return drawn_table(schema, like, rows, generator)
    return simulated_table(schema, rows, generator, compared, dependence)


class _Errors:
    """True answers to one query at one budget, and the standard errors that releases state, by simulation."""

    def __init__(self) -> None:
        self._table: Table | None = None
        self._truths: dict[int, list[Any]] = {}
        self._stated: dict[int, list[Floats]] = {}

    def add(self, truth: Table, noisy: Table) -> None:
        """Add the answers of one simulation. Groups are matched by their labels: either table may lack a rare one."""
        self._table = noisy
        answered = {_labels(row): row for row in noisy.rows}
        for index in _answers(truth):
            asked = [row for row in truth.rows if np.isfinite(_number(row[index].value))]
            others = [answered.get(_labels(row)) for row in asked]
            stated = [np.inf if row is None else _stated(row[index]) for row in others]
            self._truths.setdefault(index, []).extend(row[index].value for row in asked)
            self._stated.setdefault(index, []).append(np.array(stated))

    def predictions(self, query: str, budget: Budget) -> Iterator[Prediction]:
        assert self._table is not None
        how = iter(self._table.how)
        for index, truths in self._truths.items():
            name = self._table.columns[index]
            typical = _typical(np.array([_number(truth) for truth in truths]))
            dates = any(isinstance(truth, np.datetime64) for truth in truths)
            errors = np.array([_median(stated) for stated in self._stated[index] if len(stated)])
            yield Prediction(
                query,
                name,
                budget,
                np.datetime64(int(typical * 1e6), "us") if dates else typical,
                _median(errors),
                float(errors.min(initial=np.inf)) if len(errors) else np.nan,
                float(errors.max(initial=0.0)) if len(errors) else np.nan,
                next(how).removeprefix(f"{name}: "),
            )


def _check(queries: Sequence[str], budgets: Sequence[Budget]) -> None:
    if not queries:
        raise QueryError("a plan needs a query", 'pass "select avg(age) from sketch"')
    if not budgets:
        raise BudgetError("a plan needs a budget", "pass Budget(epsilon=1.0), or several")
    if not all(budget.private for budget in budgets):
        raise BudgetError("a plan is for private releases", "pass finite numbers")
    for query in queries:
        select = parse_select(query)
        if any(select.args.get(clause) for clause in ("having", "order", "limit", "offset")):
            raise QueryError(
                "a plan is about all groups: having, order by, limit and offset choose some by their noisy answers",
                "leave these clauses out of the planned query",
            )


def _check_like(schema: Schema, like: View | None) -> None:
    """An earlier release must hold the columns as they are declared now."""
    known = {} if like is None else {column.name: column.as_stored() for column in like.schema.columns}
    for column in schema.columns:
        if like is not None and known.get(column.name) != column:
            raise QueryError(
                f"the earlier release does not hold column '{column.name}' as this schema declares it",
                "plan without it: the forecast then comes from the schema alone",
            )


def _asked(schema: Schema, queries: Sequence[str], only: Only | None) -> set[str]:
    """The columns that queries use, found by asking a small table. Refuses queries that a view would refuse."""
    small = SimulatedTable(schema, simulated_table(schema, _SMALL, np.random.default_rng(0)), only)
    for query in queries:
        small.sql(query)
    return small.asked


def _with_columns(schema: Schema, names: Sequence[str], only: Only | None) -> Schema:
    """The schema of a simulated table: the named columns, and the column by which rows are selected."""
    kept = {*names} | ({only.column} if only is not None else set())
    constant = tuple(name for name in schema.constant_per_unit if name in kept)
    columns = tuple(column for column in schema.columns if column.name in kept)
    return replace(schema, columns=columns, constant_per_unit=constant, workload=())


def _answers(table: Table) -> list[int]:
    """The places of a row that are answers; the others are labels of groups."""
    return [index for row in table.rows[:1] for index, cell in enumerate(row) if isinstance(cell, Answer)]


def _labels(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(cell for cell in row if not isinstance(cell, Answer))


def _number(value: Any) -> float:
    if isinstance(value, np.datetime64):
        return float(value.astype("datetime64[us]").astype(np.int64)) / 1e6
    return float(value / np.timedelta64(1, "s")) if isinstance(value, np.timedelta64) else float(value)


def _typical(truth: Floats) -> float:
    """Median absolute value, negative if all answers are."""
    if not len(truth):
        return float("nan")
    return float(np.median(np.abs(truth))) * (-1 if truth.max() < 0 else 1)


def _stated(answer: Answer) -> float:
    """The standard error of an answer, infinite if it has none."""
    stderr = _number(answer.stderr)
    return stderr if np.isfinite(_number(answer.value)) and np.isfinite(stderr) else np.inf


def _median(errors: Floats) -> float:
    """The middle error, of an even number the geometric mean of the two in the middle; NaN of none."""
    if not len(errors):
        return float("nan")
    ordered = np.sort(errors)
    low, high = float(ordered[(len(ordered) - 1) // 2]), float(ordered[len(ordered) // 2])
    return high if np.isinf(high) else float(np.sqrt(low) * np.sqrt(high))


def _differ(one: Prediction, other: Prediction) -> bool:
    """Whether two predictions are for different entries of one select list."""
    return one.query == other.query and one.answer != other.answer


def _plain(number: float) -> float | None:
    return number if np.isfinite(number) else None
