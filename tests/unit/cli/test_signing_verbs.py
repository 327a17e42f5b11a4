"""The words of keygen, sign and verify, on real files."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest

from bad_commands import write_files
from command_line import called


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signing")
    write_files(folder)
    signers = [called(folder, "keygen", f"{name}.key", "--name", name).stdout for name in ("ada", "bob")]
    (folder / "signers").write_text("".join(signers))
    return folder


def test_four_eyes(folder: Path) -> None:
    done = called(folder, "sign", "good.sketch", "--key", "ada.key")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("good.sketch.sig: signed good.sketch (epsilon 1), SHA-256 ")
    one = called(folder, "verify", "good.sketch", "--signers", "signers")
    assert one.returncode == 0
    assert one.stdout.startswith("ada signed good.sketch on 20")
    two = called(folder, "verify", "good.sketch", "--signers", "signers", "--at-least", "2")
    assert two.returncode == 1
    assert two.stderr == (
        "FileError: 1 of at least 2 trusted signers signed good.sketch: ada\n"
        "Hint: ask for more signatures: dpsketch sign FILE --key KEY\n"
    )
    assert called(folder, "sign", "good.sketch", "--key", "ada.key").returncode == 0
    assert called(folder, "verify", "good.sketch", "--signers", "signers", "--at-least", "2").returncode == 1
    assert called(folder, "sign", "good.sketch", "--key", "bob.key").returncode == 0
    both = called(folder, "verify", "good.sketch", "--signers", "signers", "--at-least", "2", "--json")
    assert list(json.loads(both.stdout)["signers"]) == ["ada", "bob"]


def test_a_stranger_does_not_count(folder: Path) -> None:
    called(folder, "keygen", "eve.key", "--name", "ada")
    words = ["good.sketch", "--signatures", "eve.sig"]
    assert called(folder, "sign", *words, "--key", "eve.key").returncode == 0
    done = called(folder, "verify", *words, "--signers", "signers")
    assert done.returncode == 1
    assert "0 of at least 1 trusted signers signed good.sketch\n" in done.stderr
    assert "1 by keys that the list does not name do not count" in done.stderr


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("study.sketch", "FileError: study.sketch is not private: there is nothing to sign for"),
        ("good.raw", "FileError: good.raw is a raw sketch: unreleased and not private"),
        ("cut.sketch", "FileError: cut.sketch"),
        ("t.parquet", "FileError: t.parquet"),
    ],
)
def test_what_protects_nobody_is_not_signed(file: str, message: str, folder: Path) -> None:
    done = called(folder, "sign", file, "--key", "ada.key")
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert not (folder / f"{file}.sig").exists()


def test_passphrases_come_from_the_environment_or_a_person(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["keygen", "locked.key", "--name", "cy", "--passphrase"]
    monkeypatch.setattr("sys.stdin", StringIO())
    done = called(folder, *words)
    assert done.stderr == (
        "FileError: a passphrase is needed, and there is nobody to ask\nHint: set DPSKETCH_PASSPHRASE\n"
    )
    monkeypatch.setenv("DPSKETCH_PASSPHRASE", "open sesame")
    assert called(folder, *words).returncode == 0
    signing = ["sign", "good.sketch", "--key", "locked.key", "--signatures", "cy.sig"]
    assert called(folder, *signing).returncode == 0
    monkeypatch.setenv("DPSKETCH_PASSPHRASE", "wrong")
    assert "FileError: locked.key does not open with this passphrase" in called(folder, *signing).stderr
