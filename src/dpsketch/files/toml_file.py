"""Reading of TOML files that people write: schemas and recipes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from dpsketch.errors import DpsketchError

# Python's parser takes time and memory quadratic in the number of a key's parts.
_LONG_KEY = re.compile(r"""(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){100}""")


def read_toml(path: Path, error: type[DpsketchError], unreadable: str, invalid: str) -> dict[str, Any]:
    """The contents of a file. An error names the file and the line.

    `unreadable` is the hint for a file that is missing or not text, `invalid` for one that is not TOML.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise error(f"{path}: cannot be read: {reason}", unreadable) from None
    try:
        if _LONG_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise error(f"{path}: not valid TOML: {problem}", invalid) from None
    except RecursionError:
        raise error(f"{path}: nested too deeply", invalid) from None
