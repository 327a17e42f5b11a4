"""Rosters: who is in them, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpsketch.errors import FederationError
from dpsketch.federate.roster import Member, Party, Roster, check_secret_folder
from dpsketch.files.signatures import load_key, make_key
from parties import parties


def test_a_roster_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    roster = parties(hub="coordinator", north="holder", south="holder")["hub"].roster
    (tmp_path / "roster.toml").write_text(roster.text())
    assert Roster.load(tmp_path / "roster.toml") == roster
    assert roster.with_role("holder") == ("north", "south")
    assert roster.the("coordinator") == "hub"
    with pytest.raises(FederationError, match="2 members in the role holder, not one"):
        roster.the("holder")


def test_a_digest_follows_every_key_and_role() -> None:
    one, other = (parties(hub="coordinator", north="holder")["hub"].roster for _ in range(2))
    swapped = Roster.of(Member(m.name, "holder", m.key) for m in one.members.values())
    assert len({one.digest, other.digest, swapped.digest}) == 3


def test_a_party_is_found_by_its_key_file(tmp_path: Path) -> None:
    make_key(tmp_path / "north.key", "north", None)
    public = load_key(tmp_path / "north.key").public_key().public_bytes_raw()
    roster = Roster.of([Member("north", "holder", public)])
    assert Party.load(tmp_path / "north.key", roster).name == "north"
    make_key(tmp_path / "eve.key", "eve", None)
    with pytest.raises(FederationError, match=r"does not list the key of .*eve\.key"):
        Party.load(tmp_path / "eve.key", roster)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda text: text.replace("north", "No rth", 1), "not valid TOML"),
        (lambda text: text.replace("north", "everyone", 1), "name or role"),
        (lambda text: text.replace('"holder"', '"Holder!"', 1), "name or role"),
        (lambda text: text.replace("=", "x", 5), "not valid TOML"),
        (lambda text: re.sub(r'key = "...', 'key = "', text, count=1), "no public key"),
        (lambda text: re.sub(r"(?s)(key = \".*?\").*(north.*?)key = \".*?\"", r"\1 }\n\2\1", text), "of another"),
        (lambda _: "[members]\n", "1 to 255 members"),
        (lambda text: text + "[more]\n", r"one table, \[members\]"),
        (lambda text: text + "west = 3\n", "no public key"),
    ],
)
def test_what_is_not_a_roster_is_refused(tmp_path: Path, change: object, fact: str) -> None:
    text = parties(hub="coordinator", north="holder")["hub"].roster.text()
    (tmp_path / "roster.toml").write_text(change(text))  # type: ignore[operator]
    with pytest.raises(FederationError, match=fact):
        Roster.load(tmp_path / "roster.toml")


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    check_secret_folder(tmp_path / "own")
    check_secret_folder(tmp_path / "own")
    (tmp_path / "own").chmod(0o750)
    with pytest.raises(FederationError, match="can be read by others"):
        check_secret_folder(tmp_path / "own")
