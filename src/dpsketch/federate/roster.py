"""Rosters: who takes part, in which role, with which long-term key. Every party has the same file, and pins it."""

from __future__ import annotations

import hashlib
import re
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpsketch.errors import FederationError
from dpsketch.federate.canonical import Writer
from dpsketch.files.signatures import load_key
from dpsketch.files.toml_file import read_toml

EVERYONE = "everyone"  # a receiver: all members
MOST_MEMBERS = 255
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_KEY = 32  # bytes
_HINT = "write it with dpsketch federate roster"


@dataclass(frozen=True)
class Member:
    """A party: its name, its role and its public Ed25519 key."""

    name: str
    role: str
    key: bytes

    def line(self) -> str:
        """The member's line in a roster file."""
        return f'{self.name} = {{ role = "{self.role}", key = "{b64encode(self.key).decode()}" }}'


@dataclass(frozen=True)
class Roster:
    """The members by name. `digest` identifies a roster; people compare it by telephone."""

    members: Mapping[str, Member]

    @classmethod
    def of(cls, members: Iterable[Member], place: str = "the roster") -> Roster:
        """Sorted by name. Refuses names or keys that occur twice, and keys that are none."""
        found: dict[str, Member] = {}
        for member in sorted(members, key=lambda each: each.name):
            if not _NAME.fullmatch(member.name) or member.name == EVERYONE or not _NAME.fullmatch(member.role):
                fact = f"{place}: a member's name or role is not of 1 to 31 lower-case letters, digits and hyphens"
                raise FederationError(fact, "choose another name")
            if member.name in found or member.key in (other.key for other in found.values()):
                raise FederationError(f"{place}: member {member.name} has a name or key of another", "list each once")
            found[member.name] = member
        if not 1 <= len(found) <= MOST_MEMBERS:
            raise FederationError(f"{place} must have 1 to {MOST_MEMBERS} members", _HINT)
        return cls(found)

    @classmethod
    def load(cls, path: str | Path, whole: bool = True) -> Roster:
        """Read a roster file: a table [members] with a line for each; unless `whole`, lines of members alone, too."""
        facts = read_toml(Path(path), FederationError, "check the path", _HINT)
        if not whole and "members" not in facts:
            facts = {"members": facts}
        entries = facts.get("members")
        if set(facts) != {"members"} or not isinstance(entries, dict):
            raise FederationError(f"{path} must have one table, [members]", _HINT)
        members = []
        for name, entry in entries.items():
            try:
                if set(entry) != {"role", "key"} or not isinstance(entry["role"], str):
                    raise ValueError(name)
                key = b64decode(entry["key"], validate=True)
                if len(key) != _KEY or b64encode(key).decode() != entry["key"]:
                    raise ValueError(name)
                Ed25519PublicKey.from_public_bytes(key)
            except (TypeError, ValueError):
                raise FederationError(f"{path}: member {name} has no role or no public key", _HINT) from None
            members.append(Member(name, entry["role"], key))
        return cls.of(members, str(path))

    def text(self) -> str:
        """The roster as a file."""
        return "[members]\n" + "".join(f"{member.line()}\n" for member in self.members.values())

    @property
    def digest(self) -> bytes:
        """SHA-256 of all names, roles and keys."""
        writer = Writer(b"dpsketch roster 1\n")
        for member in self.members.values():
            writer.text(member.name).text(member.role).raw(member.key)
        return hashlib.sha256(writer.data).digest()

    def with_role(self, role: str) -> tuple[str, ...]:
        """The names of all members in a role, sorted."""
        return tuple(name for name, member in self.members.items() if member.role == role)

    def the(self, role: str) -> str:
        """The name of the one member in a role."""
        names = self.with_role(role)
        if len(names) != 1:
            raise FederationError(f"the roster has {len(names)} members in the role {role}, not one", _HINT)
        return names[0]

    def signed(self, name: str, data: bytes, signature: bytes) -> bool:
        """Whether this member's key made the signature."""
        member = self.members.get(name)
        if member is None:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(member.key).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class Party:
    """One member with its private key."""

    name: str
    key: Ed25519PrivateKey
    roster: Roster

    @classmethod
    def load(cls, key: str | Path, roster: Roster, passphrase: str | None = None) -> Party:
        """The member whose private key a file holds (`dpsketch federate keygen`)."""
        private = load_key(Path(key), passphrase)
        public = private.public_key().public_bytes_raw()
        for member in roster.members.values():
            if member.key == public:
                return cls(member.name, private, roster)
        raise FederationError(f"the roster does not list the key of {key}", "use the roster that everybody agreed on")


def check_secret_folder(folder: Path) -> None:
    """Make a folder that its owner alone may enter, or refuse one that others may."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        raise FederationError(f"{folder} can be read by others", f"chmod 700 {folder}, or name another folder")
