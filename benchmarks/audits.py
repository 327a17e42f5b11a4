"""Attacks on every map, with every noise, for both neighbouring relations: `make audit`.

A case is sharp if two neighbouring tables attain the sensitivity for which the noise is calibrated. There, an attack
with enough draws must come close to the budget, or it would prove nothing. The other cases state why they are not
sharp.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import dpsketch as dps
from dpsketch.auditing import Audit, audit
from dpsketch.schema.relation import Relation

COLUMNS = {
    "x": {"kind": "number", "lower": 0, "upper": 1},
    "z": {"kind": "number", "lower": 0, "upper": 1},
    "y": {"kind": "category", "values": ["a", "b"]},
}
LEVELS = COLUMNS | {"n": {"kind": "integer", "lower": 0, "upper": 9}}  # few: an audit draws a count for each
SETS = {"ids": {"kind": "set", "universe": 100}}
PURE, APPROXIMATE, CONCENTRATED = dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.5)
MIXED = dps.Budget(4.0, 1e-6)  # large: with more budget an attack needs fewer draws
MAPS = {
    "count": dps.Count(),
    "histogram": dps.Histogram(columns=("y",)),
    "marginals": dps.Marginals(columns=("x",), bins=2),
    "levels": dps.Levels(columns=("n",), bins=2),
    "adaptive marginals": dps.AdaptiveMarginals(columns=("n", "y"), bins=2),
    "cell counts": dps.CellCounts(("n", "y"), 2, (((1, 3, 4), (3,), (1.0, 1.0, 1.0)), None)),
    "totals": dps.Totals(columns=("x", "z")),
    "pairs": dps.Pairs(columns=("x", "y"), bins=2),
    "important pairs": dps.Pairs(columns=("x", "y", "z"), bins=1, important=(("x", "y"),), times=4),
    "contrasts": dps.Contrasts(
        ((0, 0, 1, 1, 1), (0, 1, 1, 1, 1), (0, 1, 1, 1)), ("x", "z", "y"), 2, (("x", "z"), ("x", "y"))
    ),
    "triples": dps.Triples(columns=("x", "z", "y"), bins=1),
    "fourier": dps.Fourier(columns=("x",), size=1),
    "one-bit": dps.OneBitFourier(columns=("x",), size=1),
    "quadratic": dps.Quadratic(columns=("x", "z"), size=1),
    "second moments": dps.SecondMoments(columns=("x", "z")),
    "second moments with means": dps.SecondMoments(columns=("x", "z"), means=True),
    "grid": dps.Grid(columns=("x",), rows=1, width=8, levels=(1,)),
    "race": dps.Race(columns=("x",), rows=1, width=8),
    "grouped fourier": dps.Grouped(dps.Fourier(columns=("x",), size=1), "y"),
    "subsampled": dps.Subsampled(dps.OneBitFourier(columns=("x",), size=2), 1),
}
MIXED_NOISE = dps.Recipe(
    [dps.Part(MAPS["histogram"], 0.25), dps.Part(dps.Race(columns=("x",), rows=32, width=8), 0.75)]
)
SOME_PAIRS = dps.Recipe([dps.Part(dps.Marginals(bins=2), 0.2), dps.Part(dps.AdaptivePairs(bins=2, most=1), 0.8)])
SOME_CONTRASTS = dps.Recipe(
    [dps.Part(dps.Marginals(bins=2), 0.2), dps.Part(dps.AdaptivePairs(bins=2, most=2, contrasts=True), 0.8)]
)
CHOSEN_CELLS = dps.Recipe(
    [
        dps.Part(dps.Count(), 0.1),
        dps.Part(MAPS["levels"], 0.3),
        dps.Part(dps.AdaptiveMarginals(columns=("n", "y"), bins=2), 0.6),
    ]
)
BODIES = ("totals", "contrasts", "fourier", "one-bit", "second moments", "second moments with means", "grouped fourier")
ONE_WAY = ("levels", "adaptive marginals", "cell counts")  # of column n
NOT_SHARP = {
    ("count", "replace-one"): "nothing differs",
    ("quadratic", "replace-one"): "the bound is twice that of one record",
    ("second moments", "replace-one"): "the L1 bound is twice that of one record",
    ("second moments with means", "add-remove"): "no record attains the bounds",
    ("second moments with means", "replace-one"): "the bounds are twice those of one record",
    ("subsampled", "add-remove"): "masks hide a record",
    ("subsampled", "replace-one"): "masks hide a record",
}


@dataclass(frozen=True)
class Case:
    """One attack. `loose` is the reason why the worst tables do not attain the sensitivity, or empty."""

    name: str
    recipe: dps.Recipe
    schema: dps.Schema
    budget: dps.Budget
    mechanism: str = "auto"
    loose: str = field(default="", compare=False)

    def run(self, draws: int) -> Audit:
        return audit(self.recipe, self.schema, self.budget, draws, self.mechanism)


def schema(columns: dict[str, Any] = COLUMNS, **privacy: object) -> dps.Schema:
    return dps.Schema.from_dict({"privacy": {"rows": 100} | privacy, "columns": columns})


def alone(map_: Any, **options: Any) -> dps.Recipe:
    if isinstance(map_, dps.Levels):  # which come with what is chosen from them
        chosen = dps.AdaptiveMarginals(map_.columns, map_.bins)
        return dps.Recipe([dps.Part(map_, 0.9), dps.Part(chosen, 0.1)], **options)
    return dps.Recipe([dps.Part(map_, 1.0)], **options)


POISSON = alone(dps.Subsampled(dps.Quadratic(columns=("x",), size=2, directions="hadamard"), 1, "poisson"))


def cases() -> list[Case]:
    found = []
    for relation in Relation:
        facts, leveled = schema(relation=relation.value), schema(LEVELS, relation=relation.value)
        for name, map_ in MAPS.items():
            loose = NOT_SHARP.get((name, relation.value), "")
            noises = [("laplace", PURE), ("gaussian", APPROXIMATE)] + [("auto", PURE)] * (name in BODIES)
            for mechanism, budget in noises:
                shown = "body" if mechanism == "auto" else mechanism
                found.append(
                    Case(
                        f"{name}, {shown}, {relation}",
                        alone(map_),
                        leveled if name in ONE_WAY else facts,
                        budget,
                        mechanism,
                        loose,
                    )
                )
        units = schema(relation=relation.value, unit="id", max_rows_per_unit=3)
        for name in ("count", "histogram", "fourier"):
            found.append(Case(f"units of 3 rows: {name}, {relation}", alone(MAPS[name]), units, PURE))
        bundle = dps.Recipe(
            [dps.Part(MAPS["count"], 0.2), dps.Part(MAPS["histogram"], 0.4), dps.Part(MAPS["fourier"], 0.4)]
        )
        for budget in (PURE, APPROXIMATE, CONCENTRATED):
            found.append(Case(f"bundle, {budget}, {relation}", bundle, facts, budget, loose="several parts"))
            some = f"one of three pairs, {budget}, {relation}"
            found.append(Case(some, SOME_PAIRS, facts, budget, loose="several parts"))
            some = f"two of three contrasts, {budget}, {relation}"
            found.append(Case(some, SOME_CONTRASTS, facts, budget, loose="several parts"))
            chosen = f"levels and the cells chosen from them, {budget}, {relation}"
            found.append(Case(chosen, CHOSEN_CELLS, leveled, budget, loose="several parts"))
        mixed = f"Laplace beside Gaussian noise, {relation}"
        found.append(Case(mixed, MIXED_NOISE, facts, MIXED, loose="several parts"))
    sets = dps.Race(columns=("ids",), rows=1, width=8, hash=dps.MinHash())
    found.append(Case("race of sets, laplace, add-remove", alone(sets), schema(SETS), PURE))
    for name in ("count", "histogram"):
        sample = alone(MAPS[name], sampling=dps.RowSampling(rate=0.25))
        found.append(Case(f"a quarter of the rows: {name}, add-remove", sample, schema(), PURE))
    found.append(Case("poisson masks: quadratic, laplace, add-remove", POISSON, schema(), PURE, "laplace"))
    part = alone(MAPS["count"], only=dps.Only("y", "a"))
    found.append(Case("part of a partition: count, add-remove", part, schema(), PURE))
    return found


def _run(case: Case, draws: int) -> Audit:
    return case.run(draws)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="cases with this in their names, as contrasts")
    options = parser.parse_args()
    every = [case for case in cases() if options.only in case.name]
    print(f"{options.draws} releases a case, confidence 99.99 %\n")
    print(f"{'case':48} {'claimed':>9} {'proven':>7}  verdict")
    worst = 0
    with ProcessPoolExecutor(options.processes) as pool:
        for case, result in zip(every, pool.map(_run, every, [options.draws] * len(every)), strict=True):
            verdict = "VIOLATED" if result.violated else case.loose or "sharp"
            if not case.loose and result.lower_bound < result.claimed / 2:
                verdict += ", SHORT of half"
            worst |= result.violated
            print(f"{case.name:48} {result.claimed:9.3f} {result.lower_bound:7.3f}  {verdict}", flush=True)
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
