"""Shamir's sharing over 256 elements: enough shares give the secret, fewer are uniform."""

from __future__ import annotations

import os
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from dpsketch.federate.secret_sharing import _inverse, _times, secret_from, shares_of


def slow_product(one: int, two: int) -> int:
    """Polynomials modulo x^8 + x^4 + x^3 + x + 1, by division."""
    wide = 0
    for bit in range(8):
        if two >> bit & 1:
            wide ^= one << bit
    for bit in range(14, 7, -1):
        if wide >> bit & 1:
            wide ^= 0x11B << (bit - 8)
    return wide


def test_the_field_is_that_of_aes() -> None:
    values = np.arange(256, dtype=np.uint8)
    table = _times(values[:, None], values[None, :])
    assert table[0x57, 0x83] == 0xC1  # FIPS 197
    for one, two in product(range(0, 256, 7), range(256)):
        assert table[one, two] == slow_product(one, two)
    assert (_times(values[1:], _inverse(values[1:])) == 1).all()


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (2, 3), (4, 5), (5, 7), (128, 255)])
def test_any_enough_shares_give_the_secret(threshold: int, count: int) -> None:
    secret = os.urandom(32)
    shares = shares_of(secret, threshold, count, os.urandom)
    for chosen in list(combinations(shares, threshold))[:40] if count < 9 else [range(100, 228)]:
        assert secret_from({number: shares[number] for number in chosen}) == secret


def test_fewer_shares_are_uniform_whatever_the_secret() -> None:
    """All polynomials of degree 1: every value of a single share occurs equally often."""
    for secret in (b"\x00", b"\xa5"):
        seen = Counter(shares_of(secret, 2, 3, lambda _, byte=byte: bytes([byte]))[3][0] for byte in range(256))
        assert set(seen.values()) == {1}
        assert len(seen) == 256


def test_a_wrong_share_gives_another_secret() -> None:
    shares = shares_of(bytes(32), 3, 5, os.urandom)
    shares[2][0] ^= 1
    assert secret_from({number: shares[number] for number in (1, 2, 3)}) != bytes(32)
