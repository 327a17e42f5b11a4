"""Output files: complete under their name, or not there at all.

An output is claimed before any work whose loss would hurt, above all before a spend. Claiming it creates a locked
partial file beside it, with reserved disk space. Whatever would fail at the end therefore fails now, and of several
processes that want the same name, one gets it. A process that is killed leaves its partial file behind, unlocked; the
next claim in that folder removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dpsketch.errors import FileError

_PREFIX, _SUFFIX = ".dpsketch-", ".partial"
_FRESH = 60  # seconds within which a process locks the partial file that it created
_NO_RESERVATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # a file system that cannot reserve space


def check_free(path: Path, force: bool = False) -> None:
    """Refuse a name under which no new file may be created. Devices, folders and links are never replaced."""
    with _explained(path):
        try:
            kind = os.lstat(path).st_mode
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise FileError(f"{path.parent} is not a folder", "create it first") from None
            return
    if stat.S_ISLNK(kind):
        raise FileError(f"{path} is a symbolic link", "name the file itself")
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "not a regular file"
        raise FileError(f"{path} is {what}", "choose another name for the output")
    if not force:
        raise FileError(f"{path} exists already", "choose another name, or pass --force (force=True) to replace it")


def same_file(one: Path, two: Path) -> bool:
    """Whether two names refer to the same file, or would once it is created."""
    try:
        return one.samefile(two)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(two)


class Output:
    """A claimed output. `file` is its partial file; `keep` moves it to its name; leaving the block discards it."""

    def __init__(self, path: str | Path, force: bool = False, secret: bool = False) -> None:
        self.path = Path(path)
        self._force = force
        check_free(self.path, force)
        with _explained(self.path):
            _remove_leftovers(self.path.parent)
            self._partial = _partial_of(self.path)
            self.file: BinaryIO = os.fdopen(_locked(self.path, self._partial, secret), "r+b")
        self._kept = False

    def make_room(self, size: int) -> None:
        """Reserve disk space for `size` bytes."""
        with _explained(self.path):
            try:
                os.posix_fallocate(self.file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in _NO_RESERVATION:
                    raise

    def keep(self) -> None:
        """Flush to disk and rename. Does not replace a file that someone else created in the meantime."""
        with _explained(self.path):
            self.file.truncate(self.file.tell())
            self.file.flush()
            os.fsync(self.file.fileno())
            if not self._force and os.path.lexists(self.path):
                self.path = self.path.with_name(f"{secrets.token_hex(4)}-{self.path.name}")
            os.replace(self._partial, self.path)
            self._kept = True
            _flush_folder(self.path.parent)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self._partial.unlink(missing_ok=True)
        with suppress(OSError):  # the content is already flushed
            self.file.close()


@contextmanager
def written(path: str | Path, force: bool = False, secret: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which appears under `path` once the block ends without an error.

    A `secret` file is readable by its owner alone.
    """
    with Output(path, force, secret) as output:
        with _explained(output.path):
            yield output.file
        output.keep()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise FileError(f"{path} cannot be written: {reason}", "write somewhere else") from None


def _partial_of(path: Path) -> Path:
    """A unique name for each output, whose length does not depend on the output's."""
    return path.with_name(f"{_PREFIX}{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}{_SUFFIX}")


def _locked(path: Path, partial: Path, secret: bool) -> int:
    """A new, empty partial file that this process alone holds."""
    while True:
        descriptor = _try_lock(partial, os.O_CREAT, 0o600 if secret else 0o666)
        if descriptor is None:
            raise FileError(f"another process is writing {path}", "wait until it is done, or choose another name")
        if os.fstat(descriptor).st_size == 0 and _names(partial, descriptor):
            if secret:
                os.fchmod(descriptor, 0o600)
            return descriptor
        if _names(partial, descriptor):  # left by a killed process
            partial.unlink()
        os.close(descriptor)


def _try_lock(partial: Path, flags: int, mode: int = 0) -> int | None:
    """The locked descriptor of a partial file of ours; None if another process holds it."""
    descriptor = os.open(partial, os.O_RDWR | os.O_NOFOLLOW | flags, mode)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "a file of somebody else is in the way")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _names(partial: Path, descriptor: int) -> bool:
    """Whether the name still refers to the locked file: its former holder may have renamed it before we locked it."""
    try:
        return os.path.samestat(os.lstat(partial), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_leftovers(folder: Path) -> None:
    """Remove the partial files of killed processes, which may contain exact sums. A new, empty one may not be locked
    yet.
    """
    for partial in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            facts = partial.lstat()
            left = facts.st_size > 0 or time.time() - facts.st_mtime > _FRESH
            descriptor = _try_lock(partial, 0) if left else None
            if descriptor is not None:
                if _names(partial, descriptor):
                    partial.unlink()
                os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    """Make a rename durable, where the file system allows folders to be flushed."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
