"""Words are fresh, secret, never shared between processes or threads, and wiped after use."""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import pickle
import pkgutil
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import dpsketch.privacy
from dpsketch.noise import keystream
from dpsketch.noise.gaussian import rounded_gaussian
from dpsketch.noise.keystream import Keystream, Stream
from dpsketch.noise.laplace import discrete_laplace

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def started() -> Keystream:
    stream = Keystream()
    stream.words(4)
    return stream


def words_of_a_child(stream: Keystream, before: Callable[[], object] = lambda: None) -> bytes:
    """What a child that inherits this stream draws."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before()
            os.write(write, stream.words(8).tobytes())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()


def assert_different(draws: list[bytes], size: int = 32) -> None:
    assert all(len(draw) == size for draw in draws)
    assert len(set(draws)) == len(draws)


def test_words_are_fresh() -> None:
    first, second = Keystream(), Keystream()
    draws = [first.words(8), first.words(8), second.words(8)]
    assert_different([draw.tobytes() for draw in draws])
    assert not np.all(draws[0] == 0)


def test_words_are_the_keystream_of_aes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is wiped after the cipher has taken it, not before."""
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(1, count + 1)))
    cipher = Cipher(algorithms.AES(bytes(range(1, 33))), modes.CTR(bytes(range(1, 17)))).encryptor()
    assert Keystream().words(100).tobytes() == cipher.update(bytes(400))


@pytest.mark.parametrize("stream", [started(), Keystream()], ids=["started", "new"])
def test_a_forked_child_draws_its_own_noise(stream: Keystream) -> None:
    """Parent and children that share a stream must never see the same words."""
    seen = [words_of_a_child(stream) for _ in range(2)]
    assert_different([*seen, stream.words(8).tobytes()])


def test_a_forked_grandchild_draws_its_own_noise() -> None:
    stream = started()
    seen: list[bytes] = []
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            grandchild = words_of_a_child(stream)
            os.write(write, grandchild + stream.words(8).tobytes())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        seen = [pipe.read(32), pipe.read(32)]
    assert_different([*seen, stream.words(8).tobytes()])


def test_a_child_with_the_process_id_of_its_ancestor_draws_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids come again: when they wrap around, and in containers, where the first process is always 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    stream = started()
    assert_different([words_of_a_child(stream), stream.words(8).tobytes()])


def test_a_fork_that_python_does_not_see_is_told_by_the_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = started()
    here = keystream._process
    child = words_of_a_child(stream, lambda: setattr(keystream, "_process", here))
    assert_different([child, stream.words(8).tobytes()])


def _send(pipe: Any, stream: Keystream) -> None:
    pipe.send(stream.words(8).tobytes())


def test_processes_of_multiprocessing_draw_their_own_noise() -> None:
    context, stream, seen = multiprocessing.get_context("fork"), started(), []
    for _ in range(2):
        here, there = context.Pipe()
        process = context.Process(target=_send, args=(there, stream))
        process.start()
        assert here.poll(60)
        seen.append(here.recv())
        process.join()
    assert_different([*seen, stream.words(8).tobytes()])


def test_a_started_stream_does_not_travel() -> None:
    """Workers that are spawned get their arguments pickled: a stream with a key refuses."""
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(started())


def test_forks_while_threads_draw_share_nothing() -> None:
    """Every thread has its stream, children inherit all of them in the middle of things."""
    streams = [started() for _ in range(3)]
    drawn: list[list[bytes]] = [[] for _ in streams]
    stop = threading.Event()

    def draw(place: int) -> None:
        while not stop.is_set():
            drawn[place].append(streams[place].words(8).tobytes())

    threads = [threading.Thread(target=draw, args=(place,)) for place in range(len(streams))]
    for thread in threads:
        thread.start()
    seen = [words_of_a_child(stream) for stream in streams for _ in range(2)]
    stop.set()
    for thread in threads:
        thread.join()
    assert_different(seen + [words for own in drawn for words in own])


def test_forks_in_threads_share_nothing() -> None:
    stream = started()
    seen: list[bytes] = []
    threads = [threading.Thread(target=lambda: seen.append(words_of_a_child(stream))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_different([*seen, stream.words(8).tobytes()])


def test_nothing_in_privacy_takes_a_seed() -> None:
    assert not inspect.signature(Keystream).parameters
    assert list(inspect.signature(Keystream.words).parameters) == ["self", "count"]
    for module in pkgutil.iter_modules(dpsketch.privacy.__path__, "dpsketch.privacy."):
        for name, found in vars(importlib.import_module(module.name)).items():
            if inspect.isfunction(found) and found.__module__ == module.name:
                assert not any("seed" in parameter for parameter in inspect.signature(found).parameters), name


def test_a_closed_stream_forgets_its_key() -> None:
    with Keystream() as stream:
        first = stream.words(8).tobytes()
        cipher = stream._cipher
    assert cipher is not None
    assert stream._cipher is None
    second = stream.words(8).tobytes()
    assert stream._cipher is not cipher
    stream.close()
    stream.close()
    assert_different([first, second])


def test_the_key_is_wiped_once_the_cipher_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytearray] = []

    def spy(key: bytearray) -> algorithms.AES:
        assert any(key)
        keys.append(key)
        return algorithms.AES(key)

    monkeypatch.setattr(keystream, "algorithms", type("spied", (), {"AES": staticmethod(spy)}))
    with Keystream() as stream:
        stream.words(1)
    stream.words(1)
    assert [bytes(key) for key in keys] == [bytes(32)] * 2


class Spy:
    """Keeps every array that it hands out."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.handed_out: list[np.ndarray] = []

    def words(self, count: int) -> np.ndarray:
        words = self._stream.words(count)
        assert words.any()
        self.handed_out.append(words)
        return words


@pytest.mark.parametrize(
    "sample",
    [
        lambda stream: discrete_laplace(10_000, Fraction(1000), stream),
        lambda stream: rounded_gaussian(70_000, 1000.0, stream),
    ],
    ids=["discrete_laplace", "rounded_gaussian"],
)
def test_samplers_wipe_the_words_they_used(sample: Callable[[Stream], np.ndarray]) -> None:
    """All but those of single undecided entries, which pass through Python's integers and cannot be wiped."""
    with Keystream() as stream:
        spy = Spy(stream)
        assert sample(spy).any()
    chunks = [words for words in spy.handed_out if len(words) > 2]
    assert len(chunks) == 3
    assert not any(words.any() for words in chunks)
