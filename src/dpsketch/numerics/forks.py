"""Locks that a forked child can rely on."""

from __future__ import annotations

import os
import threading


def fork_safe_lock() -> threading.RLock:
    """A lock that is free in every forked child: a fork waits until no other thread holds it.

    Otherwise a child could inherit a lock whose holder does not exist there, and wait for ever. Waiting, rather than
    resetting the lock in the child, also protects the child from data that a thread had half written.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
