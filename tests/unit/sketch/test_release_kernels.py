"""Compiled code that cannot be loaded: nothing is spent for nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.noise import bodies_kernel, gaussian_kernel
from dpsketch.noise import laplace_kernel as noise_kernel
from dpsketch.privacy.events import Mechanism

COLUMNS = {name: {"kind": "number", "lower": 0, "upper": 1} for name in ("x", "z")}
SCHEMA = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": COLUMNS})
TABLE = pa.table({"x": [0.2, 0.4], "z": [0.1, 0.9]})


@pytest.mark.parametrize(
    ("mechanism", "map_", "budget", "choice", "kernel"),
    [
        (Mechanism.LAPLACE, dps.Count(), dps.Budget(1.0), "auto", (noise_kernel, "fill_digits")),
        (Mechanism.GAUSSIAN, dps.Count(), dps.Budget(1.0, 1e-6), "gaussian", (gaussian_kernel, "fill_rounded")),
        (Mechanism.DISC, dps.Fourier(size=10), dps.Budget(1.0), "auto", (bodies_kernel, "fill_discs")),
        (Mechanism.CUBE, dps.OneBitFourier(size=10), dps.Budget(1.0), "auto", (bodies_kernel, "fill_cube")),
        (Mechanism.BALL, dps.SecondMoments(), dps.Budget(1.0), "auto", (gaussian_kernel, "fill_rounded")),
    ],
    ids=lambda value: value.value if isinstance(value, Mechanism) else "",
)
def test_noise_that_cannot_be_drawn_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
    mechanism: Mechanism,
    map_: dps.Count,
    budget: dps.Budget,
    choice: str,
    kernel: tuple[object, str],
) -> None:
    ledger = dps.Ledger("sqlite://")
    ledger.grant("t", dps.Budget(1.0, 1e-6))
    raw = dps.accumulate(TABLE, SCHEMA, dps.Recipe([dps.Part(map_, 1.0)]))

    def fail(*_: object) -> int:
        raise OSError("no compiled code")

    with monkeypatch.context() as patch:
        patch.setattr(*kernel, fail)
        with pytest.raises(OSError, match="no compiled code"):
            dps.release(raw, budget, ledger, "t", choice)
    released = dps.release(raw, budget, ledger, "t", choice)  # the budget is still there
    assert {noise.mechanism for noise in released.releases[0].noises} == {mechanism}


def _file_in_the_way(folder: Path) -> None:
    (folder / "cache").write_text("")


def _damaged_files(folder: Path) -> None:
    assert _release(folder, "first.sketch").returncode == 0
    kernels = sorted((folder / "cache").rglob("*.kernel"))
    assert kernels
    for place, path in enumerate(kernels):
        path.write_bytes(b"" if place % 2 else path.read_bytes()[:-10])


def _release(folder: Path, output: str) -> subprocess.CompletedProcess[str]:
    """The installed command, as a service account without a home folder runs it."""
    words = f"release t.raw --dataset t --epsilon 1 --ledger l.db --create-ledger -o {output}"
    return subprocess.run(
        [sys.executable, "-c", "from dpsketch.cli.app import run; run()", *words.split()],
        cwd=folder,
        env=os.environ | {"HOME": "/proc/none", "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("spoil", [_file_in_the_way, _damaged_files])
def test_a_release_needs_no_cache(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    dps.accumulate(TABLE, SCHEMA, dps.Recipe([dps.Part(dps.Count(), 1.0)])).save(tmp_path / "t.raw")
    dps.Ledger(str(tmp_path / "l.db")).grant("t", dps.Budget(2.0))
    spoil(tmp_path)
    done = _release(tmp_path, "t.sketch")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t.sketch").exists()
