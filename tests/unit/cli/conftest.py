"""What tests of wrong commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_commands import write_files


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, its schema, a release, and damaged or unsuitable files."""
    path = tmp_path_factory.mktemp("bad")
    write_files(path)
    return path
