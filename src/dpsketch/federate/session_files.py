"""What a party keeps of a session on its disk: the secrets of a running stage, and the totals of finished ones.

The folder's files can be read by their owner only. Secrets are written before a message that depends on them leaves,
and overwritten with zeros when their stage is over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dpsketch.errors import FederationError
from dpsketch.federate.canonical import Reader
from dpsketch.federate.mask_stream import SEED
from dpsketch.federate.secure_sum import Secrets
from dpsketch.federate.sum_messages import DIGEST, Result, Shape, tagged
from dpsketch.maps.base import Sums

FRESH, BEGUN, WRITTEN = 0, 1, 2  # how far the masked vector of a stage is
_ALIGNED = 64  # bytes, the beginning of a part in a file of totals
_MOST_PARTS = 1 << 16
_MOST_NAMES = 255


@dataclass
class StageState:
    """A running stage at a holder: its secrets, how far its masked vector is, and the vector's digest."""

    stage: int
    secrets: Secrets
    phase: int = FRESH
    vector: bytes = bytes(DIGEST)

    def save(self, folder: Path) -> None:
        """Write the state, whole or not at all, before anything that depends on it leaves."""
        secrets = self.secrets
        writer = tagged("state").number(self.stage).number(self.phase).raw(self.vector).raw(secrets.agreed)
        for each in (secrets.mask_key, secrets.share_key, secrets.seed, secrets.own_share):
            writer.raw(each)
        _write(_state_path(folder), writer.data)
        writer.data[:] = bytes(len(writer.data))

    @classmethod
    def load(cls, folder: Path) -> StageState | None:
        path = _state_path(folder)
        if not path.exists():
            return None
        data = bytearray(path.read_bytes())
        reader = Reader(data, tagged("state").bytes(), str(path))
        stage, phase, vector, agreed = reader.number(), reader.number(WRITTEN), reader.raw(DIGEST), reader.raw(DIGEST)
        mask_key, share_key, seed, own_share = (bytearray(reader.raw(SEED)) for _ in range(4))
        reader.end()
        data[:] = bytes(len(data))
        return cls(stage, Secrets(mask_key, share_key, seed, own_share, agreed), phase, vector)

    def wipe(self, folder: Path) -> None:
        """Overwrite the secrets in memory and on disk. (Copies that a file system or a solid-state disk made stay.)"""
        self.secrets.wipe()
        path = _state_path(folder)
        if path.exists():
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()


@dataclass(frozen=True)
class Finished:
    """A finished stage: the coordinator's result, the shape of the totals, and whose vectors are in them."""

    result: Result
    shape: Shape
    survivors: tuple[str, ...]

    def save(self, folder: Path, stage: int) -> None:
        writer = tagged("finished").field(self.result.to_bytes()).number(len(self.shape))
        for size, width in self.shape:
            writer.number(size).number(width)
        writer.number(len(self.survivors))
        for name in self.survivors:
            writer.text(name)
        _write(folder / f"finished-{stage}", writer.data)

    @classmethod
    def load(cls, folder: Path, stage: int) -> Finished | None:
        path = folder / f"finished-{stage}"
        if not path.exists():
            return None
        reader = Reader(path.read_bytes(), tagged("finished").bytes(), str(path))
        result = Result.from_bytes(reader.field())
        shape = tuple((reader.number(), reader.number(8)) for _ in range(reader.number(_MOST_PARTS)))
        survivors = tuple(reader.text() for _ in range(reader.number(_MOST_NAMES)))
        reader.end()
        return cls(result, shape, survivors)


@dataclass
class TotalsFile:
    """The totals of a stage as a file that is mapped into memory when they are read."""

    path: Path
    shape: Shape
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.starts, start = [], 0
        for size, width in self.shape:
            self.starts.append(start)
            start += -(-size * width // _ALIGNED) * _ALIGNED

    @contextmanager
    def written(self) -> Iterator[Callable[[int, int, bytes], None]]:
        """A function that writes counters of a part from its `first` one on. The file appears when the block ends."""
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as file:

            def write(part: int, first: int, data: bytes) -> None:
                file.seek(self.starts[part] + first * self.shape[part][1])
                file.write(data)

            yield write
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)

    def sums(self) -> list[Sums]:
        """The totals of every part."""
        parts: list[Sums] = []
        for (size, width), start in zip(self.shape, self.starts, strict=True):
            kind = np.dtype("<i4" if width == 4 else "<i8")
            parts.append(np.memmap(self.path, kind, "r", start, size) if size else np.zeros(0, kind))
        return parts


def check_shape(one: Shape, two: Shape) -> None:
    """Refuse to go on with sums of another shape than those that the session began with."""
    if one != two:
        raise FederationError("this stage sums vectors of other lengths", "continue with the same files and options")


def _state_path(folder: Path) -> Path:
    return folder / "secrets"


def _write(path: Path, data: bytearray) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists() and path.name == "secrets":
        with path.open("r+b") as old:  # what it replaces is overwritten, not only unlinked
            partial.replace(path)
            old.write(bytes(len(data)))
            old.flush()
            os.fsync(old.fileno())
        return
    partial.replace(path)
