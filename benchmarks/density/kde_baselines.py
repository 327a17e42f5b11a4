"""Private kernel densities by other methods, each at the best of its settings for the table.

A method whose lattice or matrix is too large is named infeasible, with the memory it needs and the time that the
measured rate of this machine gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from benchmarks.density import privbayes
from benchmarks.density.choice import Settings
from benchmarks.density.function_release import (
    Problem,
    Release,
    bernstein,
    fourier_series,
    functional_noise,
    histogram,
    kernel,
    mean_embedding,
    trigonometric,
)
from benchmarks.density.kernel_sums import brute_force
from dpsketch.numerics.arrays import Floats

Budgets = Sequence[tuple[float, float]]
MOST_POINTS = 100_000  # kernel sums that a baseline may ask for
MOST_NODES = 200_000  # of integrals, for each query
DRAWN = {1: 100_000}  # rows of PrivBayes, by columns; else
FEWER_DRAWN = 20_000
ORDERS = (1, 4, 16)
ONE_COLUMN = {
    "Bernstein": [partial(bernstein, cells=m, order=h) for m in (10, 20, 40, 100, 400, 1000) for h in ORDERS],
    "Fourier series": [partial(fourier_series, terms=m) for m in (8, 10, 20, 40, 80, 160, 320)],
    "histogram": [partial(histogram, bins=b) for b in (50, 100, 250, 500, 1000, 2000, 4000)],
    "trigonometric": [partial(trigonometric, degree=t) for t in (10, 20, 50, 100, 200)],
    "PFDA": [
        partial(functional_noise, smoothing=s, reach=r) for s in (1e-2, 1e-3, 1e-4, 1e-5) for r in (0.02, 0.1, 0.5)
    ],
}
LATTICES = (1, 2, 4, 10, 20, 40)
DEGREES = (4, 8, 16, 24)
CENTRES = {1: (25, 50, 101, 230, 471), 3: (300, 1000, 3000), 8: (300, 1000, 3000), 54: (300, 1000)}
PAPER_CENTRES = 100_000
NETWORKS = {  # bins and degree
    1: [(bins, 1) for bins in (25, 50, 100, 250, 500, 1000, 2000)],
    3: [(16, 2), (32, 1), (32, 2), (64, 1), (64, 2), (128, 1)],
    8: list(product((8, 16, 32), (1, 2, 3))),
    54: [(4, 1), (8, 1), (16, 1)],
}


ErrorOf = Callable[[Floats, Floats], float]


def compared(problems: Sequence[Problem], budgets: Budgets, error_of: ErrorOf, seed: int) -> Settings:
    """Errors of every feasible method in every setting."""
    found = Settings()
    last: Problem | None = None
    for run, problem in enumerate(problems):
        exact = problem.sums(problem.queries)
        generator = np.random.default_rng([seed, run, 17])
        if problem is not last:
            releases, last = list(_releases(problem, generator)), problem
        for method, release in releases:
            for epsilon, delta in budgets:
                estimates = release.noised(epsilon, delta, generator)
                if estimates is not None:
                    found.add(method, epsilon, delta, release.setting, error_of(estimates, exact))
        for setting, epsilon, estimates in _drawn(problem, budgets, generator):
            found.add("PrivBayes", epsilon, 0.0, setting, error_of(estimates, exact))
    return found


def _releases(problem: Problem, generator: np.random.Generator) -> Iterator[tuple[str, Release]]:
    columns = problem.columns
    if columns == 1:
        for method, settings in ONE_COLUMN.items():
            for make in settings:
                yield method, make(problem)
    else:
        for cells, order in product(LATTICES, ORDERS):
            if (cells + 1) ** columns <= MOST_POINTS:
                yield "Bernstein", bernstein(problem, cells, order)
        for degree in DEGREES:
            if (2 * degree + 2) ** columns <= MOST_NODES:
                yield "trigonometric", trigonometric(problem, degree)
    for count in CENTRES[columns]:
        yield "mean embedding", mean_embedding(problem, _centres(problem, count, generator))


def _centres(problem: Problem, count: int, generator: np.random.Generator) -> Floats:
    """Public points: evenly in one column, else at random in the box."""
    if problem.columns == 1:
        return np.linspace(problem.low, problem.high, count)
    return problem.low + generator.random((count, problem.columns)) * (problem.high - problem.low)


def _drawn(problem: Problem, budgets: Budgets, generator: np.random.Generator) -> Iterator[tuple[str, float, Floats]]:
    """Kernel sums of rows that PrivBayes draws, by setting and pure ε; with one column, its network is a histogram."""
    low, high = problem.bounds
    shares = (problem.points - low) / (high - low)
    for bins, degree in NETWORKS[problem.columns]:
        levels = [bins] * problem.columns
        codes = np.minimum((shares * bins).astype(np.int64), bins - 1)
        known: privbayes.Scores = {}
        for epsilon in sorted({epsilon for epsilon, delta in budgets if not delta}):
            rows = len(problem.points)
            network = privbayes.fitted(codes, levels, epsilon, degree, rows, generator, known)
            count = DRAWN.get(problem.columns, FEWER_DRAWN)
            drawn = network.drawn(count, generator)
            points = low + (drawn + generator.random(drawn.shape)) / bins * (high - low)
            sums = brute_force(points, np.ones(len(points)), problem.queries, problem.width)
            yield f"{bins} bins, degree {degree}", epsilon, sums * network.rows / count


def infeasible(problem: Problem) -> Iterator[str]:
    """Lines about what is not run, with memory, and time at this machine's rate."""
    columns, rows = problem.columns, len(problem.points)
    if columns == 1:
        return
    start = time.process_time()
    brute_force(problem.points, np.ones(rows), problem.queries[:64], problem.width)
    each = (time.process_time() - start) / 64
    fine = int(np.ceil(np.max((problem.high - problem.low) / problem.width)))  # points one width apart
    left_out = [cells for cells in LATTICES if (cells + 1) ** columns > MOST_POINTS]
    for cells, note in ((left_out[0], "and more: not run"), (fine, "one width apart")) if left_out else ():
        points = float(cells + 1) ** columns
        yield (
            f"  Bernstein, M={cells} {note}: {points:.3g} lattice points, {size_text(8 * points)}, "
            f"{time_text(points * each)} at {each * 1e3:.2g} ms a sum"
        )
    for degree, note in ((DEGREES[0], "and more: not run"), (fine, "one width apart")):
        nodes = float(2 * degree + 2) ** columns
        if nodes > MOST_NODES:
            yield (
                f"  trigonometric, degree {degree} {note}: integrals over {nodes:.3g} nodes a query, "
                f"{size_text(8 * nodes)}, {time_text(nodes * len(problem.queries) * _kernel_seconds())}"
            )
    cube = _eigen_seconds(1000) / 1000**3
    yield f"  Fourier series: infeasible, integrals as those of trigonometric polynomials for each of {rows} records"
    yield (
        f"  PFDA: infeasible, eigenvectors of a {rows} × {rows} matrix: {size_text(8.0 * rows**2)}, "
        f"{time_text(cube * rows**3)} at the rate of 1000 × 1000"
    )
    yield (
        f"  mean embedding, M={PAPER_CENTRES} as in the paper: not run, eigenvectors: "
        f"{size_text(8.0 * PAPER_CENTRES**2)}, {time_text(cube * PAPER_CENTRES**3)}"
    )


def _eigen_seconds(size: int) -> float:
    matrix = np.random.default_rng(0).normal(size=(size, size))
    start = time.process_time()
    np.linalg.eigh(matrix @ matrix.T)
    return time.process_time() - start


def _kernel_seconds() -> float:
    distances = np.linspace(0, 10, 1_000_000)
    kernel(distances)
    start = time.process_time()
    kernel(distances)
    return (time.process_time() - start) / len(distances)


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} PiB"


def time_text(seconds: float) -> str:
    for unit, length in (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"
