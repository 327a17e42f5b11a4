"""Synthetic rows: total variation distance of all 2-way 32×32 tables over the declared bounds, real against drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density import baselines, ours
from benchmarks.density.goals import at_most, budget_text
from benchmarks.density.runs import attempted
from benchmarks.density.tables import schema_of, table_of, unit_features

DRAWN = 200_000
BUDGETS = ((1.0, 0.0), (0.1, 0.0), (10.0, 0.0))


@dataclass(frozen=True)
class Case:
    name: str
    file: str
    columns: tuple[str, ...]
    goal: float | None = None  # at pure ε=1


_COVERS = (
    "elevation",
    "aspect",
    "slope",
    "horizontal_distance_to_hydrology",
    "vertical_distance_to_hydrology",
    "horizontal_distance_to_roadways",
    "hillshade_9am",
    "hillshade_noon",
    "hillshade_3pm",
    "horizontal_distance_to_fire_points",
)
CASES = (
    Case("cabs", "sf_cabs_2p8m", ("lat_e5", "lon_e5"), 0.007),
    Case("skin", "skin", ("blue", "green", "red"), 0.025),
    Case("california", "california_housing", ("longitude", "latitude", "median_income"), 0.09),
    Case("covtype 4", "covtype", _COVERS[:4]),
    Case("covtype 6", "covtype", _COVERS[:6]),
    Case("covtype 10", "covtype", _COVERS[:10]),
)


def run(options: Options, say: Say) -> None:
    say(f"== sampling: 2-way total variation distance of {DRAWN} drawn rows, mean (worst)")
    for case in CASES[1:3] if options.quick else CASES:
        _case(case, options, say)


def _case(case: Case, options: Options, say: Say) -> None:
    table = table_of(case.file).select(list(case.columns))
    schema = schema_of(case.file, case.columns)
    real = baselines.bins_of(unit_features(schema, case.columns, table))
    generator = np.random.default_rng(options.seed)
    least = baselines.two_way_distance(real, real[generator.integers(0, len(real), DRAWN)])
    say(f"{case.name}: {len(table)} rows, {len(case.columns)} columns; {DRAWN} of the real rows {least:.4f}")
    passes = ours.Passes(table, schema)
    for epsilon, delta in BUDGETS[:1] if options.quick else BUDGETS:
        text = budget_text(epsilon, delta)
        for name, flat in (("ours", False), ("the paper's flat heap", True)):

            def once(run: int, budget: dps.Budget, flat: bool) -> tuple[float, ours.Scored]:
                scored = ours.synthetic_rows(passes, schema, budget, DRAWN, run, flat)
                drawn = baselines.bins_of(unit_features(schema, case.columns, scored.values))
                return baselines.two_way_distance(real, drawn), scored

            once_more = partial(once, budget=dps.Budget(epsilon, delta), flat=flat)
            distances = attempted(f"{name} {text}", say, once_more, options.runs)
            if distances:
                goal = case.goal if (epsilon, delta, flat) == (1.0, 0.0, False) else None
                say(at_most(f"  {name} {text}", distances, goal))
        methods = {"independent marginals": baselines.independent_marginals}
        if baselines.BINS ** len(case.columns) <= baselines.MOST_CELLS:
            methods["noisy full histogram"] = baselines.noisy_histogram
        for name, method in methods.items():
            drawn = [method(real, epsilon, delta, DRAWN, generator) for _ in range(options.runs)]
            say(at_most(f"  {name} {text}", [baselines.two_way_distance(real, each) for each in drawn]))
