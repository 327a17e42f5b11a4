from __future__ import annotations

import os

import numpy as np

from dpsketch.privacy.keystream import Keystream


def test_words_are_fresh() -> None:
    first, second = Keystream(), Keystream()
    draws = [first.words(8), first.words(8), second.words(8)]
    assert len({draw.tobytes() for draw in draws}) == 3
    assert not np.all(draws[0] == 0)


def test_a_forked_child_draws_its_own_noise() -> None:
    """Parent and children that share a started stream must never see the same words."""
    stream = Keystream()
    stream.words(4)
    seen = []
    for _ in range(2):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, stream.words(8).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        seen.append(os.read(read, 32))
        os.close(read)
        os.close(write)
    seen.append(stream.words(8).tobytes())
    assert len(set(seen)) == 3
    assert all(len(words) == 32 for words in seen)
