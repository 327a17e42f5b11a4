"""One file format for raw and released sketches: safetensors, closed by a SHA-256.

The header is one JSON text under the metadata key "dpsketch"; tensor `part.N` holds the sums of part N;
the last tensor, `sha256`, is the digest of every byte before it. docs/formats/file.md. Sums are written and checked
in blocks, and large ones are mapped from the file when it is read: they need not fit memory twice, or at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from dpsketch.errors import DpsketchError, FileError
from dpsketch.maps.base import LARGE, BoundMap, Sums
from dpsketch.recipe import Recipe
from dpsketch.schema import Schema

FORMAT = 2
_READABLE = (1, 2)
_DIGEST = 32
_BLOCK = 1 << 22
_TYPES: dict[str, np.dtype[Any]] = {"I64": np.dtype("<i8"), "I32": np.dtype("<i4")}
_DAMAGE = "ask its owner for a new copy"


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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        text = json.dumps(header, ensure_ascii=False, allow_nan=False)
        with open(temporary, "xb", opener=_private if kind == "raw" else None) as file:
            _write_container(file, text, contents.sums)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror or 'input/output error'}", "write somewhere else"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: exact sums are as secret as the table."""
    return os.open(path, flags, 0o600)


def read(path: str | Path, kind: str) -> Contents:
    """Read and check everything; any damage, hostile content or other kind of file is a FileError.

    Parts of `LARGE` sums or more are mapped from the file, read-only: do not change it in place while they are in use.
    """
    path = Path(path)
    header, tensors = _checked(path)
    if header["kind"] != kind:
        raise _wrong_kind(path, str(header["kind"]), kind)
    try:
        schema = Schema.from_dict(header["schema"])
        recipe = Recipe.from_dict(header["recipe"])
        places = _places(tensors, [part.map.length(schema) for part in recipe.parts])
        maps = recipe.bind(schema)
        if [bound.fingerprint() for bound in maps] != header["fingerprints"]:
            raise FileError(f"{path}: its maps differ from this library's", "read it with the version that wrote it")
        if any(place.type == _TYPES["I32"] and not bound.narrow for place, bound in zip(places, maps, strict=True)):
            raise ValueError("types")
        sums = tuple(_load(path, place) for place in places)
    except FileError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from None
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
        raise FileError(f"{path}: the header is not valid: {reason}", _DAMAGE) from None
    known = {"format", "kind", "schema", "recipe", "fingerprints"}
    extra = {key: value for key, value in header.items() if key not in known}
    return Contents(schema, recipe, maps, sums, extra)


def read_header(path: str | Path) -> dict[str, Any]:
    """The checked file's JSON header."""
    return _checked(Path(path))[0]


@dataclass(frozen=True)
class _Tensors:
    """What the container says of its tensors, where in the file their bytes begin, and the file's size."""

    facts: dict[str, Any]
    first: int
    size: int


@dataclass(frozen=True)
class _Place:
    """Where a file holds a part's sums."""

    type: np.dtype[Any]
    length: int
    start: int


def _checked(path: Path) -> tuple[dict[str, Any], _Tensors]:
    """The JSON header and the tensors of a file whose digest is right and which safetensors takes for valid: its
    tensors lie in it one after another, without gap or overlap.
    """
    damaged = FileError(f"{path} is damaged or not a sketch file", _DAMAGE)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _DIGEST + 8 or _digest(file, size) != _tail(file):
                raise damaged
            with safe_open(path, framework="numpy"):
                file.seek(0)
                length = int.from_bytes(file.read(8), "little")
                facts = json.loads(file.read(min(length, size)))
        header = json.loads(facts.pop("__metadata__")["dpsketch"])
    except OSError as error:
        raise _unreadable(path, error) from None
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise damaged from None
    if not isinstance(header, dict) or header.get("format") not in _READABLE:
        raise FileError(
            f"{path}: this library reads formats up to {FORMAT}", "use the library version that wrote the file"
        )
    if header.get("kind") not in ("raw", "released"):
        raise damaged
    return header, _Tensors(facts, 8 + length, size)


def _places(tensors: _Tensors, lengths: Sequence[int]) -> list[_Place]:
    """Every part's place, if the file holds just these parts, each in the length that the recipe gives it, and then the
    digest. Nothing is allocated.
    """
    names = [f"part.{i}" for i in range(len(lengths))]
    if set(tensors.facts) != {*names, "sha256"}:
        raise ValueError("tensors")
    last = tensors.size - tensors.first
    if tensors.facts["sha256"]["data_offsets"] != [last - _DIGEST, last]:
        raise ValueError("digest")
    places = []
    for name, length in zip(names, lengths, strict=True):
        fact = tensors.facts[name]
        dtype = _TYPES[fact["dtype"]]
        begin, end = fact["data_offsets"]
        start = tensors.first + begin
        if fact["shape"] != [length] or begin < 0 or end - begin != length * dtype.itemsize:
            raise ValueError("sizes")
        if start % dtype.itemsize or end > last - _DIGEST:
            raise ValueError("offsets")
        places.append(_Place(dtype, length, start))
    return places


def _load(path: Path, place: _Place) -> Sums:
    if place.length >= LARGE:
        return np.asarray(np.memmap(path, place.type, "r", place.start, (place.length,)))
    sums: Sums = np.fromfile(path, place.type, place.length, offset=place.start)
    if sums.size != place.length:  # the file shrank after it was checked
        raise ValueError("sizes")
    return sums


def _write_container(file: BinaryIO, text: str, every: Sequence[Sums]) -> None:
    """The safetensors container of a header and sums, closed by its digest; never more than a block in memory.

    Eight-byte sums come first and the bytes before the tensors are a multiple of eight: all sums are aligned.
    """
    tensors: dict[str, dict[str, Any]] = {}
    end = 0
    order = sorted(range(len(every)), key=lambda part: -every[part].itemsize)
    for part in order:
        begin, end = end, end + every[part].nbytes
        kind = f"I{8 * every[part].itemsize}"
        tensors[f"part.{part}"] = {"dtype": kind, "shape": [every[part].size], "data_offsets": [begin, end]}
    tensors["sha256"] = {"dtype": "U8", "shape": [_DIGEST], "data_offsets": [end, end + _DIGEST]}
    facts = json.dumps({"__metadata__": {"dpsketch": text}} | tensors, ensure_ascii=False, separators=(",", ":"))
    head = facts.encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.sha256()
    for block in chain([len(head).to_bytes(8, "little"), head], *(_blocks(every[part]) for part in order)):
        digest.update(block)
        file.write(block)
    file.write(digest.digest())


def _blocks(sums: Sums) -> Iterator[bytes]:
    step = _BLOCK // sums.itemsize
    for start in range(0, sums.size, step):
        yield sums[start : start + step].astype(sums.dtype.newbyteorder("<"), copy=False).tobytes()


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


def _unreadable(path: Path, error: OSError) -> FileError:
    return FileError(f"{path} cannot be read: {error.strerror or 'input/output error'}", "check path and permissions")


def _wrong_kind(path: Path, found: str, wanted: str) -> FileError:
    if found == "raw":
        return FileError(
            f"{path} is a raw sketch: unreleased and not private", "release it first: dpsketch release RAW --epsilon …"
        )
    return FileError(
        f"{path} is a {found} sketch, a {wanted} one is needed", "a released sketch cannot be released again"
    )
