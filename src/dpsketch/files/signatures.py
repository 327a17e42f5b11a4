"""Detached Ed25519 signatures of files: docs/formats/signature.md.

A signature covers the SHA-256 of every byte of a file and the date. Who a key belongs to is said by a list of signers
that the verifier trusts, never by the signature.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import stat
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpsketch.errors import FileError, visible
from dpsketch.files.outputs import written

FORMAT = 1
_DOMAIN = "dpsketch signature 1"  # so that no other text that a key signs passes for a signature of a file
_MOST_BYTES = 1 << 20  # of a signature file, a key or a list of signers
_MOST_SIGNATURES = 1000
_LONGEST_NAME = 200
_KEY, _SIGNATURE = 32, 64  # bytes


@dataclass(frozen=True)
class Signature:
    """One signature: the public key, the date that the signer stated, and the signature of both and of the digest."""

    key: bytes
    date: str
    signature: bytes

    def to_dict(self) -> dict[str, str]:
        return {"key": _text(self.key), "date": self.date, "signature": _text(self.signature)}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Signature:
        made = date.fromisoformat(facts["date"]).isoformat()
        return cls(_bytes(facts["key"], _KEY), made, _bytes(facts["signature"], _SIGNATURE))

    def is_of(self, digest: str) -> bool:
        """Whether its key signed a file with this digest."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.signature, _message(digest, self.date))
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class Verified:
    """The signers, by their names in the trusted list, whose signatures of a file are valid, with their dates; the
    number of valid signatures by other keys does not count.
    """

    digest: str
    signers: Mapping[str, str]
    unknown: int


def file_digest(path: str | Path) -> str:
    """SHA-256 of all bytes of a file."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


def make_key(path: Path, name: str, passphrase: str | None, force: bool = False) -> str:
    """Write a new private key, readable by its owner only, and return its line for a list of signers."""
    if not name.isprintable() or not name.strip() or len(name) > _LONGEST_NAME:
        raise FileError(f"a signer's name must have 1 to {_LONGEST_NAME} printable characters", "pass --name NAME")
    secret: Any = serialization.NoEncryption()
    if passphrase is not None:
        if not passphrase:
            raise FileError("an empty passphrase protects nothing", "leave out --passphrase, or type one")
        secret = serialization.BestAvailableEncryption(passphrase.encode())
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    with written(path, force, secret=True) as file:
        file.write(text)
    return f"{_text(private.public_key().public_bytes_raw())} {name.strip()}"


def needs_passphrase(path: Path) -> bool:
    """Whether a key file is encrypted."""
    return b"ENCRYPTED PRIVATE KEY" in _content(path)


def load_key(path: Path, passphrase: str | None = None) -> Ed25519PrivateKey:
    """Read a private key. Refuses one that others may read."""
    text = _content(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise FileError(f"{path} can be read by others: it is no longer secret", f"chmod 600 {path}, or make a new key")
    try:
        key = serialization.load_pem_private_key(text, None if passphrase is None else passphrase.encode())
    except TypeError:
        fact = "needs a passphrase" if passphrase is None else "has no passphrase"
        raise FileError(f"{path} {fact}", "type it when asked, or set DPSKETCH_PASSPHRASE") from None
    except (ValueError, UnsupportedAlgorithm):
        wrong = passphrase is not None and needs_passphrase(path)
        fact = "does not open with this passphrase" if wrong else "is not a private key"
        raise FileError(f"{path} {fact}", "dpsketch keygen writes keys") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise FileError(f"{path} is not an Ed25519 key", "dpsketch keygen writes keys")
    return key


def sign(path: Path, key: Ed25519PrivateKey, signatures: Path) -> str:
    """Sign a file and add the signature to those in a signature file. Returns the file's digest."""
    digest = file_digest(path)
    known: list[Signature] = []
    if signatures.exists():
        of, known = read_signatures(signatures)
        if of != digest:
            raise FileError(
                f"{signatures} holds signatures of another file, or of this one before it changed",
                "check the file; then remove the old signatures, or pass --signatures with another name",
            )
    public, today = key.public_key().public_bytes_raw(), date.today().isoformat()
    made = Signature(public, today, key.sign(_message(digest, today)))
    known = [each for each in known if each.key != public] + [made]
    facts = {"format": FORMAT, "kind": "signatures", "sha256": digest, "signatures": [s.to_dict() for s in known]}
    with written(signatures, force=True) as file:
        file.write((json.dumps(facts, indent=2) + "\n").encode())
    return digest


