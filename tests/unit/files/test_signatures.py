"""Detached signatures: valid ones, and every way in which one may be wrong."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsketch.errors import FileError
from dpsketch.files.signatures import (
    file_digest,
    load_key,
    make_key,
    needs_passphrase,
    read_signers,
    sign,
    verify,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file, and the keys of three people, two of whom are trusted."""
    (tmp_path / "a.sketch").write_bytes(b"header and sums")
    lines = {name: make_key(tmp_path / f"{name}.key", name.capitalize(), None) for name in ("ada", "bob", "eve")}
    (tmp_path / "signers").write_text(f"# trusted\n\n{lines['ada']}\n{lines['bob']}\n")
    return tmp_path


def signed(folder: Path, *names: str) -> Path:
    for name in names:
        sign(folder / "a.sketch", load_key(folder / f"{name}.key"), folder / "a.sig")
    return folder / "a.sig"


def check(folder: Path, *places: Path) -> tuple[list[str], int]:
    found = verify(folder / "a.sketch", places, folder / "signers")
    assert found.digest == file_digest(folder / "a.sketch")
    return list(found.signers), found.unknown


def test_several_people_sign_one_file(folder: Path) -> None:
    assert check(folder, signed(folder, "ada", "eve", "bob")) == (["Ada", "Bob"], 1)


def test_a_signer_counts_once(folder: Path) -> None:
    place = signed(folder, "ada", "ada")
    assert len(json.loads(place.read_text())["signatures"]) == 1
    assert check(folder, place, place) == (["Ada"], 0)
    facts = json.loads(place.read_text())
    place.write_text(json.dumps(facts | {"signatures": facts["signatures"] * 5}))
    assert check(folder, place) == (["Ada"], 0)


def test_a_person_with_two_keys_is_one_person(folder: Path) -> None:
    second = make_key(folder / "second.key", "Ada", None)
    with (folder / "signers").open("a") as file:
        file.write(f"{second}\n")
    assert check(folder, signed(folder, "ada", "second")) == (["Ada"], 0)


def test_signatures_may_be_in_several_files(folder: Path) -> None:
    one = signed(folder, "ada").rename(folder / "one.sig")
    two = signed(folder, "bob").rename(folder / "two.sig")
    assert check(folder, one, two) == (["Ada", "Bob"], 0)


@pytest.mark.parametrize("place", [0, 7, -1])
def test_a_changed_byte_fails(place: int, folder: Path) -> None:
    signatures = signed(folder, "ada")
    data = bytearray((folder / "a.sketch").read_bytes())
    data[place] ^= 1
    (folder / "a.sketch").write_bytes(data)
    with pytest.raises(
        FileError, match=r"the signature of Ada in .* is not of .*: the file or the signature was changed"
    ):
        verify(folder / "a.sketch", [signatures], folder / "signers")


@pytest.mark.parametrize("data", [b"header and sum", b"header and sums ", b""])
def test_a_truncated_or_longer_file_fails(data: bytes, folder: Path) -> None:
    signatures = signed(folder, "bob")
    (folder / "a.sketch").write_bytes(data)
    with pytest.raises(FileError, match="is not of"):
        check(folder, signatures)


def test_a_swapped_file_fails_and_is_not_signed_beside_the_old_one(folder: Path) -> None:
    place = signed(folder, "ada")
    (folder / "a.sketch").write_bytes(b"another release")
    with pytest.raises(FileError, match="is not of"):
        check(folder, place)
    with pytest.raises(FileError, match="holds signatures of another file, or of this one before it changed"):
        signed(folder, "bob")


def test_one_wrong_signature_by_a_trusted_key_fails_all(folder: Path) -> None:
    good = signed(folder, "bob").rename(folder / "good.sig")
    facts = json.loads(signed(folder, "ada").read_text())
    facts["signatures"][0]["date"] = "2020-01-01"  # the date is signed, too
    (folder / "a.sig").write_text(json.dumps(facts))
    with pytest.raises(FileError, match="the signature of Ada"):
        check(folder, good, folder / "a.sig")


def test_a_signature_under_the_name_of_another_key_fails(folder: Path) -> None:
    """Eve puts Ada's public key beside her own signature."""
    ada = json.loads(signed(folder, "ada").read_text())["signatures"][0]
    (folder / "a.sig").unlink()
    eve = json.loads(signed(folder, "eve").read_text())
    eve["signatures"][0]["key"] = ada["key"]
    (folder / "a.sig").write_text(json.dumps(eve))
    with pytest.raises(FileError, match="the signature of Ada"):
        check(folder, folder / "a.sig")


