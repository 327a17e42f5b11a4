"""One file format for raw and released sketches: safetensors, closed by a SHA-256.

The header is one JSON text under the metadata key "dpsketch"; tensor `part.N` holds the sums of part N;
the last tensor, `sha256`, is the digest of every byte before it. docs/formats/file.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dpsketch.errors import DpsketchError, FileError
from dpsketch.maps.base import BoundMap, Sums
from dpsketch.recipe import Recipe
from dpsketch.schema import Schema

FORMAT = 1
_DIGEST = 32
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Contents:
    """What a file holds, checked: schema, recipe, the maps they make, sums, and the rest of the header."""

    schema: Schema
    recipe: Recipe
    maps: tuple[BoundMap, ...]
    sums: tuple[Sums, ...]
    extra: dict[str, Any]


def write(path: str | Path, kind: str, contents: Contents, force: bool = False) -> None:
    """Write atomically: a temporary file beside the target, flushed to disk, then renamed."""
    path = Path(path)
    if path.exists() and not force:
        raise FileError(f"{path} exists already", "choose another name, or pass --force (force=True) to replace it")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a folder", "create it first")
    header = {
        "format": FORMAT,
        "kind": kind,
        "schema": contents.schema.to_dict(),
        "recipe": contents.recipe.to_dict(),
        "fingerprints": [bound.fingerprint() for bound in contents.maps],
    } | contents.extra
    tensors: dict[str, np.ndarray[Any, Any]] = {f"part.{i}": sums for i, sums in enumerate(contents.sums)}
    tensors["sha256"] = np.zeros(_DIGEST, np.uint8)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        text = json.dumps(header, ensure_ascii=False, allow_nan=False)
        save_file(tensors, temporary, metadata={"dpsketch": text})
        with open(temporary, "r+b") as file:
            digest = _digest(file, os.fstat(file.fileno()).st_size)
            file.seek(-_DIGEST, os.SEEK_END)
            file.write(digest)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or 'input/output error'}") from None
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | Path, kind: str) -> Contents:
    """Read and check everything; any damage, hostile content or other kind of file is a FileError."""
    path = Path(path)
    header = read_header(path)
    if header["kind"] != kind:
        raise _wrong_kind(path, str(header["kind"]), kind)
    try:
        schema = Schema.from_dict(header["schema"])
        recipe = Recipe.from_dict(header["recipe"])
        sums = _sums(path, [part.map.length(schema) for part in recipe.parts])
        maps = recipe.bind(schema)
        if [bound.fingerprint() for bound in maps] != header["fingerprints"]:
            raise FileError(f"{path}: its maps differ from this library's", "read it with the version that wrote it")
    except FileError:
        raise
    except (
        DpsketchError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        reason = error.fact if isinstance(error, DpsketchError) else type(error).__name__
        raise FileError(f"{path}: the header is not valid: {reason}", "ask its owner for a new copy") from None
    known = {"format", "kind", "schema", "recipe", "fingerprints"}
    extra = {key: value for key, value in header.items() if key not in known}
    return Contents(schema, recipe, maps, sums, extra)


def read_header(path: str | Path) -> dict[str, Any]:
    """The checked file's JSON header."""
    path = Path(path)
    damaged = FileError(f"{path} is damaged or not a sketch file", "ask its owner for a new copy")
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _DIGEST + 8 or _digest(file, size) != _tail(file):
                raise damaged
        with safe_open(path, framework="numpy") as tensors:
            header = json.loads((tensors.metadata() or {})["dpsketch"])
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or 'input/output error'}") from None
    except (SafetensorError, KeyError, ValueError, RecursionError):
        raise damaged from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileError(f"{path}: this library reads format {FORMAT}", "use the library version that wrote the file")
    if header.get("kind") not in ("raw", "released"):
        raise damaged
    return header


def _sums(path: Path, lengths: Sequence[int]) -> tuple[Sums, ...]:
    with safe_open(path, framework="numpy") as tensors:
        names = [f"part.{i}" for i in range(len(lengths))]
        slices = {name: tensors.get_slice(name) for name in tensors.keys() if name != "sha256"}  # noqa: SIM118
        if set(slices) != set(names):
            raise ValueError("tensors")
        for name, length in zip(names, lengths, strict=True):
            if slices[name].get_dtype() != "I64" or slices[name].get_shape() != [length]:
                raise ValueError("sizes")
        return tuple(tensors.get_tensor(name) for name in names)


def _digest(file: Any, size: int) -> bytes:
    file.seek(0)
    digest, left = hashlib.sha256(), size - _DIGEST
    while left > 0:
        block = file.read(min(_BLOCK, left))
        if not block:  # the file shrank while it was read
            break
        digest.update(block)
        left -= len(block)
    return digest.digest()


def _tail(file: Any) -> bytes:
    file.seek(-_DIGEST, os.SEEK_END)
    tail: bytes = file.read()
    return tail


def _wrong_kind(path: Path, found: str, wanted: str) -> FileError:
    if found == "raw":
        return FileError(
            f"{path} is a raw sketch: unreleased and not private", "release it first: dpsketch release RAW --epsilon …"
        )
    return FileError(
        f"{path} is a {found} sketch, a {wanted} one is needed", "a released sketch cannot be released again"
    )
