"""Secret randomness: an AES-256-CTR keystream whose key comes from the operating system.

There is no seed and no way to pass one. A child process that inherits a stream by fork draws its own key
before its next word, so two processes never share noise. The keystream makes every guarantee of the
library computational: it holds against anyone who cannot break AES-256.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray


class Stream(Protocol):
    """A source of independent uniform 32-bit words. Tests inject their own."""

    def words(self, count: int) -> NDArray[np.uint32]: ...


class Keystream:
    """Fresh, secret words; usable by one thread at a time."""

    def __init__(self) -> None:
        self._process = -1
        self._cipher: CipherContext | None = None

    def words(self, count: int) -> NDArray[np.uint32]:
        cipher = self._cipher
        if cipher is None or self._process != os.getpid():
            cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()
            self._cipher, self._process = cipher, os.getpid()
        block = np.zeros(4 * count, np.uint8)
        drawn = np.empty(4 * count + 15, np.uint8)
        cipher.update_into(block.data, drawn.data)
        return drawn[: 4 * count].view(np.uint32)
