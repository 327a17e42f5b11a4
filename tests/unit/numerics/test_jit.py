"""How kernels are loaded, beside threads and forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FORKS = """
import os, signal, threading
from dpsketch.numerics.jit import kernel

def doubled(x):
    return 2 * x

def compute():
    return kernel("int64(int64)")(doubled)(21)

compute()
done = threading.Event()

def keep_busy():
    while not done.is_set():
        compute()

threading.Thread(target=keep_busy).start()
status = 0
for _ in range(4):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that waits for a thread which it does not have
        os._exit(0 if compute() == 42 else 1)
    status = status or os.waitpid(child, 0)[1]
done.set()
raise SystemExit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_while_a_thread_compiles_can_compile(tmp_path: Path) -> None:
    (tmp_path / "dpsketch").write_text("")  # in the way of a cache
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FORKS], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
