"""Compiled kernels on disk, in a folder that belongs to exactly this code.

Numba's own cache notices a change of the file that defines a kernel, but not of the functions and constants with which
the kernel was compiled. A stale kernel would silently break sensitivities. Here the folder's name is a hash of every
source file that kernels depend on and of every version that machine code depends on, so a stale kernel is never loaded.

A cached kernel is pickled code: it is read only from a folder that nobody else can write to. Where there is no such
folder, or a file is damaged or cannot be written, the kernel is compiled in memory, as if there were no cache.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from dpsketch.numerics import started
from dpsketch.numerics.user_cache import user_folder

_DECORATORS = b"from dpsketch.numerics.jit import"
_IMPORT = re.compile(rb"^ *from ([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
KEPT = 8  # folders: installed versions, environments and recent edits of the code
_DIGEST = hashlib.sha256().digest_size


class KernelCache(NullCache):
    """Numba's interface to the machine code of one function: one file per signature and processor."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None. Whatever is wrong with a file, compiling again repairs it."""
        target_context.refresh()
        folder = cache_folder()
        if folder is None:
            return None
        with suppress(Exception):
            key = self._key(sig, target_context)
            content = _path(folder, key).read_bytes()
            if content[:_DIGEST] == _digest(key, content[_DIGEST:]):
                return CompileResult._rebuild(target_context, *pickle.loads(content[_DIGEST:]))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled function for later processes, if possible."""
        folder = cache_folder()
        # such code contains addresses, valid in this process alone
        if folder is None or data.library.has_dynamic_globals:
            return
        with suppress(Exception):
            key = self._key(sig, data.target_context)
            payload = dumps(data._reduce())
            if folder.name == _folder_name():  # the sources still match the modules in memory
                _write(_path(folder, key), _digest(key, payload) + payload)

    def _key(self, sig: Any, target_context: Any) -> bytes:
        facts = self._name, str(sig), target_context.codegen().magic_tuple()  # the processor and its features
        return hashlib.sha256(repr(facts).encode()).digest()


@cache
def cache_folder() -> Path | None:
    """The folder of this code's kernels, created if absent; None if no folder is safe from other users."""
    try:
        name = _folder_name()
    except (OSError, PackageNotFoundError):
        return None
    folder = None if name is None else user_folder(name)
    if folder is not None and not any(folder.iterdir()):
        _remove_old(folder.parent)
    return folder


def _folder_name() -> str | None:
    """A name that changes with the code; None if there are no sources, or if they changed after they were imported."""
    package = Path(__file__).parents[1]
    versions = (version("dpsketch"), numba.__version__, llvmlite.__version__, np.__version__, sys.version)
    digest = hashlib.sha256(repr(versions).encode())
    sources = _kernel_sources(package)
    for source, content in sources.items():
        if source.stat().st_ctime > started.STARTED:
            return None
        digest.update(f"\n{source.relative_to(package)} {len(content)}\n".encode())
        digest.update(content)
    return f"kernels-{digest.hexdigest()[:32]}" if sources else None


def _kernel_sources(package: Path) -> dict[Path, bytes]:
    """The files that define kernels, and every file of the package that these import, directly or indirectly.

    The package's own `__init__` names everything and defines nothing: it is not followed.
    """
    contents = {path: path.read_bytes() for path in sorted(package.rglob("*.py")) if path != package / "__init__.py"}
    homes = {".".join([package.name, *path.relative_to(package).with_suffix("").parts]): path for path in contents}
    needed: set[Path] = set()
    waiting = [path for path, content in contents.items() if _DECORATORS in content]
    while waiting:
        path = waiting.pop()
        if path not in needed:
            needed.add(path)
            names = {name for imported in _IMPORT.findall(contents[path]) for name in _modules(*imported)}
            waiting += [homes[name] for name in names & homes.keys()]
    return {path: content for path, content in contents.items() if path in needed}


def _modules(module: bytes, names: bytes) -> set[str]:
    """The modules that `from module import names` may load: the module, or modules in it."""
    return {module.decode()} | {f"{module.decode()}.{name}" for name in re.findall(r"\w+", names.decode())}


def _remove_old(base: Path) -> None:
    folders = sorted(base.glob("kernels-*"), key=lambda folder: folder.stat().st_mtime)
    for folder in folders[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def _path(folder: Path, key: bytes) -> Path:
    return folder / f"{key.hex()[:32]}.kernel"


def _digest(key: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(key + payload).digest()


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by this user alone."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
