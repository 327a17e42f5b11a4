"""What a raw sketch remembers of its inputs, so that nothing is counted twice. A release never contains any of it."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Inputs:
    """Keyed hashes of the contents and places of files that were counted, and names of tables and queries. Secret, like
    the sums.

    The key is random, so that a hash of a guessed file cannot be compared without the raw sketch.
    """

    hashes: frozenset[str] = frozenset()
    tables: tuple[str, ...] = ()
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def hash(self, content: Iterable[bytes]) -> str:
        digest = hashlib.blake2b(key=self.key, digest_size=32)
        for block in content:
            digest.update(block)
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key.hex(), "hashes": sorted(self.hashes), "tables": list(self.tables)}

    @classmethod
    def from_dict(cls, facts: Any) -> Inputs:
        texts = [*facts["hashes"], facts["key"]]
        if not all(isinstance(text, str) and _HASH.fullmatch(text) for text in texts):
            raise ValueError("inputs")
        if not all(isinstance(each, str) for each in facts["tables"]):
            raise ValueError("inputs")
        return cls(frozenset(facts["hashes"]), tuple(facts["tables"]), bytes.fromhex(facts["key"]))
