"""MST and AIM on the estimation of `mbi` 2.0: runs in its own environment, on a folder of files.

Reads input.npz (cells, sizes) and options.json, writes output.npz (cells of synthetic rows) and report.json. Noise is
floating-point noise: for studies only. Sources: McKenna, Miklau, Sheldon, Winning the NIST contest (MST), 2021,
arXiv:2108.04978; AIM: see benchmarks.m2m.aim.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from mbi import Domain, estimation, junction_tree, marginal_oracles
from mbi.marginal_loss import LinearMeasurement

from benchmarks.m2m.aim import Clique, Spending, closure, concentrated, expected_noise, exponential, weights

MST_STEPS = 1000
STANDS_OUT = 3.0  # MST: cells below this number of standard deviations are pooled


class Cells:
    """A table of cells and its exact marginals."""

    def __init__(self, cells: Any, sizes: Sequence[int]) -> None:
        self.cells, self.sizes = cells, [int(size) for size in sizes]
        self.names = tuple(f"c{j:02d}" for j in range(len(self.sizes)))
        self.domain = Domain(self.names, self.sizes)
        self._place = {name: j for j, name in enumerate(self.names)}

    def marginal(self, clique: Clique) -> Any:
        code = np.zeros(len(self.cells), np.int64)
        for name in clique:
            code = code * self.sizes[self._place[name]] + self.cells[:, self._place[name]]
        return np.bincount(code, minlength=self.count(clique)).astype(float)

    def count(self, clique: Clique) -> int:
        return int(np.prod([self.sizes[self._place[name]] for name in clique]))

    def measured(self, clique: Clique, sigma: float, rng: np.random.Generator) -> LinearMeasurement:
        noisy = self.marginal(clique) + rng.normal(0, sigma, self.count(clique))
        return LinearMeasurement(noisy, clique, stddev=sigma)


def fit(
    table: Cells, measurements: list[LinearMeasurement], steps: int, before: Any = None, total: float | None = None
) -> Any:
    """Mirror descent, from where the last fit ended."""
    descent = estimation.MirrorDescent()
    return descent.estimate(table.domain, measurements, known_total=total, iters=steps, warm_start=before)


def projected(model: Any, clique: Clique) -> Any:
    """A marginal of the model, without compilation, because each is needed once."""
    if model.marginals.supports(clique):
        return np.asarray(model.marginals.project(clique).datavector())
    marginal = marginal_oracles.variable_elimination.__wrapped__(model.potentials, clique, float(model.total))
    return np.asarray(marginal.datavector())


def mst(table: Cells, options: dict[str, Any], rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """A third of ρ each on columns, on the choice of a tree, and on its pairs."""
    rho, columns = concentrated(options["epsilon"], options["delta"]), len(table.sizes)
    sigma = float(np.sqrt(3 * columns / (2 * rho)))
    first = [table.measured((name,), sigma, rng) for name in table.names]
    maps = [_pooled(np.asarray(each.noisy_measurement), sigma) for each in first]
    pooled = Cells(
        np.column_stack([mapping[table.cells[:, j]] for j, mapping in enumerate(maps)]), [m.max() + 1 for m in maps]
    )
    total = estimation.minimum_variance_unbiased_total(first)
    mappings = dict(zip(table.names, maps, strict=True))
    measurements = [each.compress(mappings, table.domain) for each in first]
    model = fit(pooled, measurements, MST_STEPS, total=total)
    alone = {name: projected(model, (name,)) for name in table.names}
    scores = {
        pair: float(
            np.abs(pooled.marginal(pair) - np.outer(alone[pair[0]], alone[pair[1]]).ravel() / model.total).sum()
        )
        for pair in combinations(table.names, 2)
    }
    tree = nx.Graph()
    tree.add_nodes_from(table.names)
    epsilon = float(np.sqrt(8 * (rho / 3) / (columns - 1)))
    for _ in range(columns - 1):
        apart: dict[Clique, float] = {pair: value for pair, value in scores.items() if not nx.has_path(tree, *pair)}
        tree.add_edge(*exponential(apart, epsilon, 1.0, rng))
    sigma = float(np.sqrt(3 * (columns - 1) / (2 * rho)))
    measurements += [pooled.measured(tuple(sorted(edge)), sigma, rng) for edge in tree.edges]
    model = fit(pooled, measurements, MST_STEPS, model, total)
    drawn = _rows(model, table.names, options["rows"])
    for j, mapping in enumerate(maps):
        drawn[:, j] = _unpooled(drawn[:, j], mapping, rng)
    return drawn, {"rounds": columns - 1, "used": rho, "rho": rho}


def _pooled(noisy: Any, sigma: float) -> Any:
    """Keep significant cells separate and merge the others into one."""
    keeps = noisy >= STANDS_OUT * sigma
    mapping = np.cumsum(keeps) - 1
    mapping[~keeps] = keeps.sum()
    return mapping


def _unpooled(cells: Any, mapping: Any, rng: np.random.Generator) -> Any:
    shared = np.bincount(mapping)
    found = np.empty(len(cells), np.int64)
    for cell in np.unique(cells):
        members = np.flatnonzero(mapping == cell)
        where = cells == cell
        found[where] = members[0] if shared[cell] == 1 else rng.choice(members, where.sum())
    return found


def aim(table: Cells, options: dict[str, Any], rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Rounds of choosing, measuring and estimating a marginal, until ρ is spent or, as a cap, time is up."""
    start = time.process_time()
    workload: list[Clique] = list(combinations(table.names, 3))
    candidates = closure(workload)
    weight = weights(candidates, workload)
    exact = {clique: table.marginal(clique) for clique in candidates}
    spending = Spending(concentrated(options["epsilon"], options["delta"]), options["rounds"] * len(table.sizes))
    singles: list[Clique] = [(name,) for name in table.names]
    measurements = [table.measured(clique, spending.sigma, rng) for clique in singles]
    spending.measure_first(len(singles))
    model = fit(table, measurements, options["steps"])
    chosen = list(singles)
    rounds, cut = 0, False
    while True:
        if not spending.last and options["seconds"] and time.process_time() - start > options["seconds"]:
            spending.take_rest()
            cut = True
        last, sigma, epsilon = spending.last, spending.sigma, spending.epsilon
        spending.begin()
        limit = options["megabytes"] * spending.used / spending.rho
        allowed = [clique for clique in candidates if _fits(table, chosen, clique, limit)]
        scores = {}
        for clique in allowed:
            error = np.abs(exact[clique] - projected(model, clique)).sum()
            scores[clique] = weight[clique] * (error - expected_noise(sigma, table.count(clique)))
        clique = exponential(scores, epsilon, max(weight[each] for each in allowed), rng)
        before = projected(model, clique)
        measurements.append(table.measured(clique, sigma, rng))
        chosen.append(clique)
        model = fit(table, measurements, options["steps"], model)
        rounds += 1
        if last:
            break
        spending.end(float(np.abs(projected(model, clique) - before).sum()), table.count(clique))
    report: dict[str, Any] = {"rounds": rounds, "cut": cut, "used": spending.used, "rho": spending.rho}
    report["chosen"] = [len(clique) for clique in chosen[len(singles) :]]
    return _rows(model, table.names, options["rows"]), report


def _fits(table: Cells, chosen: list[Clique], clique: Clique, limit: float) -> bool:
    if any(set(clique) <= set(each) for each in chosen):
        return True
    return bool(junction_tree.hypothetical_model_size(table.domain, [*chosen, clique]) <= limit)


def _rows(model: Any, names: Sequence[str], count: int) -> Any:
    drawn = model.synthetic_data(rows=count).to_dict()
    return np.column_stack([np.asarray(drawn[name]) for name in names]).astype(np.int64)


def main(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    with np.load(folder / "input.npz") as given:
        table = Cells(given["cells"], given["sizes"])
    rng = np.random.default_rng(options["seed"])
    np.random.seed(int(rng.integers(2**31)))  # mbi draws its rows from NumPy's global generator
    start = time.process_time()
    found, report = (mst if options["mechanism"] == "mst" else aim)(table, options, rng)
    report["seconds"] = time.process_time() - start
    np.savez(folder / "output.npz", cells=found)
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
