from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.maps.fourier import fourier
from dpsketch.maps.fourier.fourier import Fourier
from dpsketch.maps.kernels import cosine_bounds
from dpsketch.schema.schema import Schema


def test_bounds_over_every_phase() -> None:
    """All 2^32 phases of the frozen kernel: the constants of the sensitivity are exactly attained."""
    block = 1 << 28
    starts = range(-(2**31), 2**31, block)
    with ThreadPoolExecutor(2) as pool:
        bounds = list(pool.map(lambda start: cosine_bounds(start, start + block), starts))
    largest = tuple(max(bound[i] for bound in bounds) for i in range(3))
    assert largest == (fourier.LARGEST, fourier.LARGEST_L1, fourier.LARGEST_L2_SQUARED)


def test_sums_match_the_real_features(rng: np.random.Generator, schema: Schema) -> None:
    for size in (1, 6, 9):
        bound = Fourier(size=size, seed=1, columns=["age", "height", "sex"]).bind(schema)
        codes = rng.integers(-32768, 32768, (6, 1300)).astype(np.int16)
        sums = np.zeros(bound.size, np.int64)
        bound.accumulate(Records(codes), sums)
        exact = bound.features(Records(codes)).sum(axis=0) * bound.grid
        assert np.abs(sums - exact).max() <= 1300 * 0.53


def test_the_features_average_to_a_kernel(schema: Schema) -> None:
    """Isotropic directions: near points have near features, far points do not."""
    bound = Fourier(size=2000, columns=["age", "height"], radii=(2, 30)).bind(schema)
    codes = np.zeros((6, 3), np.int16)
    codes[0] = [0, 300, 20000]
    features = bound.features(Records(codes))
    kernel = features @ features.T / 2000
    assert np.allclose(np.diag(kernel), 1)
    assert kernel[0, 1] > 0.98
    assert kernel[0, 2] < 0.4


TARGETS = """
import hashlib, numpy as np, dpsketch as dps
from dpsketch.encoding.records import Records
columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(7)}
codes = (np.arange(7 * 999).reshape(7, 999) * 7919 % 65536 - 32768).astype(np.int16)
for structure in ("dense", "hadamard"):
    bound = dps.Fourier(size=20, seed=5, structure=structure).bind(dps.Schema.from_dict({"columns": columns}))
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(codes), sums)
    print(hashlib.sha256(sums.tobytes()).hexdigest())
"""


def test_the_same_bytes_from_code_for_other_processors(tmp_path: Path) -> None:
    """With and without the vector instructions of this machine, fused multiply-add included."""
    here = StringIO()
    with redirect_stdout(here):
        exec(TARGETS, {})
    plain = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", TARGETS]
    done = subprocess.run(command, env=os.environ | plain, capture_output=True, text=True, check=True)
    assert done.stdout == here.getvalue() != ""
