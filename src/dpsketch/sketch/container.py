"""The container of sketches and models: a safetensors file with one JSON header, closed by a SHA-256.

The header is one JSON text under the metadata key "dpsketch"; the last tensor, `sha256`, is the digest of every byte
before it. docs/formats/file.md, docs/formats/model.md. Arrays are written and checked in blocks, and large ones are
mapped from the file when it is read: they need not fit memory twice, or at all. Nothing in a file is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from dpsketch.errors import FileError
from dpsketch.maps.base import LARGE

Array = NDArray[Any]
ASK = "ask its owner for a new copy"
TYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
}
INVALID = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError, RecursionError, MemoryError)
_DIGEST = 32
_BLOCK = 1 << 22
_CLOSING = "sha256"


@dataclass(frozen=True)
class StoredArray:
    """The position, type and shape of an array in a file."""

    path: Path
    type: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    def load(self) -> Array:
        """Read the array. Arrays of `LARGE` numbers or more are mapped, read-only: do not change the file in place
        while they are in use.
        """
        size = prod(self.shape)
        if size >= LARGE:
            return np.asarray(np.memmap(self.path, self.type, "r", self.start, self.shape))
        values: Array = np.fromfile(self.path, self.type, size, offset=self.start)
        if values.size != size:  # the file shrank after it was checked
            raise ValueError("sizes")
        return values.reshape(self.shape)


@dataclass(frozen=True)
class Container:
    """A checked file: its header and its description of the arrays, which `stored_arrays` checks."""

    path: Path
    header: dict[str, Any]
    _tensors: dict[str, Any]
    _first: int
    _size: int

    def stored_arrays(self) -> dict[str, StoredArray]:
        """Every array by its name, after checking types, sizes and offsets. Nothing is allocated."""
        last = self._size - self._first
        if self._tensors[_CLOSING]["data_offsets"] != [last - _DIGEST, last]:
            raise ValueError("digest")
        return {name: self._stored_array(fact, last) for name, fact in self._tensors.items() if name != _CLOSING}

    def _stored_array(self, fact: dict[str, Any], last: int) -> StoredArray:
        dtype, shape = TYPES[fact["dtype"]], fact["shape"]
        begin, end = fact["data_offsets"]
        start = self._first + begin
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError("shapes")
        if begin < 0 or end - begin != prod(shape) * dtype.itemsize:
            raise ValueError("sizes")
        if start % dtype.itemsize or end > last - _DIGEST:
            raise ValueError("offsets")
        return StoredArray(self.path, dtype, tuple(shape), start)


def checked(path: str | Path, what: str) -> Container:
    """Open a file whose digest is right and which safetensors accepts: its tensors follow one another without gap or
    overlap. `what` names the expected file in the error message. The caller checks kind and format.
    """
    path = Path(path)
    damaged = FileError(f"{path} is damaged or not a {what} file", ASK)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _DIGEST + 8 or _digest(file, size) != _tail(file):
                raise damaged
            with safe_open(path, framework="numpy"):
                file.seek(0)
                length = int.from_bytes(file.read(8), "little")
                tensors = json.loads(file.read(min(length, size)))
        header = json.loads(tensors.pop("__metadata__")["dpsketch"])
    except OSError as error:
        raise unreadable(path, error) from None
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise damaged from None
    return Container(path, header if isinstance(header, dict) else {}, tensors, 8 + length, size)


def unreadable(path: Path, error: OSError) -> FileError:
    return FileError(f"{path} cannot be read: {error.strerror or 'input/output error'}", "check path and permissions")


def write(file: BinaryIO, header: dict[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write header, arrays and digest, with never more than a block in memory.

    Wider types come first and the bytes before the tensors are a multiple of eight: all arrays are aligned.
    """
    text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    names = {dtype: name for name, dtype in TYPES.items()}
    tensors: dict[str, dict[str, Any]] = {}
    end = 0
    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        kind = names[array.dtype.newbyteorder("<")]
        tensors[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [begin, end]}
    tensors[_CLOSING] = {"dtype": "U8", "shape": [_DIGEST], "data_offsets": [end, end + _DIGEST]}
    facts = json.dumps({"__metadata__": {"dpsketch": text}} | tensors, ensure_ascii=False, separators=(",", ":"))
    head = facts.encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.sha256()
    for block in chain([len(head).to_bytes(8, "little"), head], *(_blocks(arrays[name]) for name in order)):
        digest.update(block)
        file.write(block)
    file.write(digest.digest())


def _blocks(array: Array) -> Iterator[bytes]:
    flat, step = array.reshape(-1), _BLOCK // array.itemsize
    for start in range(0, flat.size, step):
        yield flat[start : start + step].astype(flat.dtype.newbyteorder("<"), copy=False).tobytes()


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
