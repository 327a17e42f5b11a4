"""Fitted distributions in the user's cache folder: refitting takes seconds, reading one milliseconds.

A file is found by the digest of the release and of the code that fitted it, and holds a digest of both and of its
content. Nobody else can write to the folder. Whatever is damaged, or cannot be read or written, is fitted again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dpsketch.denoise import column_fit as columns
from dpsketch.denoise.column_fit import SMOOTHING, Marginal
from dpsketch.learn.estimators import release_noise
from dpsketch.learn.estimators.joint.bootstrap import REFITS
from dpsketch.learn.estimators.joint.from_release import ReleasedProducts, fit_released, product_parts, with_fit
from dpsketch.learn.estimators.joint.joint_fit import Products
from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.maps.tables import column_summaries
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics import nonnegative
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.user_cache import user_folder
from dpsketch.sketch.container import INVALID
from dpsketch.sketch.released import ReleasedSketch

FOLDER, SUFFIX = "fits", ".fit"
KEPT = 32  # files; the ones used last
_DIGEST = hashlib.sha256().digest_size


def cached_fit(released: ReleasedSketch) -> ReleasedProducts:
    """`fit_released`, from the cache if it was fitted before. Refits and mixtures are kept once they were needed."""
    folder = user_folder(FOLDER)
    if folder is None:
        return fit_released(released)
    key = _key(released)
    path = folder / f"{hashlib.sha256(key).hexdigest()}{SUFFIX}"
    models = _read(path, key, released)
    if models is None:
        fitted = fit_released(released)
        _write(path, key, (fitted.products,))
    else:
        fitted = with_fit(released, models[0], (lambda: models[1:]) if len(models) > 1 else None)
    held = _extent(models or (fitted.products,))

    def keep(found: tuple[Products, ...]) -> None:
        if _extent(found) != held:
            _write(path, key, found)

    return replace(fitted, keep=keep)


def _extent(models: tuple[Products, ...]) -> tuple[bool, ...]:
    """The models there are, and whether their mixtures are made."""
    return tuple(model.made for model in models)


def _key(released: ReleasedSketch) -> bytes:
    """Digests of what was read, not of the file, which may be another by now; and of the code."""
    facts = [released.schema.to_dict(), released.recipe.to_dict(), [each.to_dict() for each in released.releases]]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for sums in released.sums:
        digest.update(np.ascontiguousarray(sums).data)
    return digest.digest() + _code()


def _belong(released: ReleasedSketch, models: tuple[Products, ...]) -> bool:
    """Whether what a file holds is a fit of this release's columns, by itself or with all refits, and with mixtures of
    none, of the fit or of all: shapes, groups, pairs, and shares of finite size.
    """
    if len(models) not in (1, 1 + REFITS):
        return False
    fitted = with_fit(released, models[0])
    pairs = frozenset() if fitted.halved else fitted.pairs
    parts = product_parts(released)
    assert parts is not None
    common, size = models[0].common, sum(max(groups) + 1 for groups in parts.pair_map.groups_of_cells)
    if not fitted.halved and (common is None or common.shape != (size, size) or not np.isfinite(common).all()):
        return False
    mixtures = _extent(models)
    if len(set(mixtures[1:])) > 1 or (any(mixtures) and not mixtures[0]) or (fitted.halved and not all(mixtures)):
        return False
    return all(products.pairs.keys() == pairs and _valid(products, fitted.cells) for products in models)


def _valid(products: Products, cells: Sequence[Cells]) -> bool:
    if len(products.marginals) != len(cells):
        return False
    for j, (own, marginal) in enumerate(zip(cells, products.marginals, strict=True)):
        groups, within = products.groups[j], products.within[j]
        if (marginal.centres is None) == own.ordered:
            return False
        places = (marginal.centres, marginal.widths) if own.ordered else ()
        by_cell = (groups, within, marginal.shares, marginal.offsets, *places)
        if any(values is None or values.shape != (own.count,) for values in by_cell):
            return False
        if groups.min() < 0 or not np.bincount(groups).all():
            return False
        if not all(map(_shares, (within, marginal.shares))):
            return False
        known = (each for each in places if each is not None)
        if not (np.abs(marginal.offsets) < 0.5).all() or not all(np.isfinite(each).all() for each in known):
            return False
        if not 0 <= marginal.smoothing <= max(SMOOTHING):
            return False
    sizes = [len(shares) for shares in products.shares]
    tables = [(table, (sizes[i], sizes[j])) for (i, j), table in products.pairs.items()]
    if products.given is None:
        if products.goal is None:
            return False
        tables.append((products.goal.astype(np.float64), (sum(sizes), sum(sizes))))
    possible = all(table.shape == shape and bool((np.abs(table) <= 1).all()) for table, shape in tables)
    return possible and _valid_mixture(products.given, sizes)


def _valid_mixture(mixture: Mixture | None, sizes: Sequence[int]) -> bool:
    if mixture is None:
        return True
    if mixture.weights.ndim != 1 or not _shares(mixture.weights):
        return False
    shapes = [(len(mixture.weights), size) for size in sizes]
    return [each.shape for each in mixture.shares] == shapes and all(map(_shares, mixture.shares))


def _shares(values: Floats) -> bool:
    return bool(((values >= 0) & (values <= 1 + 1e-6)).all())


@cache
def _code() -> bytes:
    """Digest of the modules that a fit depends on."""
    digest = hashlib.sha256()
    packages = (Path(columns.__file__).parent, Path(__file__).parent, Path(nonnegative.__file__).parent)
    sources = [source for folder in packages for source in sorted(folder.glob("*.py"))]
    for source in (*sources, Path(column_summaries.__file__), Path(release_noise.__file__)):
        digest.update(source.read_bytes())
    return digest.digest()


def _write(path: Path, key: bytes, models: tuple[Products, ...]) -> None:
    tensors = {
        f"{model}.{name}": np.ascontiguousarray(values)
        for model, products in enumerate(models)
        for name, values in _tensors(products).items()
    }
    content = save(tensors)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    with suppress(OSError):  # a full disk
        try:
            with temporary.open("wb") as file:
                file.write(_sealed(key, content))
                file.write(content)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _remove_old(path.parent)


def _remove_old(folder: Path) -> None:
    for path in sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        path.unlink(missing_ok=True)


def _read(path: Path, key: bytes, released: ReleasedSketch) -> tuple[Products, ...] | None:
    """The fit, perhaps with its refits; None if there is none or it is not whole."""
    try:
        content = path.read_bytes()
        if content[:_DIGEST] != _sealed(key, content[_DIGEST:]):
            return None
        tensors = load(content[_DIGEST:])
        first = _products(tensors, 0)
        models = (first, *(_products(tensors, model, first) for model in range(1, _models_in(tensors))))
        if any(each.dtype != np.float64 for each in tensors.values()) or not _belong(released, models):
            return None
        os.utime(path)
        return models
    except (OSError, SafetensorError, *INVALID):
        return None


def _sealed(key: bytes, content: bytes) -> bytes:
    digest = hashlib.sha256(key)
    digest.update(content)
    return digest.digest()


def _tensors(products: Products) -> dict[str, Floats]:
    found: dict[str, Floats] = {"close": np.array([products.close])}
    if products.common is not None:
        found["common"] = products.common
    found |= {f"pair.{i}.{j}": table for (i, j), table in products.pairs.items()}
    if products.made:
        found |= {"weights": products.mixture.weights}
        found |= {f"{j}.components": shares for j, shares in enumerate(products.mixture.shares)}
    elif products.goal is not None:
        found["goal"] = products.goal.astype(np.float64)
    for j, marginal in enumerate(products.marginals):
        found |= {
            f"{j}.groups": products.groups[j].astype(np.float64),
            f"{j}.within": products.within[j],
            f"{j}.shares": marginal.shares,
            f"{j}.offsets": marginal.offsets,
            f"{j}.smoothing": np.array([marginal.smoothing]),
        }
        if marginal.centres is not None and marginal.widths is not None:
            found |= {f"{j}.centres": marginal.centres, f"{j}.widths": marginal.widths}
    return found


def _models_in(tensors: dict[str, Floats]) -> int:
    return sum(name.endswith(".close") for name in tensors)


def _products(tensors: dict[str, Floats], model: int, start: Products | None = None) -> Products:
    columns = sum(1 for name in tensors if name.startswith(f"{model}.") and name.endswith(".groups"))

    def of(name: str) -> tuple[Floats, ...]:
        return tuple(tensors[f"{model}.{j}.{name}"] for j in range(columns))

    with np.errstate(invalid="ignore"):  # of a damaged file
        groups = tuple(each.astype(np.int64) for each in of("groups"))
    weights, within = tensors.get(f"{model}.weights"), of("within")
    mixture = None if weights is None else Mixture(weights, of("components"), groups, within)
    places = ((tensors.get(f"{model}.{j}.centres"), tensors.get(f"{model}.{j}.widths")) for j in range(columns))
    marginals = zip(of("shares"), of("offsets"), places, of("smoothing"), strict=True)
    found = (Marginal(shares, offsets, *place, float(smooth[0])) for shares, offsets, place, smooth in marginals)
    every = combinations(range(columns), 2)
    pairs = {(i, j): tensors[name] for i, j in every if (name := f"{model}.pair.{i}.{j}") in tensors}
    goal, common = (tensors.get(f"{model}.{name}") for name in ("goal", "common"))
    single = None if goal is None else goal.astype(np.float32)
    close = float(tensors[f"{model}.close"][0])
    return Products(tuple(found), groups, within, pairs, single, close, common, start, mixture)
