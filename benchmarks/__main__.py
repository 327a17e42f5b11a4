"""`make bench`: every figure beside its goal, measured in one process, as ratios where possible."""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import platform

from benchmarks import cells, counters, files, fourier, grid, large, ledger, noise, race, release, start, units

if __name__ == "__main__":
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    release.main()
    large.main()
    noise.main()
    fourier.main()
    cells.main()
    files.main()
    grid.main()
    race.main()
    counters.main()
    units.main()
    start.main()
    ledger.main()
