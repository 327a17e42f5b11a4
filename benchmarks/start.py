"""CPU seconds from the start of a warm process to its first result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import line

FIRST_SUMS = """
import numpy as np, dpsketch as dps
from dpsketch.encoding.records import Records
columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(10)}
bound = MAP.bind(dps.Schema.from_dict({"columns": columns}))
bound.accumulate(Records(np.zeros((10, 100), np.int16)), np.zeros(bound.size, np.int64))
"""
NUMBA_ALONE = """
from numba.core.registry import cpu_target
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
"""
RELEASE = """
import sys
words = "dpsketch release t.csv --schema t.toml --epsilon 1 --ledger l.db --create-ledger --dataset t"
sys.argv = [*words.split(), "-o", "t.sketch", "--force"]
from dpsketch.cli.app import main
main()
"""


def cpu_seconds(code: str, folder: Path) -> float:
    best = float("inf")
    for _ in range(4):  # the first run may compile
        process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError("the process failed")
        best = min(best, usage.ru_utime + usage.ru_stime)
    return best


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.csv").write_text("age\n" + "\n".join(str(age) for age in range(100)))
        (folder / "t.toml").write_text(
            '[privacy]\nrows = 100\n[columns.age]\nkind = "integer"\nlower = 0\nupper = 120\n'
        )
        subprocess.run(
            [Path(sys.executable).with_name("dpsketch"), "ledger", "grant", "l.db", "t", "--epsilon", "99"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        for name, made in (("Fourier", "dps.Fourier(size=100)"), ("Race", "dps.Race(rows=100)")):
            seconds = cpu_seconds(FIRST_SUMS.replace("MAP", made), folder)
            line(f"warm process start to first sums, {name}", seconds, "CPU-s", 0.8, at_most=True)
        print(f"of which Numba takes before it loads any kernel: {cpu_seconds(NUMBA_ALONE, folder):.2f} CPU-s")
        print(f"warm `dpsketch release` of 100 rows: {cpu_seconds(RELEASE, folder):.2f} CPU-s")
