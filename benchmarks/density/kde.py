"""Kernel densities: mean relative error of kernel sums at held-out rows; for salaries, the relative L2 error on a grid.

Widths are public; the exact sums are computed by brute force. The baselines of the race paper are those of
`kde_baselines`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density import kde_baselines, ours
from benchmarks.density.curves import OURS, RACE, Curves, line_of
from benchmarks.density.function_release import Problem as FunctionProblem
from benchmarks.density.goals import at_most, budget_text
from benchmarks.density.kernel_sums import exact_sums
from benchmarks.density.runs import DELTA, attempted
from benchmarks.density.tables import public_rows, schema_of, table_of, unit_features
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, LOWEST
from dpsketch.schema.schema import Schema

BUDGETS = ((1.0, 0.0), (0.1, 0.0), (1.0, DELTA), (0.1, DELTA))
MOST_PAY, GRID_END, GRID = 500_000.0, 250_000.0, 200
PAPER_ROWS = 1000  # rows of counters, for comparison
BASELINE_RUNS = {True: 2, False: 1}  # of curves and baselines in one column, in more, for time
RACE_ROWS = (100, 300, 1000)  # of which the best is in the figures, as in the paper
EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to sketch, queries, both as numbers, and the exact sums at them."""

    schema: Schema
    train: pa.Table
    queries: pa.Table
    exact: Floats
    plain: FunctionProblem


@dataclass(frozen=True)
class Case:
    name: str
    width: float
    scaled: bool = False
    label: str | None = None  # the column of its schema that is not sketched; None for the tables of pay
    goals: dict[tuple[float, float], float] = field(default_factory=dict)
    compared: bool = True  # with the baselines


CASES = (
    Case("sf_salaries", 5000.0, goals={(1.0, 0.0): 0.002}),
    Case("nyc_payroll", 5000.0),
    Case("skin", 5.0, label="label", goals={(1.0, 0.0): 0.02, (0.1, 0.0): 0.035}),
    Case("cod_rna", 0.06, True, "label", {(1.0, 0.0): 0.012}),
    Case("covtype", 20.0, label="cover_type", goals={(1.0, 0.0): 0.025, (1.0, DELTA): 0.015, (0.1, DELTA): 0.02}),
    Case("covtype", 200.0, label="cover_type", compared=False),
    Case("covtype", 2000.0, label="cover_type", compared=False),
)


def run(options: Options, say: Say) -> None:
    say("== kernel densities: mean relative error (salaries: relative L2), mean (worst)")
    for case in (CASES[0], CASES[2]) if options.quick else CASES:
        if options.wants(case.name):
            _case(case, options, say)


def _case(case: Case, options: Options, say: Say) -> None:
    """Lines of every budget, and of every method over pure ε."""
    problems = problems_of(case, options.seed, options.runs, options.queries)
    first = problems[0]
    say(
        f"{case.name} σ={case.width:g}: {len(first.train)} rows, {len(ours.schema_columns(first.schema))} columns; "
        f"exact sums from {first.exact.min():.3g} to {first.exact.max():.3g}, half below {np.median(first.exact):.3g}"
    )
    passes = [ours.Passes(problem.train, problem.schema) for problem in problems]

    def measured(name: str, scorer: Scorer, epsilon: float, delta: float, runs: int, say: Say) -> list[float]:
        def once(run: int) -> tuple[float, ours.Scored]:
            scored = scorer(passes[run], problems[run], dps.Budget(epsilon, delta))
            return error_of(case.name, scored.values, problems[run].exact), scored

        return attempted(f"{name} {budget_text(epsilon, delta)}", say, once, runs)

    for name, scorer in (("ours", _ours(case)), (f"hashed counters, R={PAPER_ROWS}", _hashed(case, PAPER_ROWS))):
        for epsilon, delta in BUDGETS[:1] if options.quick else BUDGETS:
            found = measured(name, scorer, epsilon, delta, options.runs, say)
            if found:
                goal = case.goals.get((epsilon, delta)) if name == "ours" else None
                say(at_most(f"  {name} {budget_text(epsilon, delta)}", found, goal))
    if options.quick or not case.compared:
        return
    runs = min(options.runs, BASELINE_RUNS[case.label is None])
    curves: Curves = {OURS: {}, RACE: {}}
    scorers = {f"R={rows}": _hashed(case, rows) for rows in RACE_ROWS}
    for epsilon in EPSILONS:
        curves[OURS][epsilon] = float(np.mean(measured("ours", _ours(case), epsilon, 0.0, runs, _silent)))
    for name, scorer in scorers.items():  # one table of counters at a time
        for epsilon in EPSILONS:
            error = float(np.mean(measured(name, scorer, epsilon, 0.0, runs, _silent)))
            curves[RACE][epsilon] = min(error, curves[RACE].get(epsilon, np.inf))
    _baselines(case, [problem.plain for problem in problems[:runs]], options.seed, curves, say)
    for name, curve in curves.items():
        say(line_of(f"{case.name}, σ = {case.width:g}", name, curve))


