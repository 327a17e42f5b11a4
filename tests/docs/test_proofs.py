"""A proof names the code it was checked against; when the code moves on, the proof must be read again."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
from pathlib import Path

import pytest

PROOFS = sorted(
    path for path in (Path(__file__).parents[2] / "docs" / "proofs").glob("*.md") if path.name != "README.md"
)


def source(name: str) -> str:
    """The code of a dotted name: a module, class, method or (compiled) function, without comments and blank lines."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        text = inspect.getsource(getattr(found, "py_func", found))
        return "\n".join(
            line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")
        )
    raise AssertionError(f"no module in {name}")


def code_hash(proof: str) -> str:
    line = next(line for line in proof.splitlines() if line.startswith("Code:"))
    names = re.findall(r"`([\w.]+)`", line)
    assert names
    return hashlib.sha256("\n".join(source(name) for name in names).encode()).hexdigest()[:16]


@pytest.mark.parametrize("path", PROOFS, ids=lambda path: path.stem)
def test_the_proof_was_checked_against_this_code(path: Path) -> None:
    text = path.read_text()
    assert f"Checked: {code_hash(text)}" in text, (
        f"read {path.name} against the code, then: python {Path(__file__).name}"
    )


def test_every_proof_is_listed() -> None:
    listed = (PROOFS[0].parent / "README.md").read_text()
    assert all(f"({path.name})" in listed for path in PROOFS)
    assert len(PROOFS) >= 6


if __name__ == "__main__":
    for page in PROOFS:
        print(f"{page.name}: Checked: {code_hash(page.read_text())}")