def test_a_wrong_signature_by_an_unknown_key_does_not_count(folder: Path) -> None:
    facts = json.loads(signed(folder, "ada", "eve").read_text())
    facts["signatures"][1]["date"] = "2020-01-01"
    (folder / "a.sig").write_text(json.dumps(facts))
    assert check(folder, folder / "a.sig") == (["Ada"], 0)


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "another kind": lambda facts: facts.update(kind="model"),
    "another format": lambda facts: facts.update(format=2),
    "no list": lambda facts: facts.update(signatures={}),
    "too many": lambda facts: facts.update(signatures=facts["signatures"] * 1001),
    "a short digest": lambda facts: facts.update(sha256="00"),
    "a digest of numbers": lambda facts: facts.update(sha256=5),
    "a short key": lambda facts: facts["signatures"][0].update(key="AAAA"),
    "a key of another form": lambda facts: facts["signatures"][0].update(key=facts["signatures"][0]["key"] + "\n"),
    "a long signature": lambda facts: facts["signatures"][0].update(signature="A" * 96),
    "no date": lambda facts: facts["signatures"][0].pop("date"),
    "a wrong date": lambda facts: facts["signatures"][0].update(date="soon"),
    "a signature that is text": lambda facts: facts.update(signatures=["x"]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_signature_files_are_refused(name: str, folder: Path) -> None:
    place = signed(folder, "ada")
    facts = json.loads(place.read_text())
    DAMAGE[name](facts)
    place.write_text(json.dumps(facts))
    with pytest.raises(FileError, match="is damaged or not a signature file"):
        check(folder, place)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"[" * 100_000, b"\xff", b'{"kind": "signatures"}'])
def test_anything_else_is_not_a_signature_file(data: bytes, folder: Path) -> None:
    (folder / "a.sig").write_bytes(data)
    with pytest.raises(FileError, match="is damaged or not a signature file"):
        check(folder, folder / "a.sig")


def test_large_and_missing_files_are_refused(folder: Path) -> None:
    (folder / "a.sig").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(FileError, match=r"a\.sig is too large"):
        check(folder, folder / "a.sig")
    with pytest.raises(FileError, match=r"none\.sig: cannot be read: No such file or directory"):
        check(folder, folder / "none.sig")
    with pytest.raises(FileError, match="cannot be read"):
        verify(folder / "none", [], folder / "signers")


def test_lists_of_signers_are_checked(folder: Path) -> None:
    line = (folder / "signers").read_text().splitlines()[2]
    wrong = {
        "line 1 has no public key": "Ada\n",
        "line 2 has no name": f"# a\n{line.split()[0]}\n",
        "line 1 has no name": f"{line.split()[0]} A\u202eda\n",
        "line 2 lists a key again": f"{line}\n{line.split()[0]} Bob\n",
        "lists no signers": "# nobody\n",
    }
    for fact, text in wrong.items():
        (folder / "signers").write_text(text)
        with pytest.raises(FileError, match=fact):
            read_signers(folder / "signers")
    (folder / "signers").write_bytes(b"\xff\xff")
    with pytest.raises(FileError, match="is not a list of signers"):
        read_signers(folder / "signers")


def test_keys_are_secret_and_may_have_a_passphrase(folder: Path) -> None:
    key = folder / "ada.key"
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    assert not needs_passphrase(key)
    make_key(folder / "locked.key", "Ada", "open sesame")
    assert needs_passphrase(folder / "locked.key")
    load_key(folder / "locked.key", "open sesame")
    refusals = {
        "does not open with this passphrase": (folder / "locked.key", "sesame"),
        "needs a passphrase": (folder / "locked.key", None),
        "has no passphrase": (key, "sesame"),
    }
    for fact, (path, passphrase) in refusals.items():
        with pytest.raises(FileError, match=fact):
            load_key(path, passphrase)
    with pytest.raises(FileError, match="an empty passphrase protects nothing"):
        make_key(folder / "empty.key", "Ada", "")
    with pytest.raises(FileError, match="a signer's name must have 1 to 200 printable characters"):
        make_key(folder / "nameless.key", " ", None)
    with pytest.raises(FileError, match="exists already"):
        make_key(key, "Ada", None)


def test_keys_that_others_read_or_of_another_kind_are_refused(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    (folder / "ada.key").chmod(0o640)
    with pytest.raises(FileError, match="can be read by others"):
        load_key(folder / "ada.key")
    other = X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for data, fact in ((other, "is not an Ed25519 key"), (b"secret", "is not a private key")):
        (folder / "ada.key").write_bytes(data)
        (folder / "ada.key").chmod(0o600)
        with pytest.raises(FileError, match=fact):
            load_key(folder / "ada.key")
