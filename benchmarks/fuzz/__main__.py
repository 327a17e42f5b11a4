"""Run fuzzers: `python -m benchmarks.fuzz --seconds 600 --seed 1 --only csv_bytes`. Each case is reproducible."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Protocol
from zlib import crc32

import numpy as np

FUZZERS = ("arrow_layouts", "csv_bytes", "toml_schema", "sketch_files", "model_files", "cache_files")


class Fuzzer(Protocol):
    def run_one(self, rng: np.random.Generator, folder: Path) -> None: ...


def fuzzer(name: str) -> Fuzzer:
    return import_module(f"benchmarks.fuzz.{name}")


def run_case(module: Fuzzer, name: str, seed: int, case: int) -> None:
    """Run one case in its own folder; the same in every run."""
    with tempfile.TemporaryDirectory(prefix="dpsketch-fuzz-") as folder:
        module.run_one(np.random.default_rng([seed, crc32(name.encode()), case]), Path(folder))


def finding(module: Fuzzer, name: str, seed: int, cases: Iterator[int]) -> int | None:
    """The first case that raises, with its traceback on standard error."""
    for case in cases:
        try:
            run_case(module, name, seed, case)
        except Exception:
            traceback.print_exc()
            return case
    return None


def until(seconds: float, first: int = 0) -> Iterator[int]:
    """Case numbers for some time."""
    end = time.monotonic() + seconds
    for case in count(first):
        if time.monotonic() >= end:
            return
        yield case


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for all fuzzers together")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--only", choices=FUZZERS, help="one fuzzer")
    parser.add_argument("--case", type=int, help="with --only: this case alone")
    chosen = parser.parse_args()
    names = FUZZERS if chosen.only is None else (chosen.only,)
    modules = {name: fuzzer(name) for name in names}
    failed = False
    for name, module in modules.items():
        seen = 0

        def cases() -> Iterator[int]:
            nonlocal seen
            share = chosen.seconds / len(modules)
            for seen, case in enumerate(until(share) if chosen.case is None else [chosen.case], 1):  # noqa: B007
                yield case

        case = finding(module, name, chosen.seed, cases())
        again = f"python -m benchmarks.fuzz --only {name} --seed {chosen.seed} --case {case}"
        print(f"{name:<14} {seen} cases, {'no finding' if case is None else f'FINDING: {again}'}", flush=True)
        failed |= case is not None
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