def _silent(line: str) -> None:
    pass


def _baselines(case: Case, problems: list[FunctionProblem], seed: int, curves: Curves, say: Say) -> None:
    """Lines of the budgets; adds the errors over pure ε."""
    start = time.perf_counter()
    budgets = [*BUDGETS, *((epsilon, 0.0) for epsilon in EPSILONS if (epsilon, 0.0) not in BUDGETS)]
    found = kde_baselines.compared(problems, budgets, lambda *sums: error_of(case.name, *sums), seed)
    for (method, epsilon, delta), each in sorted(found.best(), key=lambda item: budgets.index(item[0][1:])):
        if (epsilon, delta) in BUDGETS:
            say(at_most(f"  {method} ({each.setting}) {budget_text(epsilon, delta)}", each.figures))
        if not delta:
            curves.setdefault(method, {})[epsilon] = each.mean
    for line in kde_baselines.infeasible(problems[0]):
        say(line)
    say(
        f"    baselines at their best settings for the table, {len(problems)} runs: {time.perf_counter() - start:.0f} s"
    )


Scorer = Callable[[ours.Passes, Problem, dps.Budget], ours.Scored]


def _ours(case: Case) -> Scorer:
    return lambda passes, problem, budget: ours.kernel_sums(
        passes, problem.schema, budget, case.width, case.scaled, problem.queries
    )


def _hashed(case: Case, rows: int) -> Scorer:
    return lambda passes, problem, budget: ours.hashed_sums(
        passes, problem.schema, budget, case.width, case.scaled, problem.queries, rows
    )


def error_of(name: str, estimate: Floats, exact: Floats) -> float:
    """Relative error: mean over queries or, for salaries, in L2 over the grid."""
    if "salaries" in name or "payroll" in name:
        return float(np.linalg.norm(estimate - exact) / np.linalg.norm(exact))
    return float(np.mean(np.abs(estimate - exact) / exact))


def problems_of(case: Case, seed: int, runs: int, queries: int = Options.queries) -> list[Problem]:
    """Fresh queries for each run; the grid of the tables of pay is always the same."""
    if case.label is None:
        return [_pay(case)] * runs
    return [_problem(case, seed + run, queries) for run in range(runs)]


def _problem(case: Case, seed: int, asked: int) -> Problem:
    assert case.label is not None
    columns = tuple(column.name for column in schema_of(case.name).scalars if column.name != case.label)
    table = table_of(case.name).select(list(columns))
    order = np.random.default_rng([seed, 4]).permutation(len(table))
    train, queries = table.take(np.sort(order[asked:])), table.take(order[:asked])
    schema = schema_of(case.name, columns, len(train))
    if case.scaled:
        points = [unit_features(schema, columns, each) for each in (train, queries)]
    else:
        points = [_matrix(each, columns) for each in (train, queries)]
    bounds = bounds_of(schema, columns, case.scaled)
    plain = FunctionProblem(points[0], points[1], bounds[0], bounds[1], bounds, case.width)
    return Problem(schema, train, queries, exact_sums(points[0], points[1], case.width), plain)


def bounds_of(schema: Schema, columns: tuple[str, ...], scaled: bool) -> tuple[Floats, Floats]:
    """Declared bounds of the numbers that `_problem` makes of the columns."""
    if scaled:
        return np.zeros(len(columns)), np.ones(len(columns))
    ends = [schema.column(name) for name in columns]
    pairs = [each.values_of(np.array([LOWEST, HIGHEST])) if each.numeric else np.array([0.0, 1.0]) for each in ends]
    low, high = np.array(pairs, np.float64).T
    return low, high


def _pay(case: Case) -> Problem:
    """One column of dollars, clamped to public bounds, with a grid of queries."""
    if case.name == "sf_salaries":
        pay = table_of("sf_salaries")["total_pay"]
    else:
        table = table_of("nyc_payroll_fy2016_excerpt")
        yearly = pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(table["pay_basis"])), "per annum")
        pay = table.filter(yearly)["base_salary"]
    dollars = np.clip(pay.drop_null().to_numpy().astype(np.float64), 0.0, MOST_PAY)
    column = {"kind": "number", "lower": 0.0, "upper": MOST_PAY}
    schema = Schema.from_dict({"privacy": {"rows": public_rows(len(dollars))}, "columns": {"pay": column}})
    grid = np.linspace(0.0, GRID_END, GRID)
    exact = exact_sums(dollars[:, None], grid[:, None], case.width)
    bounds = np.array([0.0]), np.array([MOST_PAY])
    plain = FunctionProblem(dollars[:, None], grid[:, None], bounds[0], np.array([GRID_END]), bounds, case.width)
    return Problem(schema, pa.table({"pay": dollars}), pa.table({"pay": grid}), exact, plain)


def _matrix(table: pa.Table, columns: tuple[str, ...]) -> Floats:
    return np.stack([table[name].to_numpy().astype(np.float64) for name in columns], axis=1)
