"""Shamir's secret sharing of byte strings, byte by byte over the field of 256 elements of AES.

Loops and memory accesses do not depend on secrets. Source: Shamir, "How to share a secret", 1979.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

_ONE, _HIGH, _REDUCTION = np.uint8(1), np.uint8(7), np.uint8(0x1B)  # x^8 = x^4 + x^3 + x + 1
MOST_SHARES = 255

Bytes = NDArray[np.uint8]


def shares_of(
    secret: bytes | bytearray, threshold: int, count: int, draw: Callable[[int], bytes]
) -> dict[int, bytearray]:
    """Shares numbered 1 to `count`: any `threshold` of them give the secret, fewer are independent of it."""
    if not 1 <= threshold <= count <= MOST_SHARES:
        raise ValueError("a bug: no such sharing")
    length = len(secret)
    coefficients = np.frombuffer(bytearray(draw(length * (threshold - 1))), np.uint8).reshape(threshold - 1, length)
    points = np.arange(1, count + 1, dtype=np.uint8)[:, None]
    values = np.zeros((count, length), np.uint8)
    for coefficient in coefficients:
        values = _times(values ^ coefficient, points)
    values ^= np.frombuffer(secret, np.uint8)
    coefficients.fill(0)
    shares = {number: bytearray(values[number - 1].tobytes()) for number in range(1, count + 1)}
    values.fill(0)
    return shares


def secret_from(shares: Mapping[int, bytes | bytearray]) -> bytearray:
    """The secret that these shares give: the right one only if there are enough and all are right."""
    numbers = sorted(shares)
    if not numbers or numbers[0] < 1 or numbers[-1] > MOST_SHARES or len({len(each) for each in shares.values()}) > 1:
        raise ValueError("a bug: no such shares")
    points = np.array(numbers, np.uint8)
    others = _times(points, _inverse(points[:, None] ^ points))  # x_j / (x_i - x_j)
    np.fill_diagonal(others, 1)
    secret, weights = np.zeros(len(shares[numbers[0]]), np.uint8), np.ones(len(points), np.uint8)
    for column in others.T:
        weights = _times(weights, column)
    for number, weight in zip(numbers, weights, strict=True):
        secret ^= _times(np.frombuffer(shares[number], np.uint8), np.array([weight]))
    return bytearray(secret.tobytes())


def _times(one: Bytes, two: Bytes) -> Bytes:
    """Products in the field, without branches or tables."""
    product = np.zeros(np.broadcast_shapes(one.shape, two.shape), np.uint8)
    for _ in range(8):
        product ^= one * (two & _ONE)
        one = (one << _ONE) ^ (one >> _HIGH) * _REDUCTION
        two = two >> _ONE
    return product


def _inverse(number: Bytes) -> Bytes:
    """Its 254th power."""
    result, power = np.ones_like(number), number
    for _ in range(7):
        power = _times(power, power)
        result = _times(result, power)
    return result
