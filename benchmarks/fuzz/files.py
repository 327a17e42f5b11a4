"""What the fuzzers of files share: damage, forged content under a correct digest, and limits on time and memory."""

from __future__ import annotations

import copy
import hashlib
import json
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from safetensors.numpy import save

from dpsketch.errors import DpsketchError

SECONDS, SECONDS_PER_MEGABYTE = 20.0, 20.0  # of one processor, for everything done with one file
MEMORY = 1 << 30  # bytes by which the process may grow

TYPES = (np.int64, np.int32, np.int16, np.int8, np.float64)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    2**31,
    -(2**31),
    2**53,
    2**63 - 1,
    -(2**63),
    2**64,
    10**30,
    0.5,
    1e-300,
    1e308,
    -1e308,
)
ODDITIES: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "x",
    "\x1b[2J",
    "a\u202eb",
    "1/0",
    "9" * 400,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    ["x", "x"],
)


class Disproportionate(Exception):
    """A file took more time or memory than its size explains."""


def sealed(header: Any, tensors: dict[str, np.ndarray]) -> bytes:
    """A file with a correct digest, whatever it contains."""
    named = {name: np.ascontiguousarray(each) for name, each in tensors.items()} | {"sha256": np.zeros(32, np.uint8)}
    data = save(named, metadata={"dpsketch": json.dumps(header)})
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


def damaged(rng: np.random.Generator, content: bytes) -> bytes:
    """Flipped bits, a piece cut off, doubled, moved or overwritten."""
    changed = bytearray(content)
    kind, start = rng.integers(5), int(rng.integers(len(content)))
    stop = min(len(content), start + int(rng.integers(1, 200)))
    if kind == 0:
        for index in rng.integers(8 * len(content), size=rng.integers(1, 5)).tolist():
            changed[index // 8] ^= 1 << index % 8
    elif kind == 1:
        del changed[start:]
    elif kind == 2:
        del changed[start:stop]
    elif kind == 3:
        changed[start:start] = changed[start:stop]
    else:
        changed[start:stop] = rng.bytes(stop - start)
    return bytes(changed)


def lie(rng: np.random.Generator, facts: Any) -> Any:
    """Some facts of a JSON text dropped, duplicated or replaced by others, of the right or of a wrong type."""
    facts = copy.deepcopy(facts)
    for _ in range(rng.integers(1, 4)):
        places = list(_places(facts))
        holder, key = places[rng.integers(len(places))]
        choice = rng.integers(6)
        if choice == 0:
            del holder[key]
            if not facts:
                break
        elif choice == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif choice == 2 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * [2, -1, 10, 0.5, 1000][rng.integers(5)]
        elif choice == 3:
            other, name = places[rng.integers(len(places))]
            holder[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
        elif choice == 4:
            holder[key] = copy.deepcopy(ODDITIES[rng.integers(len(ODDITIES))])
        else:
            holder[key] = NUMBERS[rng.integers(len(NUMBERS))]
    return facts


def distorted(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Extreme numbers, permuted numbers, another type or another shape."""
    array = np.array(array)
    choice = rng.integers(8)
    if choice == 0:
        return array.astype(TYPES[rng.integers(len(TYPES))])
    if choice == 1:
        return array.reshape(-1)[: rng.integers(array.size + 1)]
    if choice == 2:
        return np.concatenate([array, array]) if array.ndim else array
    flat = array.reshape(-1)
    if choice == 6:
        return -array
    if choice == 7:
        return rng.permutation(flat).reshape(array.shape)
    if flat.size:
        places = rng.integers(flat.size, size=flat.size if choice == 3 else rng.integers(1, 4))
        if array.dtype.kind == "f":
            extremes = np.array([0.0, -1.0, 1e-308, 1e308, -1e308, np.nan, np.inf, 1e99, 1e18])
        else:
            info = np.iinfo(array.dtype)
            small = [0, 1, -1, 1000, -1000]
            extremes = np.array([info.min, info.max, info.max // 2, info.min // 1000, *small]).clip(info.min, info.max)
        flat[places] = rng.choice(extremes, len(places))
    return flat.reshape(array.shape)


class _Stream:
    """Words from a seed in place of the secret ones, so that cases are reproducible."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def words(self, count: int) -> np.ndarray:
        return self._rng.integers(0, 2**32, count, dtype=np.uint32)


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Make noise, masks and samples of releases the same in every run."""
    with (
        patch("dpsketch.sketch.release.Keystream", lambda: _Stream(seed)),
        patch("dpsketch.engines.engine.Keystream", lambda: _Stream(seed)),
    ):
        yield


@contextmanager
def limits(size: int) -> Iterator[None]:
    """Raise if the block takes more time or memory than a file of `size` bytes explains."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    took, grown = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if took > SECONDS + SECONDS_PER_MEGABYTE * size / 1e6 or 1024 * grown > MEMORY + 100 * size:
        raise Disproportionate(f"{took:.1f} s of a processor and {grown // 1024} MB more for a file of {size} bytes")


def attempt(action: Callable[[], Any]) -> Any:
    """The result of an action, or the library's own error; anything else that it raises is a bug."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return action()
        except DpsketchError as error:
            if not error.fact.isprintable():
                raise ValueError(f"an error message that a terminal obeys: {error.fact!r}") from None
            return error


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _places(facts: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(_keys(facts)):
        yield facts, key
        if isinstance(facts[key], dict | list):
            yield from _places(facts[key])
