"""Draw parameters from a public seed, byte for byte the same on every machine.

The stream is SHAKE-256 of `dpsketch-draw-1`, a label and the seed; docs/formats/draw.md specifies it with test vectors.
Only correctly rounded operations (+ - * / sqrt, frexp) follow, in a fixed order: NumPy's distributions and libm's
logarithm differ between builds.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats

_DOMAIN = b"dpsketch-draw-1\0"
_LN2 = 0.6931471805599453
_PAIRS = 1 << 13  # pairs converted to normal numbers at a time, so that they stay in the cache


class PublicStream:
    """An endless stream of 64-bit words, determined by a label and a public seed."""

    def __init__(self, label: str, seed: int) -> None:
        self._hash = hashlib.shake_256(_DOMAIN + label.encode() + b"\0" + seed.to_bytes(8, "little"))
        self._used = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next words, little endian."""
        start, self._used = self._used, self._used + count
        return np.frombuffer(self._hash.digest(8 * self._used), "<u8")[start:].astype(np.uint64)

    def uniforms(self, count: int) -> Floats:
        """Uniform numbers inside (0, 1): the top 53 bits of each word, plus one half, over 2^53."""
        return _uniforms(self.words(count))

    def normals(self, count: int) -> Floats:
        """Standard normal numbers by the polar method, two from each accepted pair of words."""
        wanted = -(-count // 2)
        parts: list[Floats] = []
        while wanted > 0:
            start = self._used
            words = self.words(2 * (wanted + wanted // 3 + 64)).reshape(-1, 2)  # a fraction π/4 is accepted
            for first in range(0, len(words), _PAIRS):
                made, used = _polar(_uniforms(words[first : first + _PAIRS]), wanted)
                parts.append(made)
                wanted -= len(made) // 2
                if wanted == 0:
                    self._used = start + 2 * (first + used)  # the words after the last accepted pair are used next
                    break
        return np.concatenate(parts)[:count] if parts else np.empty(0)

    def cauchys(self, count: int) -> Floats:
        """Standard Cauchy numbers: the ratios of consecutive pairs of normal numbers."""
        pairs = self.normals(2 * count).reshape(-1, 2)
        return pairs[:, 0] / np.where(pairs[:, 1] == 0, 2.0**-60, pairs[:, 1])


def _uniforms(words: NDArray[np.uint64]) -> Floats:
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _polar(uniforms: Floats, wanted: int) -> tuple[Floats, int]:
    """Normal numbers from the first `wanted` accepted pairs (or from all, if fewer), and the number of pairs used."""
    pairs = 2.0 * uniforms - 1.0
    square = pairs[:, 0] * pairs[:, 0] + pairs[:, 1] * pairs[:, 1]
    accepted = np.flatnonzero(square < 1.0)[:wanted]
    square = square[accepted]
    made = (pairs[accepted] * np.sqrt(-2.0 * logarithms(square) / square)[:, None]).ravel()
    return made, int(accepted[-1]) + 1 if len(accepted) == wanted else len(pairs)


def logarithms(x: Floats) -> Floats:
    """Natural logarithm from correctly rounded operations, accurate to a few units in the last place."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < 0.7071067811865476
    mantissa = np.where(small, 2.0 * mantissa, mantissa)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    series = np.zeros_like(z)
    for power in range(23, 0, -2):  # atanh z = z + z^3/3 + z^5/5 + …, |z| < 0.172
        series = series * square + 1.0 / power
    return (exponent - small) * _LN2 + 2.0 * z * series
