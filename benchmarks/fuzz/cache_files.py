"""Damaged and forged fits in the cache: the answer is always that of the release."""

from __future__ import annotations

import hashlib
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
from safetensors.numpy import load, save

import dpsketch as dps
from benchmarks.fuzz import sketch_files
from benchmarks.fuzz.files import attempt, damaged, limits
from dpsketch.learn.estimators.joint import fit_cache as fits
from dpsketch.learn.estimators.joint.from_release import ReleasedProducts, with_fit
from dpsketch.learn.estimators.joint.joint_fit import Products
from dpsketch.sketch.released import ReleasedSketch

KIND = 0  # of the sketches: marginals and pair tables
WHERE = "x < 0.5 and y < 10 and z = 'a'"


def run_one(rng: np.random.Generator, folder: Path) -> None:
    """Put one file into the cache and query several columns."""
    path = folder / "a.sketch"
    path.write_bytes(sketch_files.honest(KIND))
    released = ReleasedSketch.load(path)
    key = fits._key(released)
    kept = folder / f"{hashlib.sha256(key).hexdigest()}{fits.SUFFIX}"
    with patch.object(fits, "user_folder", lambda _name: folder), patch.object(fits, "fit_released", _known):
        fits._write(kept, key, models(path))
        damage = damaged(rng, kept.read_bytes()) if rng.random() < 0.5 else _malformed(rng, kept.read_bytes(), key)
        kept.write_bytes(damage)
        with limits(len(damage)):
            answer = attempt(lambda: dps.open(path).fraction(WHERE))
    value, stderr = expected(path)
    if not (np.isclose(answer.value, value, rtol=1e-9) and np.isclose(answer.stderr, stderr, rtol=1e-9)):
        raise ValueError(f"{answer.value} ± {answer.stderr} instead of {value} ± {stderr}")


def _malformed(rng: np.random.Generator, good: bytes, key: bytes) -> bytes:
    """Under a correct digest: tensors that are missing, of another shape or type, or not numbers."""
    tensors = load(good[fits._DIGEST :])
    name = str(rng.choice(list(tensors)))
    choice = rng.integers(4)
    if choice == 0:
        del tensors[name]
    elif choice == 1:
        tensors[f"{rng.integers(12)}.{rng.integers(4)}.groups"] = tensors.pop(name)
    elif choice == 2:
        tensors[name] = tensors[name].reshape(-1)[: rng.integers(tensors[name].size)].copy()
    else:
        tensors[name] = np.full_like(tensors[name], rng.choice([np.nan, np.inf, -1.0, 1e308]))
    content = save({name: np.ascontiguousarray(each) for name, each in tensors.items()})
    return fits._sealed(key, content) + content


def _known(released: ReleasedSketch) -> ReleasedProducts:
    """A fit that takes no time."""
    first, *others = _fitted(released.created)
    return with_fit(released, first, lambda: tuple(others))


def models(path: Path) -> tuple[Products, ...]:
    return _fitted(ReleasedSketch.load(path).created)


@cache
def _fitted(_created: str) -> tuple[Products, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sketch"
        path.write_bytes(sketch_files.honest(KIND))
        joint = dps.View(ReleasedSketch.load(path))._sources.products
        assert joint is not None
        assert all(joint.fitted.mixtures)
        return joint.fitted.models


@cache
def _answer(content: bytes, path: Path) -> tuple[float, float]:
    answer = dps.View(ReleasedSketch.load(path)).fraction(WHERE)
    return float(answer.value), float(answer.stderr)


def expected(path: Path) -> tuple[float, float]:
    return _answer(path.read_bytes(), path)
