"""One file format for raw and released sketches: docs/formats/file.md. Tensor `part.N` holds the sums of part N."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dpsketch.errors import DpsketchError, FileError
from dpsketch.maps.base import Sums
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.schema import Schema
from dpsketch.sketch import container
from dpsketch.sketch.container import Container, StoredArray

FORMAT = 2
_READABLE = (1, 2)
_SUMS = (container.TYPES["I64"], container.TYPES["I32"])


@dataclass(frozen=True)
class Contents:
    """The checked contents of a file: a recipe bound to its schema, sums, and the rest of the header."""

    bound: BoundRecipe
    sums: tuple[Sums, ...]
    extra: dict[str, Any]


def write(file: BinaryIO, kind: str, contents: Contents) -> None:
    header = {
        "format": FORMAT,
        "kind": kind,
        "schema": contents.bound.schema.to_dict(),
        "recipe": contents.bound.recipe.to_dict(),
        "fingerprints": [own.fingerprint() for own in contents.bound.maps],
    } | contents.extra
    arrays = {f"part.{part}": sums for part, sums in enumerate(contents.sums)}
    container.write(file, header, arrays)


def read(path: str | Path, kind: str) -> Contents:
    """Read and check everything; any damage, hostile content or other kind of file is a FileError.

    Parts of `LARGE` sums or more are mapped from the file, read-only: do not change it in place while they are in use.
    """
    path = Path(path)
    opened = _checked(path)
    header = opened.header
    if header["kind"] != kind:
        raise _wrong_kind(path, str(header["kind"]), kind)
    try:
        schema = Schema.from_dict(header["schema"])
        recipe = Recipe.from_dict(header["recipe"])
        arrays = _stored_sums(opened, schema, recipe)
        bound = recipe.bind(schema)
        if [own.fingerprint() for own in bound.maps] != header["fingerprints"]:
            raise FileError(f"{path}: its maps differ from this library's", "read it with the version that wrote it")
        narrow = [array.type == container.TYPES["I32"] for array in arrays]
        if any(four_bytes and not own.narrow for four_bytes, own in zip(narrow, bound.maps, strict=True)):
            raise ValueError("types")
        sums = tuple(array.load() for array in arrays)
    except FileError:
        raise
    except OSError as error:
        raise container.unreadable(path, error) from None
    except (DpsketchError, *container.INVALID) as error:
        reason = error.fact if isinstance(error, DpsketchError) else type(error).__name__
        raise FileError(f"{path}: the header is not valid: {reason}", container.ASK) from None
    known = {"format", "kind", "schema", "recipe", "fingerprints"}
    extra = {key: value for key, value in header.items() if key not in known}
    return Contents(bound, sums, extra)


def read_header(path: str | Path) -> dict[str, Any]:
    """The checked file's JSON header."""
    return _checked(Path(path)).header


def _checked(path: Path) -> Container:
    opened = container.checked(path, "sketch")
    if opened.header.get("kind") == "model":
        raise FileError(f"{path} is a model, not a sketch", "score rows with it: dpsketch score MODEL TABLE -o FILE")
    if opened.header.get("format") not in _READABLE:
        raise FileError(
            f"{path}: this library reads formats up to {FORMAT}", "use the library version that wrote the file"
        )
    if opened.header.get("kind") not in ("raw", "released"):
        raise FileError(f"{path} is damaged or not a sketch file", container.ASK)
    return opened


def _stored_sums(opened: Container, schema: Schema, recipe: Recipe) -> list[StoredArray]:
    """The array of every part, after checking that the file holds these parts only, in the recipe's lengths.

    Computing a length takes time, so the check stops at the first wrong one.
    """
    arrays = opened.stored_arrays()
    names = [f"part.{part}" for part in range(len(recipe.parts))]
    if set(arrays) != set(names):
        raise ValueError("tensors")
    if any(array.type not in _SUMS for array in arrays.values()):
        raise ValueError("types")
    for name, part in zip(names, recipe.parts, strict=True):
        if arrays[name].shape != (part.map.length(schema),):
            raise ValueError("sizes")
    return [arrays[name] for name in names]


def _wrong_kind(path: Path, kind: str, wanted: str) -> FileError:
    if kind == "raw":
        return FileError(
            f"{path} is a raw sketch: unreleased and not private", "release it first: dpsketch release RAW --epsilon …"
        )
    return FileError(
        f"{path} is a {kind} sketch, a {wanted} one is needed", "a released sketch cannot be released again"
    )
