"""Incompatible packages run in separate environments, as scripts that read and write files."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venvs"
# Counts need double precision; no program of mbi's is compiled twice.
JAX = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "JAX_ENABLE_COMPILATION_CACHE": "0"}


class OverTime(Exception):
    """A script was ended because it exceeded its processor time."""


def interpreter(environment: str) -> Path:
    return FOLDER / environment / "bin" / "python"


def installed(environment: str) -> bool:
    return interpreter(environment).exists()


def run_script(
    environment: str, module: str, arrays: dict[str, Any], options: dict[str, Any], seconds: float = 0.0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and a report that the script writes; `OverTime` after `seconds` of processor time (0: never)."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "input.npz", **arrays)
        (Path(folder) / "options.json").write_text(json.dumps(options))
        variables = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"} | JAX
        done = run_limited([str(interpreter(environment)), "-m", module, folder], seconds, variables)
        if done.returncode:
            raise RuntimeError(f"{module} failed:\n{done.stderr[-3000:]}")
        with np.load(Path(folder) / "output.npz") as arrays_file:
            output = dict(arrays_file)
        return output, json.loads((Path(folder) / "report.json").read_text())


def run_limited(
    command: list[str], seconds: float, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that the system itself ends, because a script cannot check the clock inside one long step."""

    def limit() -> None:
        if seconds:
            soft = math.ceil(seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))

    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, preexec_fn=limit)
    if seconds and done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise OverTime
    return done
