"""Canonical bytes: one way to write a message, and a reader that accepts nothing else (docs/formats/secure-sum.md)."""

from __future__ import annotations

from dpsketch.errors import FederationError

_NUMBER, _LENGTH = 8, 4  # bytes


class Writer:
    """Fields one after the other. `data` is a bytearray, so that the caller can wipe it."""

    def __init__(self, start: bytes = b"") -> None:
        self.data = bytearray(start)

    def raw(self, data: bytes | bytearray) -> Writer:
        """Bytes whose number the format fixes."""
        self.data += data
        return self

    def number(self, number: int) -> Writer:
        """A whole number from 0 to 2^64 - 1, the highest byte first."""
        self.data += number.to_bytes(_NUMBER, "big")
        return self

    def field(self, data: bytes | bytearray | memoryview) -> Writer:
        """Bytes after their number."""
        self.data += len(data).to_bytes(_LENGTH, "big")
        self.data += data
        return self

    def text(self, text: str) -> Writer:
        return self.field(text.encode())

    def bytes(self) -> bytes:
        return bytes(self.data)


class Reader:
    """Reads what `Writer` wrote. Whatever is too short, too long or not text is a FederationError."""

    def __init__(self, data: bytes | bytearray, start: bytes, name: str) -> None:
        self._data, self._at, self._name = data, len(start), name
        if data[: len(start)] != start:
            raise self.damaged()

    def damaged(self) -> FederationError:
        return FederationError(f"{self._name} is damaged or of another version", "ask its sender for it again")

    def raw(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise self.damaged()
        taken, self._at = bytes(self._data[self._at : end]), end
        return taken

    def number(self, most: int = 2**63 - 1) -> int:
        number = int.from_bytes(self.raw(_NUMBER), "big")
        if number > most:
            raise self.damaged()
        return number

    def field(self) -> bytes:
        return self.raw(int.from_bytes(self.raw(_LENGTH), "big"))

    def text(self) -> str:
        try:
            return self.field().decode()
        except UnicodeDecodeError:
            raise self.damaged() from None

    @property
    def at(self) -> int:
        """Number of bytes read."""
        return self._at

    def end(self) -> None:
        """Refuse bytes after the last field."""
        if self._at != len(self._data):
            raise self.damaged()