def read_signatures(path: Path) -> tuple[str, list[Signature]]:
    """The digest that a signature file names, and its signatures, not verified. Anything else is a FileError."""
    try:
        facts = json.loads(_content(path))
        if facts["kind"] != "signatures" or facts["format"] != FORMAT:
            raise ValueError("kind")
        entries, digest = facts["signatures"], facts["sha256"]
        if not isinstance(entries, list) or len(entries) > _MOST_SIGNATURES:
            raise ValueError("signatures")
        if not isinstance(digest, str) or len(bytes.fromhex(digest)) != hashlib.sha256().digest_size:
            raise ValueError("sha256")
        return digest.lower(), [Signature.from_dict(each) for each in entries]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise FileError(f"{path} is damaged or not a signature file", "ask its signers for a new one") from None


def read_signers(path: Path) -> dict[bytes, str]:
    """Names by public key from a list of signers: a line with a key and a name for each; # begins a comment."""
    signers: dict[bytes, str] = {}
    hint = "write a line for each: the key and the name that dpsketch keygen printed"
    try:
        lines = _content(path).decode().splitlines()
    except UnicodeDecodeError:
        raise FileError(f"{path} is not a list of signers", hint) from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, _, name = line.strip().partition(" ")
        try:
            key = _bytes(word, _KEY)
        except ValueError:
            raise FileError(f"{path}: line {number} has no public key", hint) from None
        if not name.strip() or visible(name) != name or len(name) > _LONGEST_NAME:
            raise FileError(f"{path}: line {number} has no name", hint)
        if key in signers:
            raise FileError(f"{path}: line {number} lists a key again", "one key is one signer")
        signers[key] = name.strip()
    if not signers:
        raise FileError(f"{path} lists no signers", hint)
    return signers


def verify(path: Path, signatures: Sequence[Path], signers: Path) -> Verified:
    """Check the signatures of a file against a trusted list of signers.

    A signer counts once, however many signatures or keys they have. One wrong signature by a listed key fails all.
    """
    trusted, digest = read_signers(signers), file_digest(path)
    found: dict[str, str] = {}
    unknown: set[bytes] = set()
    for place in signatures:
        _, made = read_signatures(place)
        for each in made:
            name = trusted.get(each.key)
            if not each.is_of(digest):
                if name is not None:
                    raise FileError(
                        f"the signature of {name} in {place} is not of {path}: the file or the signature was changed",
                        "get both again from their signers",
                    )
            elif name is None:
                unknown.add(each.key)
            else:
                found[name] = each.date
    return Verified(digest, found, len(unknown))


def _message(digest: str, made: str) -> bytes:
    return f"{_DOMAIN}\n{digest}\n{made}\n".encode()


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(content) > _MOST_BYTES:
        raise FileError(f"{path} is too large", f"such files have at most {_MOST_BYTES:,} bytes")
    return content


def _unreadable(path: str | Path, error: OSError) -> FileError:
    return FileError(f"{path}: cannot be read: {error.strerror or 'input/output error'}", "check the path")


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: object, length: int) -> bytes:
    """Base64 of exactly this many bytes, in its one canonical form."""
    if not isinstance(text, str):
        raise ValueError("base64")
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("base64") from None
    if len(data) != length or _text(data) != text:
        raise ValueError("base64")
    return data
