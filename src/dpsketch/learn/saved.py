"""Fitted models as files: docs/formats/model.md. No pickle: nothing in a file is executed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from dpsketch.errors import DpsketchError, FileError, QueryError, visible
from dpsketch.files.outputs import written
from dpsketch.maps.base import FeatureMap, check_work
from dpsketch.maps.registry import map_from_dict
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema
from dpsketch.sketch import container
from dpsketch.sketch.container import Array
from dpsketch.sketch.privacy_statement import statement_text
from dpsketch.sketch.released import library_version

FORMAT = 1
LARGEST = 1e100  # largest number in a model, so that results stay finite
Facts = dict[str, Any]
Arrays = dict[str, Array]
Saved = tuple[Facts, Arrays]
AnyModel = TypeVar("AnyModel")
D = TypeVar("D", bound=FeatureMap)

_MOST_COUNTED = 2**53

# All models that a file may name. The library's own are public names, imported at first use.
_PUBLIC = (
    "AnomalyScorer",
    "DensityClassifier",
    "GaussianMixture",
    "GridDensity",
    "HashedLinear",
    "KMeans",
    "KernelDensity",
    "LinearRegression",
    "LogisticRegression",
    "PCA",
)
_registered: dict[str, type] = {}


def register(model: type[AnyModel]) -> type[AnyModel]:
    """Register a model of your own with `save_model` and `load_model`: a class decorator.

    Guarantee: a file can name registered classes and the library's own, and cannot cause other imports.
    """
    name = model.__name__
    if _registered.get(name, model) is not model or name in _PUBLIC:
        raise QueryError(f"there is a model {name} already", "give the class another name")
    _registered[name] = model
    return model


def model_names() -> tuple[str, ...]:
    """The names of all models that can be saved."""
    return (*_PUBLIC, *_registered)


def model_class(name: str) -> Any:
    """The class of a model, by its name."""
    return _registered[name] if name in _registered else getattr(import_module("dpsketch"), name)


class SavedModel(Protocol):
    """A fitted model. `statement_` is the privacy statement of the release that it was fitted to: post-processing keeps
    the guarantee of the release, and whoever gets the model should know it.

    `to_saved` returns facts that JSON can hold and arrays of `container.TYPES`; `from_saved` restores the model from
    them, and raises for anything that `to_saved` would not write.
    """

    statement_: dict[str, Any]

    def to_saved(self) -> Saved: ...

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> Any: ...


def save_model(model: SavedModel, path: str | Path, force: bool = False) -> None:
    """Write a fitted model as one file, with the privacy statement of its release; `load_model` reads it.

    Guarantee: the file holds what follows from the release alone.
    """
    name = type(model).__name__
    if name not in model_names() or model_class(name) is not type(model):
        raise QueryError(f"a {name} cannot be saved", f"models that can: {', '.join(model_names())}")
    facts, arrays = model.to_saved()
    header = {
        "format": FORMAT,
        "kind": "model",
        "model": name,
        "facts": facts,
        "statement": model.statement_,
        "library": library_version(),
    }
    with written(path, force) as file:
        container.write(file, header, {f"model.{key}": np.asarray(array) for key, array in arrays.items()})


def load_model(path: str | Path) -> Any:
    """Read a model that `save_model` wrote. Damage, hostile content and other kinds of files are a FileError.

    Large arrays are mapped from the file, read-only: do not change it in place while the model is in use.
    """
    path = Path(path)
    opened = container.checked(path, "model")
    header = opened.header
    if header.get("kind") in ("raw", "released"):
        raise FileError(f"{path} is a sketch, not a model", "fit one and save it: dpsketch fit … --save MODEL")
    if header.get("kind") != "model":
        raise FileError(f"{path} is damaged or not a model file", container.ASK)
    if header.get("format") != FORMAT:
        raise FileError(
            f"{path}: this library reads models up to format {FORMAT}", "use the library version that wrote the file"
        )
    name = header.get("model")
    if not isinstance(name, str) or name not in model_names():
        raise FileError(
            f"{path}: this library has no model of the kind that the file names",
            "use the library version that wrote the file",
        )
    try:
        _check_texts(header["statement"])
        statement_text(header["statement"])
        arrays = {_own(key): array.load() for key, array in opened.stored_arrays().items()}
        model = model_class(name).from_saved(dict(header["facts"]), arrays)
    except OSError as error:
        raise container.unreadable(path, error) from None
    except (DpsketchError, AssertionError, *container.INVALID) as error:
        reason = error.fact if isinstance(error, DpsketchError) else type(error).__name__
        raise FileError(f"{path}: the model is not valid: {reason}", container.ASK) from None
    model.statement_ = header["statement"]
    return model


def is_model(path: str | Path) -> bool:
    """Whether a file is an undamaged model file, even of a kind or format that this library does not read."""
    try:
        return container.checked(path, "model").header.get("kind") == "model"
    except FileError:
        return False


def floats(arrays: Mapping[str, Array], name: str, *shape: int) -> Floats:
    """An array of float64 of exactly this shape, for `from_saved`; −1 stands for any length of at least one."""
    values = arrays[name]
    if values.dtype != np.float64 or values.ndim != len(shape):
        raise ValueError(name)
    if any(length != wanted if wanted >= 0 else length < 1 for length, wanted in zip(values.shape, shape, strict=True)):
        raise ValueError(name)
    return values


def finite(arrays: Mapping[str, Array], name: str, *shape: int) -> Floats:
    """As `floats`, with all numbers at most LARGEST in size, so that their squares and products are finite."""
    values = floats(arrays, name, *shape)
    if not (np.abs(values) <= LARGEST).all():
        raise ValueError(name)
    return values


def integers(arrays: Mapping[str, Array], name: str, *shape: int) -> Array:
    """An array of integers of any width of exactly this shape."""
    values = arrays[name]
    if values.dtype.kind != "i" or values.shape != shape:
        raise ValueError(name)
    return values


def counters(arrays: Mapping[str, Array], name: str, *shape: int) -> Array:
    """As `integers`, of the types of sums, with room to add them up."""
    values = integers(arrays, name, *shape)
    if values.dtype not in (np.int64, np.int32) or max(int(values.max()), -int(values.min())) > _MOST_COUNTED:
        raise ValueError(name)
    return values


def read_map(facts: Any, schema: Schema, kind: type[D], sums: Array, groups: int = 1) -> D:
    """Read a map of this kind that may be bound to the schema. `sums` must have its length in all groups together, so
    that a hostile file cannot cause long draws.
    """
    description = map_from_dict(facts)
    if not isinstance(description, kind) or sums.size != groups * description.length(schema):
        raise ValueError("map")
    check_work([description], schema)
    return description


def real(number: object, least: float = -inf) -> float:
    """Check a number from JSON: at least `least`, and at most LARGEST in size."""
    if type(number) not in (int, float) or not max(least, -LARGEST) <= number <= LARGEST:  # type: ignore[operator]
        raise ValueError("number")
    return float(number)  # type: ignore[arg-type]


def columns_of(schema: Schema, names: object) -> tuple[str, ...]:
    """Check names of columns of a schema: at least one, each once."""
    if not isinstance(names, list) or not names or len(set(names)) != len(names):
        raise ValueError("columns")
    for name in names:
        schema.column(name)
    return tuple(names)


def whole(number: object, least: int = 0) -> int:
    """Check a whole number from JSON."""
    if type(number) is not int or number < least:
        raise ValueError("number")
    return number


def _check_texts(facts: Any) -> None:
    """Refuse texts with characters by which a statement could change how a terminal shows it."""
    if isinstance(facts, str) and visible(facts) != facts:
        raise ValueError("statement")
    for each in [*facts, *facts.values()] if isinstance(facts, dict) else facts if isinstance(facts, list) else ():
        _check_texts(each)


def _own(key: str) -> str:
    start, _, name = key.partition(".")
    if start != "model" or not name:
        raise ValueError("tensors")
    return name
