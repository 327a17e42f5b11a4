"""The user's cache folder: private, or none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dpsketch.numerics.user_cache import user_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the variable is of Linux")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dpsketch"


def test_the_folder_is_made_for_its_user_alone(base: Path) -> None:
    assert user_folder("fits") == base / "fits"
    assert (base / "fits").stat().st_mode & 0o777 == 0o700
    assert user_folder("fits") == base / "fits"


@pytest.mark.parametrize("mode", [0o770, 0o707])
@pytest.mark.parametrize("name", ["", "fits"])
def test_a_folder_that_others_can_write_to_is_not_used(base: Path, mode: int, name: str) -> None:
    (base / "fits").mkdir(parents=True)
    base.chmod(0o700)
    (base / name).chmod(mode)
    assert user_folder("fits") is None


def test_a_link_is_not_used(base: Path, tmp_path: Path) -> None:
    base.mkdir(mode=0o700, parents=True)
    (base / "fits").symlink_to(tmp_path)
    assert user_folder("fits") is None


def test_nobody_elses_folder_is_used(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_folder("fits")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert user_folder("fits") is None


def test_no_home_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert user_folder("fits") is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert user_folder("fits") is None

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert user_folder("fits") is None
