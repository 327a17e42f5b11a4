"""Two working folders, one with planted cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from planted import SCHEMA, Folders, write_harmless, write_planted


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """Two working folders of the same names of files, and an empty folder for temporary ones."""
    both = Folders(tmp_path / "planted", tmp_path / "harmless")
    for folder, fill in zip(both, (write_planted, write_harmless), strict=True):
        folder.mkdir()
        fill(folder)
        (folder / "schema.toml").write_text(SCHEMA)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return both
