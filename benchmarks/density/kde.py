"""Kernel densities: mean relative error of kernel sums at held-out rows; for salaries, the relative L2 error on a grid.

Widths are public; the exact sums are computed by brute force.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density import ours
from benchmarks.density.goals import at_most, budget_text
from benchmarks.density.kernel_sums import exact_sums
from benchmarks.density.runs import DELTA, attempted
from benchmarks.density.tables import public_rows, schema_of, table_of, unit_features
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema

QUERIES = 2000
BUDGETS = ((1.0, 0.0), (0.1, 0.0), (1.0, DELTA), (0.1, DELTA))
MOST_PAY, GRID_END, GRID = 500_000.0, 250_000.0, 200
PAPER_ROWS = 1000  # rows of counters, for comparison


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to sketch, queries, and the exact sums at them."""

    schema: Schema
    train: pa.Table
    queries: pa.Table
    exact: Floats


@dataclass(frozen=True)
class Case:
    name: str
    width: float
    scaled: bool = False
    label: str | None = None  # the column of its schema that is not sketched; None for the tables of pay
    goals: dict[tuple[float, float], float] = field(default_factory=dict)


CASES = (
    Case("sf_salaries", 5000.0, goals={(1.0, 0.0): 0.002}),
    Case("nyc_payroll", 5000.0),
    Case("skin", 5.0, label="label", goals={(1.0, 0.0): 0.02, (0.1, 0.0): 0.035}),
    Case("cod_rna", 0.06, True, "label", {(1.0, 0.0): 0.012}),
    Case("covtype", 20.0, label="cover_type", goals={(1.0, 0.0): 0.025, (1.0, DELTA): 0.015, (0.1, DELTA): 0.02}),
    Case("covtype", 200.0, label="cover_type"),
    Case("covtype", 2000.0, label="cover_type"),
)


def run(options: Options, say: Say) -> None:
    say("== kernel densities: mean relative error (salaries: relative L2), mean (worst)")
    for case in (CASES[0], CASES[2]) if options.quick else CASES:
        _case(case, options, say)


def _case(case: Case, options: Options, say: Say) -> None:
    problems = [_problem(case, options.seed + run) for run in range(options.runs)]
    first = problems[0]
    say(
        f"{case.name} σ={case.width:g}: {len(first.train)} rows, {len(ours.schema_columns(first.schema))} columns; "
        f"exact sums from {first.exact.min():.3g} to {first.exact.max():.3g}, half below {np.median(first.exact):.3g}"
    )
    passes = [ours.Passes(problem.train, problem.schema) for problem in problems]
    for epsilon, delta in BUDGETS[:1] if options.quick else BUDGETS:
        budget, text = dps.Budget(epsilon, delta), budget_text(epsilon, delta)
        for name, scorer in (("ours", _ours(case)), (f"hashed counters, R={PAPER_ROWS}", _hashed(case))):

            def once(run: int, budget: dps.Budget = budget, scorer: Scorer = scorer) -> tuple[float, ours.Scored]:
                scored = scorer(passes[run], problems[run], budget)
                return error_of(case.name, scored.values, problems[run].exact), scored

            found = attempted(f"{name} {text}", say, once, options.runs)
            if found:
                goal = case.goals.get((epsilon, delta)) if name == "ours" else None
                say(at_most(f"  {name} {text}", found, goal))


Scorer = Callable[[ours.Passes, Problem, dps.Budget], ours.Scored]


def _ours(case: Case) -> Scorer:
    return lambda passes, problem, budget: ours.kernel_sums(
        passes, problem.schema, budget, case.width, case.scaled, problem.queries
    )


def _hashed(case: Case) -> Scorer:
    return lambda passes, problem, budget: ours.hashed_sums(
        passes, problem.schema, budget, case.width, case.scaled, problem.queries, PAPER_ROWS
    )


def error_of(name: str, estimate: Floats, exact: Floats) -> float:
    """Relative error: mean over queries or, for salaries, in L2 over the grid."""
    if "salaries" in name or "payroll" in name:
        return float(np.linalg.norm(estimate - exact) / np.linalg.norm(exact))
    return float(np.mean(np.abs(estimate - exact) / exact))


def _problem(case: Case, seed: int) -> Problem:
    if case.label is None:
        return _pay(case)
    columns = tuple(column.name for column in schema_of(case.name).scalars if column.name != case.label)
    table = table_of(case.name).select(list(columns))
    order = np.random.default_rng([seed, 4]).permutation(len(table))
    train, queries = table.take(np.sort(order[QUERIES:])), table.take(order[:QUERIES])
    schema = schema_of(case.name, columns, len(train))
    if case.scaled:
        points = [unit_features(schema, columns, each) for each in (train, queries)]
    else:
        points = [_matrix(each, columns) for each in (train, queries)]
    return Problem(schema, train, queries, exact_sums(points[0], points[1], case.width))


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
    return Problem(schema, pa.table({"pay": dollars}), pa.table({"pay": grid}), exact)


def _matrix(table: pa.Table, columns: tuple[str, ...]) -> Floats:
    return np.stack([table[name].to_numpy().astype(np.float64) for name in columns], axis=1)
