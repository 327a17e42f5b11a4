"""Masks: keystreams of AES-256 in counter mode, added to counters modulo 2^64 or 2^32."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

SEED = 32  # bytes of a key, a seed, a secret
Counters = NDArray[np.uint64] | NDArray[np.uint32]


def derived_key(secret: bytes | bytearray, info: bytes) -> bytearray:
    """A key of 256 bits by HKDF with SHA-256 and no salt: `info` says what for."""
    return bytearray(HKDF(hashes.SHA256(), SEED, None, info).derive(secret))


class MaskStream:
    """The sum of several keystreams, each added or subtracted. `add_to` goes on where the call before it ended."""

    def __init__(self, keys: Iterable[tuple[bytearray, int]]) -> None:
        """Keys, each with +1 or -1. The caller's keys are wiped."""
        self._streams = []
        for key, sign in keys:
            self._streams.append((Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor(), sign))
            key[:] = bytes(len(key))
        self._zeros, self._drawn = np.zeros(0, np.uint8), np.zeros(0, np.uint8)

    def add_to(self, counters: Counters) -> None:
        """Add the next words of all keystreams, the lowest byte first, in place."""
        size = counters.nbytes
        if size > len(self._zeros):
            self._zeros, self._drawn = np.zeros(size, np.uint8), np.empty(size + 15, np.uint8)
        for stream, sign in self._streams:
            stream.update_into(self._zeros[:size].data, self._drawn.data)
            words = self._drawn[:size].view(counters.dtype.newbyteorder("<"))
            if sign > 0:
                np.add(counters, words, out=counters)
            else:
                np.subtract(counters, words, out=counters)

    def close(self) -> None:
        """Forget keys and words."""
        self._streams.clear()
        self._drawn.fill(0)
