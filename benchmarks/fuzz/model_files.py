"""Damaged and forged model files: refused with the library's own error, or scored."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.fuzz import sketch_files
from benchmarks.fuzz.files import attempt, damaged, distorted, lie, limits, sealed
from dpsketch.errors import DpsketchError
from dpsketch.sketch import container
from dpsketch.sketch.privacy_statement import statement_text

POINTS: dict[str, Any] = {
    "x": [0.5, None, 7.0, -1e300, 1e300],
    "y": [3.0, 20.0, None, 1e18, float("inf")],
    "z": ["a", "b", None, "c", ""],
}
MODELS: tuple[tuple[int, Any], ...] = (
    (3, lambda: dps.KMeans(2)),
    (3, lambda: dps.GaussianMixture(2, "full")),
    (3, lambda: dps.GaussianMixture(2, "diag")),
    (2, lambda: dps.PCA(1)),
    (0, lambda: dps.LinearRegression("y")),
    (0, lambda: dps.LogisticRegression("z")),
    (5, lambda: dps.KernelDensity()),
    (5, lambda: dps.AnomalyScorer()),
    (5, lambda: dps.GridDensity()),
    (5, lambda: dps.GridDensity("normalised")),
    (6, lambda: dps.DensityClassifier("z")),
    (2, lambda: dps.KernelDensity("gaussian", 0.3, ("x", "y"))),
)


def run_one(rng: np.random.Generator, folder: Path) -> None:
    """Make one file, load it and score rows."""
    path = folder / "fuzzed.model"
    good = honest(int(rng.integers(len(MODELS))))
    content = damaged(rng, good) if rng.random() < 0.2 else lying(rng, good, folder)
    path.write_bytes(content)
    with limits(len(content)):
        model = attempt(lambda: dps.load_model(path))
        if not isinstance(model, DpsketchError):
            use(model)


def use(model: Any) -> None:
    """Use a model as `dpsketch score` does: the statement, then rows."""
    text = statement_text(model.statement_)
    if not text.replace("\n", "").isprintable():
        raise ValueError(f"a statement that a terminal obeys: {text!r}")
    columns = attempt(lambda: model.input_columns)
    if not isinstance(columns, DpsketchError):
        attempt(lambda: model.scores({name: POINTS.get(name, POINTS["x"]) for name in columns}))


@cache
def honest(number: int) -> bytes:
    """A small model, as the library writes it."""
    kind, make = MODELS[number]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sketch"
        path.write_bytes(sketch_files.honest(kind))
        model = attempt(lambda: make().fit(dps.open(path)))
        if isinstance(model, DpsketchError):
            raise AssertionError(f"model {number} does not fit: {model}")
        dps.save_model(model, path.with_name("a.model"))
        return path.with_name("a.model").read_bytes()


def lying(rng: np.random.Generator, good: bytes, folder: Path) -> bytes:
    """A forged file with a correct digest."""
    path = folder / "good.model"
    path.write_bytes(good)
    contents = container.checked(path, "model")
    header, tensors = contents.header, {name: array.load() for name, array in contents.stored_arrays().items()}
    choice = rng.integers(4)
    if choice == 0:
        header = lie(rng, header)
    elif choice == 1:
        header["facts"] = lie(rng, header["facts"])
    if choice >= 2 or rng.random() < 0.2:
        name = str(rng.choice(list(tensors)))
        tensors[name] = distorted(rng, tensors[name])
    try:
        return sealed(header, tensors)
    except (ValueError, TypeError):  # JSON cannot hold it
        return good
