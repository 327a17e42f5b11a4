"""Secret randomness: an AES-256-CTR keystream whose key comes from the operating system.

There is no seed and no way to pass one. A child process that inherits a stream by fork draws its own key before its
next word, so two processes never share noise. Because of the keystream, every guarantee of the library is
computational: it holds against anyone who cannot break AES-256.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray


class _Process:
    """A marker of this process, which differs in a forked child. Process ids alone may be reused."""


_process = _Process()


def _after_fork() -> None:
    global _process
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Stream(Protocol):
    """A source of independent uniform 32-bit words. The caller owns the arrays and may wipe them. Tests inject their
    own.
    """

    def words(self, count: int) -> NDArray[np.uint32]: ...


class Keystream:
    """Fresh, secret words, for use by one thread at a time.

    `close`, or the end of a `with` block, forgets the key; later words come from a new one.

    Wiped are our copy of the key, as soon as the cipher has it, and OpenSSL's copy, by OpenSSL, when the stream is
    closed or dropped. Not wiped are the bytes object in which the operating system's randomness arrives (Python frees
    it at once but cannot overwrite it) and pages that were swapped out.
    """

    def __init__(self) -> None:
        self._owner: tuple[_Process, int] | None = None
        self._cipher: CipherContext | None = None

    def __enter__(self) -> Keystream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the key."""
        self._cipher = self._owner = None

    def words(self, count: int) -> NDArray[np.uint32]:
        cipher, owner = self._cipher, (_process, os.getpid())
        if cipher is None or self._owner != owner:
            cipher = _new_cipher()
            self._cipher, self._owner = cipher, owner
        block = np.zeros(4 * count, np.uint8)
        drawn = np.empty(4 * count + 15, np.uint8)
        cipher.update_into(block.data, drawn.data)
        return drawn[: 4 * count].view(np.uint32)


def _new_cipher() -> CipherContext:
    key = bytearray(os.urandom(32))
    cipher = Cipher(algorithms.AES(key), modes.CTR(os.urandom(16))).encryptor()
    key[:] = bytes(len(key))
    return cipher
