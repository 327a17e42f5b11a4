"""Compiled kernels on disk: never stale, never anybody else's, never needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core.codegen import CPUCodegen

import dpsketch
from dpsketch.numerics import kernel_cache, started
from dpsketch.numerics.jit import kernel
from dpsketch.numerics.kernel_cache import KernelCache, cache_folder

PARTS = "from dpsketch.numerics.jit import part\n\n\n@part\ndef shifted(x):\n    return x + {}\n"
KERNEL = """
from dpsketch.numerics.jit import kernel
from dpsketch.probe_parts import shifted


@kernel("int64(int64)")
def probe(x):
    return shifted(x)
"""


def test_a_kernel_follows_a_change_in_another_file(tmp_path: Path) -> None:
    """An upgrade may change a function, or a constant, that a kernel of another file was compiled with."""
    package = tmp_path / "dpsketch"
    shutil.copytree(Path(dpsketch.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "probe_kernel.py").write_text(KERNEL)

    def result(number: int) -> tuple[str, set[Path]]:
        (package / "probe_parts.py").write_text(PARTS.format(number))
        done = subprocess.run(
            [sys.executable, "-c", "from dpsketch.probe_kernel import probe; print(probe(100))"],
            env=os.environ | {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert not done.stderr
        return done.stdout.strip(), set((tmp_path / "cache").rglob("*.kernel"))

    value, first = result(1)
    assert (value, len(first)) == ("101", 1)
    value, both = result(2)
    assert (value, len(both)) == ("102", 2)
    assert result(1) == ("101", both)  # the kernel of the first run is loaded again


def doubled(x):  # type: ignore[no-untyped-def]
    return 2 * x


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for the caches of this user, as a new process sees it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder.cache_clear()
    yield tmp_path
    cache_folder.cache_clear()


def loaded(monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[bool]]:
    """The result of a kernel as a new process loads it, and for each attempt to read the cache whether it succeeded."""
    found, honest = [], KernelCache.load_overload

    def watched(self: KernelCache, *arguments: Any) -> Any:
        result = honest(self, *arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(KernelCache, "load_overload", watched)
    result = kernel("int64(int64)")(doubled)(21)
    monkeypatch.setattr(KernelCache, "load_overload", honest)
    return result, found


def only_file(cache: Path) -> Path:
    (path,) = cache.rglob("*.kernel")
    return path


def test_a_second_process_loads_what_the_first_compiled(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(monkeypatch) == (42, [False])
    assert loaded(monkeypatch) == (42, [True])
    path = only_file(fresh)
    assert [p.stat().st_mode & 0o777 for p in (path.parent.parent, path.parent, path)] == [0o700, 0o700, 0o600]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[:-1],
        lambda content: content[:1000] + bytes([content[1000] ^ 1]) + content[1001:],
    ],
    ids=["empty", "a few bytes", "one byte short", "a flipped bit"],
)
def test_a_damaged_file_is_compiled_again(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    loaded(monkeypatch)
    path = only_file(fresh)
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert loaded(monkeypatch) == (42, [False])
    assert loaded(monkeypatch) == (42, [True])


@pytest.mark.parametrize(
    "changed", ["numba.__version__", "llvmlite.__version__", "numpy.__version__", "sys.version", "version"]
)
def test_other_versions_have_another_folder(fresh: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    before = cache_folder()
    if changed == "version":
        monkeypatch.setattr(kernel_cache, "version", lambda name: "0.0.0")
    else:
        monkeypatch.setattr(changed, "0.0.0")
    cache_folder.cache_clear()
    assert before is not None
    assert cache_folder() not in (None, before)


def test_other_processors_have_other_files(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch)
    monkeypatch.setattr(CPUCodegen, "magic_tuple", lambda self: ("x86_64", "another", "+sse2"))
    assert loaded(monkeypatch) == (42, [False])
    assert len(list(fresh.rglob("*.kernel"))) == 2


def _file_in_the_way(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "dpsketch").write_text("")


def _no_home(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/proc/none")


def _unknown_home(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `expanduser` leaves for a user without an entry among the system's users."""
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")
    monkeypatch.chdir(cache)


def _open_to_others(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch)
    only_file(cache).parent.chmod(0o770)
    cache_folder.cache_clear()


def _open_one_level_up(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch)
    only_file(cache).parent.parent.chmod(0o777)
    cache_folder.cache_clear()


def _a_link(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "elsewhere").mkdir(mode=0o700)
    (cache / "dpsketch").symlink_to(cache / "elsewhere")


def _of_another_user(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch)
    cache_folder.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def _sources_changed_while_running(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules in memory are not those on disk: a kernel from either must not be taken for one of the other."""
    monkeypatch.setattr(started, "STARTED", 0.0)


def _no_sources(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "__file__", str(cache / "no" / "kernel_cache.pyc"))


@pytest.mark.parametrize(
    "spoil",
    [
        _file_in_the_way,
        _no_home,
        _unknown_home,
        _open_to_others,
        _open_one_level_up,
        _a_link,
        _of_another_user,
        _sources_changed_while_running,
        _no_sources,
    ],
)
def test_without_a_safe_folder_kernels_are_compiled_in_memory(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    spoil(fresh, monkeypatch)
    before = sorted(fresh.rglob("*"))
    assert loaded(monkeypatch) == (42, [False])
    assert sorted(fresh.rglob("*")) == before


def test_a_full_disk_leaves_nothing_behind(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # bytes; longer files fail as on a full disk
    try:
        assert loaded(monkeypatch) == (42, [False])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [path for path in fresh.rglob("*") if path.is_file()]


def test_only_the_latest_folders_are_kept(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = fresh / "dpsketch"
    base.mkdir(mode=0o700)
    for age in range(20):
        (base / f"kernels-{age:02}").mkdir()
        os.utime(base / f"kernels-{age:02}", (10**9 - age, 10**9 - age))
    (base / "other").mkdir()
    folder = cache_folder()
    kept = [f"kernels-{age:02}" for age in range(kernel_cache.KEPT - 1)]
    assert folder is not None
    assert sorted(path.name for path in base.iterdir()) == sorted([*kept, folder.name, "other"])
