"""What a coordinator receives is uniform, and an audit of it notices masks that are missing or used twice."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsketch.federate.mask_stream import MaskStream
from dpsketch.privacy.events import Noise
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.privacy.noise_shares import Consortium, Shares
from dpsketch.sketch.release import NoisyShare
from secure_sums import Run, random_values

GROUP = Consortium(3, 3, 1, 3)
ALPHA = 1e-6  # of a test, of which there are a few dozen
RUNS, SIZE = 40, 500


def received(width: int, planted: Callable[[Run], None] = lambda _: None) -> np.ndarray:
    """The masked vectors of one holder with the same small sums, in many sessions: a row each."""
    vectors = []
    for _ in range(RUNS):
        run = Run(GROUP, shape=((SIZE, width),))
        values = {name: [np.arange(SIZE)] for name in run.names}
        run.join()
        run.share()
        planted(run)
        run.mask(values)
        vectors.append(run.vectors["h2"][0])
    return np.stack(vectors)


def p_values(vectors: np.ndarray) -> list[float]:
    """χ² of every byte of the counters, of the differences between sessions, and between neighbouring counters."""
    found = []
    for words in (vectors, vectors[1:] - vectors[:-1], vectors[:, 1:] - vectors[:, :-1]):
        octets = np.ascontiguousarray(words).view(np.uint8).reshape(-1, words.itemsize)
        for place in range(words.itemsize):
            counts = np.bincount(octets[:, place], minlength=256)
            found.append(float(stats.chisquare(counts).pvalue))
    return found


@pytest.mark.parametrize("width", [8, 4])
def test_every_byte_that_a_coordinator_receives_is_uniform(width: int) -> None:
    assert min(p_values(received(width))) > ALPHA


def test_the_audit_catches_a_mask_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One keystream in all sessions: each vector is uniform, but their differences are not."""
    first: list[list[bytearray]] = []

    def again(self: MaskStream, keys: object) -> None:
        listed = list(keys)  # type: ignore[call-overload]
        first.append([bytearray(key) for key, _ in listed])
        original(self, [(bytearray(key), sign) for key, (_, sign) in zip(first[1], listed, strict=True)])

    original = MaskStream.__init__
    first.append([])  # the place of keys[1], those of the first holder
    monkeypatch.setattr(MaskStream, "__init__", again)
    assert min(p_values(received(8))) < ALPHA


def test_the_audit_catches_masks_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No self mask, and pair masks that a coordinator with both peers' help would take off."""
    monkeypatch.setattr(MaskStream, "add_to", lambda self, counters: None)
    assert min(p_values(received(8))) < ALPHA


def test_the_audit_catches_masks_modulo_a_smaller_number(monkeypatch: pytest.MonkeyPatch) -> None:
    original = MaskStream.add_to

    def narrow(self: MaskStream, counters: np.ndarray) -> None:
        mask = np.zeros_like(counters)
        original(self, mask)
        counters += mask & np.uint64(2**62 - 1)

    monkeypatch.setattr(MaskStream, "add_to", narrow)
    assert min(p_values(received(8))) < ALPHA


def test_a_vector_is_still_uniform_when_all_peers_have_given_their_keys() -> None:
    """Pair masks of colluders are known; the self mask and those of the honest peers remain."""
    run = Run(GROUP, shape=((200_000, 8),))
    values = random_values(run.names, run.shape)
    run.to_survivors(values)
    masked = run.vectors["h1"][0].copy()
    holder = run.holders["h1"]
    pairs = [key for key in _pair_keys(run, "h1", "h2")]
    MaskStream(pairs).add_to(masked)
    octets = (masked - values["h1"][0]).view(np.uint8).reshape(-1, 8)
    assert min(stats.chisquare(np.bincount(octets[:, at], minlength=256)).pvalue for at in range(8)) > ALPHA
    assert holder.survivors == ("h1", "h2", "h3")


def _pair_keys(run: Run, name: str, colluder: str) -> list[tuple[bytearray, int]]:
    """What takes the masks that a colluder shares with a holder off that holder's vector."""
    from dpsketch.federate.secure_sum import pair_mask_key, pair_sign

    peer = run.holders[colluder]
    public = peer._joins[name].mask_key
    key = pair_mask_key(peer.after_shares, colluder, name, peer.secrets.mask_key, public)
    return [(key, -pair_sign(name, colluder))]


def noise_of_sessions(group: Consortium, without_noise: str = "", sessions: int = 30) -> np.ndarray:
    """The noise in the totals of many sessions, with shares of discrete Laplace noise of scale 3."""
    noise = Noise(Mechanism.POLYA, 1, Fraction(3), None, Shares(group.honest, group.holders, SIZE))
    found = []
    for session in range(sessions):
        run = Run(group, shape=((SIZE, 8),))
        exact = {name: np.full(SIZE, 1000 * session, np.int64) for name in run.names}
        read = {
            name: sums if name == without_noise else np.concatenate(list(NoisyShare(noise, sums).chunks()))
            for name, sums in exact.items()
        }
        run.to_survivors({name: [sums.view(np.uint64)] for name, sums in read.items()})
        (total,) = run.unmask(run.names)
        found.append(total.view(np.int64) - np.sum(list(exact.values()), axis=0))
    return np.concatenate(found)


def fits_laplace(noise: np.ndarray) -> float:
    """χ² against the discrete Laplace distribution of scale 3, tails together."""
    inside = np.arange(-15, 16)
    ratio = np.exp(-1 / 3)
    each = (1 - ratio) / (1 + ratio) * ratio ** np.abs(inside)
    tail = (1 - each.sum()) / 2
    counts = [np.sum(noise < -15), *(np.sum(noise == value) for value in inside), np.sum(noise > 15)]
    return float(stats.chisquare(counts, np.array([tail, *each, tail]) * len(noise)).pvalue)


def test_the_released_sum_has_the_noise_of_one_curator() -> None:
    """Three holders, none of whom colludes: their shares add up to exactly the noise of one."""
    group = Consortium(3, 3, 0, 3)
    assert fits_laplace(noise_of_sessions(group)) > ALPHA
    assert fits_laplace(noise_of_sessions(group, without_noise="h2")) < ALPHA
    assert fits_laplace(noise_of_sessions(Consortium(4, 3, 0, 3))) < ALPHA  # one share more than is needed
