"""From Fourier sums to Gaussian atoms: grow, anneal, replace, cross over, and stop when the fit is good.

Growing adds one atom at a time where it explains most; annealing does so on the shortest frequencies first, which see
only coarse structure; replacing adds an atom and drops the least useful; restarts are crossed over. The search ends
when the residuals are as small as the noise and the same cost was found twice.
Source: RESEARCH "Clusters, mixtures, PCA"; compressive §2.3 for the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpsketch.learn.clusters.atoms import Atoms, Model
from dpsketch.learn.clusters.search import best_atoms
from dpsketch.learn.clusters.solver import Fit, Priors, Solver
from dpsketch.learn.clusters.sums import FourierSums

Progress = Callable[[float], None]
SCHEDULES = ((0.6, 1.0), (1.0,), (0.4, 0.7, 1.0), (0.5, 1.0))  # shares of the frequencies, by restart
RESTARTS = 6
SAME = 1.5  # costs closer than this are the same
GAIN = 0.5  # that a replacement must bring
SPREAD = 1.6  # χ² of noise of m frequencies has a relative standard deviation of at most SPREAD/√m
GOOD, BAD = 1.5, 4.0  # such standard deviations: the search may stop; the fit fails


@dataclass(frozen=True)
class Decoded:
    """The best atoms. `quality` is χ² over its degrees of freedom: about 1 for a fit as good as the noise allows."""

    atoms: Atoms
    solver: Solver
    quality: float
    converged: bool
    interrupted: bool = False

    @property
    def fits(self) -> bool:
        return self.quality <= 1 + BAD * SPREAD / np.sqrt(self.solver.model.sums.size)


class Decoder:
    """Searches for `count` spherical atoms."""

    def __init__(
        self, sums: FourierSums, count: int, generator: np.random.Generator, progress: Progress | None = None
    ) -> None:
        self._count, self._generator, self._progress = count, generator, progress
        self._full = Solver(Model(sums), Priors())
        self.best = single_atom(self._full)
        centre, variance = self.best.atoms.centres[0], float(np.exp(self.best.atoms.spreads[0, 0]))
        self._around = centre, variance
        self._full = Solver(self._full.model, Priors(centre=centre, centre_variance=variance))

    def run(self, restarts: int = RESTARTS) -> Decoded:
        """An interrupt ends the search with the best atoms so far."""
        found: list[float] = []
        interrupted = False
        try:
            for restart in range(restarts):
                fit = self._restart(SCHEDULES[restart % len(SCHEDULES)])
                found.append(fit.cost)
                if restart:
                    crossed = self._crossed(self.best, fit)
                    if crossed.cost < min(fit.cost, self.best.cost):
                        fit = crossed
                        found.append(crossed.cost)
                if not restart or fit.cost < self.best.cost:
                    self.best = fit
                self._report((restart + 1) / restarts)
                if self._twice(found) and self._quality(self.best.atoms) <= 1 + GOOD * self._deviation:
                    break
            self.best = self._replaced(self._full, self.best, 8)
            self.best = self._full.minimise(self.best.atoms, 60, 1e-5)
        except KeyboardInterrupt:
            interrupted = True
        self._report(1.0)
        atoms = self.best.atoms
        return Decoded(atoms, self._full, self._quality(atoms), self._twice(found) and not interrupted, interrupted)

    def _twice(self, found: list[float]) -> bool:
        return sum(cost - min(found) < SAME for cost in found) > 1

    @property
    def _deviation(self) -> float:
        return SPREAD / float(np.sqrt(self._full.model.sums.size))

    def _quality(self, atoms: Atoms) -> float:
        return quality(self._full.model, atoms)

    def _report(self, share: float) -> None:
        if self._progress is not None:
            self._progress(share)

    def _restart(self, schedule: tuple[float, ...]) -> Fit:
        fit: Fit | None = None
        for share in schedule:
            last = share == 1
            solver = self._full if last else Solver(Model(self._full.model.sums.lowest(share)), self._full.priors)
            fit = self._grown(solver, 2 if len(schedule) == 1 else 1) if fit is None else solver.minimise(fit.atoms, 15)
            fit = self._replaced(solver, fit, 20 if last else 6, 3 if last else 2)
        assert fit is not None
        return fit

    def _grown(self, solver: Solver, candidates: int) -> Fit:
        fit = solver.minimise(single_atom(solver).atoms, 15)
        while fit.atoms.count < self._count:
            new = best_atoms(solver.model, fit.atoms, self._around, self._generator, candidates)
            fits = [solver.minimise(fit.atoms.joined(atom, share), 6) for atom, share in new]
            fit = min(fits, key=lambda each: each.cost)
        return solver.minimise(fit.atoms, 25)

    def _replaced(self, solver: Solver, fit: Fit, rounds: int, patience: int = 3) -> Fit:
        failed = 0
        for _ in range(rounds):
            ((atom, share),) = best_atoms(solver.model, fit.atoms, self._around, self._generator)
            more = solver.minimise(fit.atoms.joined(atom, share), 4)
            costs = [solver.cost(more.atoms.without(place)) for place in range(fit.atoms.count)]
            tried = [solver.minimise(more.atoms.without(int(place)), 8) for place in np.argsort(costs)[:2]]
            best = min(tried, key=lambda each: each.cost)
            if fit.cost - GAIN < best.cost < fit.cost + 2:
                best = solver.minimise(best.atoms, 10)
            if best.cost < fit.cost - GAIN:
                fit, failed = best, 0
                continue
            failed += 1
            if failed == patience:
                break
        return solver.minimise(fit.atoms, 30)

    def _crossed(self, one: Fit, other: Fit) -> Fit:
        solver = self._full
        fit = solver.minimise(one.atoms.joined(other.atoms), 4)
        while fit.atoms.count > self._count:
            costs = [solver.cost(fit.atoms.without(place)) for place in range(fit.atoms.count)]
            tried = [solver.minimise(fit.atoms.without(int(place)), 5) for place in np.argsort(costs)[:2]]
            fit = min(tried, key=lambda each: each.cost)
        return solver.minimise(fit.atoms, 20)


def single_atom(solver: Solver) -> Fit:
    """One atom for all records."""
    dimension = solver.model.sums.dimension
    start = Atoms(np.zeros(1), np.zeros((1, dimension)), np.full((1, 1), np.log(0.04)))
    return solver.minimise(start, 20)


def quality(model: Model, atoms: Atoms) -> float:
    """χ² over its degrees of freedom."""
    freedom = max(2 * model.sums.size - atoms.parameters, 1)
    return model.chi_squared(atoms) / freedom


def refined(decoded: Decoded, shape: str) -> Decoded:
    """The same atoms with variances of each column, or full covariances."""
    solver = decoded.solver
    atoms = decoded.atoms
    for step in ("diag", "full"):
        if shape == "spherical":
            break
        atoms = solver.minimise(atoms.shaped(step), 40).atoms
        if step == shape:
            break
    return replace(decoded, atoms=atoms, quality=quality(solver.model, atoms))
