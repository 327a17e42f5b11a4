"""From Fourier sums to Gaussian atoms: grow, anneal, replace, cross over, and stop when the fit is good.

Growing adds one atom at a time where it explains most. Annealing does so on the shortest frequencies first, which
resolve only coarse structure. Replacing adds an atom and drops the least useful. Restarts are crossed over. The search
ends when the residuals are as small as the noise and the lowest cost was reached twice, or three restarts did not lower
it. Source: RESEARCH "Clusters, mixtures, PCA"; compressive §2.3 for the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from dpsketch.learn.estimators.fourier_sums import FourierSums
from dpsketch.learn.models.clusters.atoms import SHAPES, Atoms, Model
from dpsketch.learn.models.clusters.lloyd import Progress
from dpsketch.learn.models.clusters.search import best_atoms
from dpsketch.learn.models.clusters.solver import Fit, Priors, Solver
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import UNRECORDED

# Shares of the frequencies, by restart.
SCHEDULES: Annotated[tuple[tuple[float, ...], ...], UNRECORDED] = ((0.6, 1.0), (1.0,), (0.4, 0.7, 1.0), (0.5, 1.0))
RESTARTS: Annotated[int, UNRECORDED] = 8
FEW: Annotated[int, UNRECORDED] = 3  # frequencies for each atom and column that a search needs
SAME: Annotated[float, UNRECORDED] = 0.3  # difference below which costs are the same
STANDS: Annotated[int, UNRECORDED] = 3  # restarts without a lower cost, after which the search ends
GAIN: Annotated[float, UNRECORDED] = 0.5  # in cost, that a replacement must bring
SPREAD = 1.6  # χ² of noise of m frequencies has a relative standard deviation of at most SPREAD/√m
GOOD: Annotated[float, UNRECORDED] = 1.5  # such standard deviations, below which the search may stop
BAD: Annotated[float, UNRECORDED] = 4.0  # above which the fit is reported as inexact
MOST_UNEXPLAINED: Annotated[float, UNRECORDED] = 0.05


@dataclass(frozen=True)
class Decoded:
    """The best atoms. `quality` is χ² over its degrees of freedom: about 1 for a fit as good as the noise allows.

    `unexplained` is the squared misfit beyond noise, relative to that of a single atom for all records: the unexplained
    part of the cluster structure.
    """

    atoms: Atoms
    solver: Solver
    quality: float
    unexplained: float
    converged: bool
    interrupted: bool = False

    @property
    def fits(self) -> bool:
        """Whether noise can explain the residuals."""
        return self.quality <= _limit(BAD, self.solver.model)

    @property
    def useful(self) -> bool:
        """Whether the misfit beyond noise is small compared with what the atoms explain."""
        return self.fits or self.unexplained <= MOST_UNEXPLAINED


class Decoder:
    """Searches for `count` atoms: spherical ones first, then, if requested, ones with more parameters."""

    @one_thread()
    def __init__(
        self, sums: FourierSums, count: int, generator: np.random.Generator, progress: Progress | None = None
    ) -> None:
        self._count, self._generator, self._progress = count, generator, progress
        self._full = Solver(Model(sums), Priors())
        self.best = single_atom(self._full)
        centre, variance = self.best.atoms.centres[0], float(np.exp(self.best.atoms.spreads[0, 0]))
        self._around = centre, variance
        priors = Priors(centre=centre, centre_variance=variance)
        self._full = Solver(self._full.model, priors)
        most = FEW * count * sums.dimension
        self._search = self._full if sums.size <= most else Solver(Model(sums.thinned(most)), priors)

    @one_thread()
    def run(self, shape: str = "spherical", restarts: int = RESTARTS) -> Decoded:
        """Run the search. An interrupt ends it with the best atoms so far."""
        found: list[float] = []
        interrupted, settled, stood = False, False, 0
        good = _limit(GOOD, self._search.model)
        try:
            for restart in range(restarts):
                fit = self._restart(SCHEDULES[restart % len(SCHEDULES)])
                found.append(fit.cost)
                if restart:
                    crossed = self._crossed(self.best, fit)
                    if crossed.cost < min(fit.cost, self.best.cost):
                        fit = crossed
                        found.append(crossed.cost)
                stood = stood + 1 if restart and fit.cost > self.best.cost - SAME else 0
                if not restart or fit.cost < self.best.cost:
                    self.best = fit
                self._report((restart + 1) / restarts)
                hits = sum(cost - min(found) < SAME for cost in found)
                settled = hits > 1 or stood >= STANDS
                if hits > 2 or (settled and quality(self._search.model, self.best.atoms) <= good):
                    break
            if self._search is not self._full:
                self.best = self._full.minimise(self.best.atoms, 30)
            self.best = self._replaced(self._full, self.best, 8)
            for step in SHAPES[1 : SHAPES.index(shape) + 1]:
                self.best = self._full.minimise(self.best.atoms.shaped(step), 40)
                self.best = self._replaced(self._full, self.best, 6)
            self.best = self._full.minimise(self.best.atoms, 60, 1e-5)
        except KeyboardInterrupt:
            interrupted = True
        self._report(1.0)
        return decoded(self._full, self.best.atoms, settled and not interrupted, interrupted)

    @one_thread()
    def freed(self, found: Decoded, shape: str) -> Decoded:
        """The result, refitted with atoms of more parameters."""
        try:
            fit = self._full.minimise(found.atoms.shaped(shape), 40)
            fit = self._replaced(self._full, fit, 6)
        except KeyboardInterrupt:
            return replace(found, interrupted=True, converged=False)
        return decoded(self._full, fit.atoms, found.converged)

    def _report(self, share: float) -> None:
        if self._progress is not None:
            self._progress(share)

    def _restart(self, schedule: tuple[float, ...]) -> Fit:
        fit: Fit | None = None
        for share in schedule:
            last = share == 1
            search = self._search
            solver = search if last else Solver(Model(search.model.sums.lowest(share)), search.priors)
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
            costs = solver.costs_without(more.atoms)[:-1]  # the new atom is last
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
        solver = self._search
        fit = solver.minimise(one.atoms.joined(other.atoms), 4)
        while fit.atoms.count > self._count:
            costs = solver.costs_without(fit.atoms)
            tried = [solver.minimise(fit.atoms.without(int(place)), 5) for place in np.argsort(costs)[:2]]
            fit = min(tried, key=lambda each: each.cost)
        return solver.minimise(fit.atoms, 20)


def single_atom(solver: Solver) -> Fit:
    """One atom for all records."""
    dimension = solver.model.sums.dimension
    start = Atoms(np.zeros(1), np.zeros((1, dimension)), np.full((1, 1), np.log(0.04)))
    return solver.minimise(start, 20)


def decoded(solver: Solver, atoms: Atoms, converged: bool, interrupted: bool = False) -> Decoded:
    """Atoms with their goodness of fit."""
    model = solver.model
    left, alone = misfit(model, atoms), misfit(model, single_atom(solver).atoms)
    return Decoded(atoms, solver, quality(model, atoms), left / alone if alone else 0.0, converged, interrupted)


def misfit(model: Model, atoms: Atoms) -> float:
    """Squared residuals beyond those from noise."""
    variances, left = model.sums.deviations**2, np.abs(model.residuals(atoms)) ** 2
    return max(float(left @ variances) - float(variances.sum()) * _freedom(model, atoms) / model.sums.size, 0.0)


def _limit(deviations: float, model: Model) -> float:
    """`quality` of noise alone, plus this number of standard deviations."""
    return 1 + deviations * SPREAD / float(np.sqrt(model.sums.size))


def quality(model: Model, atoms: Atoms) -> float:
    """χ² over its degrees of freedom."""
    return model.chi_squared(atoms) / _freedom(model, atoms)


def _freedom(model: Model, atoms: Atoms) -> int:
    return max(2 * model.sums.size - atoms.parameters, 1)
