"""The random draws of a private auction: which sum is measured, its noise, and who is asked. Noise stays in this room.

Sums are exact integers in steps of a grid. What is drawn here is released to all owners at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

from dpsketch.noise.exact_choices import Bits, coin, exponential_choice
from dpsketch.noise.keystream import Keystream, Stream
from dpsketch.noise.laplace import discrete_laplace

_NOISES = 64  # drawn together


class AuctionDraws:
    """Draws of one auction from one secret stream.

    `sensitivity` bounds the change of each integer sum between neighbouring runs, and so of a score, its distance from
    a public number.
    """

    def __init__(self, stream: Stream, sensitivity: int) -> None:
        self._stream, self._bits, self.sensitivity = stream, Bits(stream), sensitivity
        self._noises: dict[Fraction, list[int]] = {}

    def measured(self, scores: Sequence[int], epsilon: Fraction) -> int:
        """The index of a sum with a large score, by the exponential mechanism: e^(ε·score/2Δ). It costs ε, with
        range ε.
        """
        return exponential_choice(scores, epsilon / (2 * self.sensitivity), self._bits)

    def noisy(self, value: int, epsilon: Fraction) -> int:
        """A sum with discrete Laplace noise of scale Δ/ε. It costs ε."""
        scale = self.sensitivity / epsilon
        if not self._noises.get(scale):
            self._noises[scale] = discrete_laplace(_NOISES, scale, self._stream).tolist()
        return value + self._noises[scale].pop()

    def asked(self, probability: Fraction) -> bool:
        """Whether an owner is asked for its point."""
        return coin(probability, self._bits)


@contextmanager
def auction_draws(sensitivity: int) -> Iterator[AuctionDraws]:
    """The draws of one auction, from a fresh secret stream that is forgotten afterwards."""
    with Keystream() as stream:
        yield AuctionDraws(stream, sensitivity)
