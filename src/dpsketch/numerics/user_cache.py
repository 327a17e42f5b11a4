"""The user's own cache folder, for data that may be lost at any time and that no other user can change."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path


def user_folder(name: str) -> Path | None:
    """A folder in the user's cache, created if absent; None if there is none that only this user can write to."""
    with suppress(OSError, RuntimeError):  # no home directory, or one that cannot be written to
        base = _base()
        if base.is_absolute():
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _private(base):
                folder = base / name
                folder.mkdir(mode=0o700, exist_ok=True)
                return folder if _private(folder) else None
    return None


def _base() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dpsketch" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dpsketch"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpsketch"


def _private(folder: Path) -> bool:
    """Whether only this user can put files into a folder."""
    facts = folder.lstat()
    ours = not hasattr(os, "geteuid") or facts.st_uid == os.geteuid()
    return stat.S_ISDIR(facts.st_mode) and ours and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
