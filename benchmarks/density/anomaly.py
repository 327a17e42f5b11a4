"""Anomaly scores: AUC of anomalous test rows among normal ones, after training on normal rows alone."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.metrics import roc_auc_score

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density import baselines, ours
from benchmarks.density.goals import at_least, budget_text
from benchmarks.density.runs import DELTA, attempted
from benchmarks.density.tables import anomalies, unit_features

GOALS = {"kdd99": 0.99, "htru2": 0.90}  # at ε=1
TABLES = ("kdd99", "htru2", "digit 0", "digit 1", "digit 3", "digit 8")
BUDGETS = ((1.0, 0.0), (0.1, 0.0), (1.0, DELTA))


def run(options: Options, say: Say) -> None:
    say("== anomalies: AUC, mean (worst)")
    for name in ("htru2",) if options.quick else TABLES:
        _table(name, options, say)


def _table(name: str, options: Options, say: Say) -> None:
    tasks = [anomalies(name, options.seed + run) for run in range(options.runs)]
    say(f"{name}: {len(tasks[0].train)} rows to train, {np.mean(tasks[0].anomalous):.1%} of test rows anomalous")
    forest = []
    for run, each in enumerate(tasks):
        train, test = (unit_features(each.schema, each.columns, table) for table in (each.train, each.test))
        forest.append(roc_auc_score(each.anomalous, baselines.isolation_forest(train, test, options.seed + run)))
    say(at_least("  isolation forest, not private", forest))
    passes = [ours.Passes(each.train, each.schema) for each in tasks]
    for epsilon, delta in BUDGETS[:1] if options.quick else BUDGETS:
        text = budget_text(epsilon, delta)

        def once(run: int, budget: dps.Budget) -> tuple[float, ours.Scored]:
            scored = ours.anomaly_scores(passes[run], tasks[run], budget)
            return float(roc_auc_score(tasks[run].anomalous, scored.values)), scored

        figures = attempted(f"ours {text}", say, partial(once, budget=dps.Budget(epsilon, delta)), options.runs)
        if figures:
            goal = GOALS.get(name) if (epsilon, delta) == (1.0, 0.0) else None
            say(at_least(f"  ours {text}", figures, goal))
