"""High-precision arithmetic beside threads and forks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dpsketch.numerics.precision import precise

FORKS = """
import os, signal, threading
from dpsketch.numerics.precision import precise

def compute():
    with precise(200) as exact:
        return str(exact.log(exact.mpf(3)))

expected, done = compute(), threading.Event()

def keep_busy():
    while not done.is_set():
        with precise(5000) as exact:
            exact.log(exact.mpf(3))

threading.Thread(target=keep_busy).start()
status = 0
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that waits for a thread which it does not have
        os._exit(0 if compute() == expected else 1)
    status = status or os.waitpid(child, 0)[1]
done.set()
raise SystemExit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_while_a_thread_computes_can_compute() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_nested_use_leaves_the_precision_of_the_outer_one() -> None:
    with precise(200) as exact:
        third = exact.mpf(1) / 3
        with precise(50) as inner:
            assert inner.mpf(1) / 3 != third
        assert exact.mpf(1) / 3 == third
