"""Bundles: signed messages in one file, to be carried by e-mail or on a memory stick (docs/formats/secure-sum.md)."""

from __future__ import annotations

from pathlib import Path

from dpsketch.errors import FederationError
from dpsketch.federate.boxes import MOST_BYTES, Boxes
from dpsketch.files.outputs import written

_START = b"dpsketch bundle 1\n"
_LENGTH = 8  # bytes
_EXPORTED = "exported"  # a file with the number of messages that were exported


def write_bundle(boxes: Boxes, box: str, path: Path, again: bool = False, force: bool = False) -> tuple[int, int]:
    """Write the messages of a box that no bundle had yet (with `again`: all). Returns their number and their bytes."""
    marker = boxes.folder / box / _EXPORTED
    text = marker.read_text() if marker.exists() and not again else "0"
    after, count, size = int(text), 0, 0
    with written(path, force) as file:
        file.write(_START)
        while True:
            data, after = boxes.fetch(box, after)
            if data is None:
                break
            file.write(len(data).to_bytes(_LENGTH, "big") + data)
            count, size = count + 1, size + len(data)
        if not count:
            raise FederationError("there is nothing to export", "run the party's command first, or pass --again")
    marker.write_text(str(after))
    return count, size


def read_bundle(boxes: Boxes, path: Path) -> tuple[int, int]:
    """Verify and store the messages of a bundle. Returns how many of them were new, and their bytes."""
    count = size = 0
    try:
        with path.open("rb") as file:
            if file.read(len(_START)) != _START:
                raise _damaged(path)
            while head := file.read(_LENGTH):
                length = int.from_bytes(head, "big")
                if len(head) != _LENGTH or length > MOST_BYTES:
                    raise _damaged(path)
                data = file.read(length)
                if len(data) != length:
                    raise _damaged(path)
                if boxes.post(data):
                    count, size = count + 1, size + length
    except OSError as error:
        raise FederationError(f"{path}: cannot be read: {error.strerror}", "check the path") from None
    return count, size


def _damaged(path: Path) -> FederationError:
    return FederationError(f"{path} is damaged or not a bundle of messages", "export it again")
