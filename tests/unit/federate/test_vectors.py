"""The test vectors of docs/formats/secure-sum.md; `python tests/unit/federate/test_vectors.py` writes them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from dpsketch.federate.roster import Member, Party, Roster  # noqa: E402
from dpsketch.federate.sum_messages import AGREE, JOIN, MASKED, SHARES, UNMASK  # noqa: E402
from dpsketch.privacy.noise_shares import Consortium  # noqa: E402
from secure_sums import MEANING, SESSION, TERMS, Run  # noqa: E402

PAGE = ROOT / "docs" / "formats" / "secure-sum-vectors.json"


def stream(name: str) -> Callable[[int], bytes]:
    """Bytes that stand for randomness: SHA-256 of name and counter, one block after the other."""
    state = {"block": 0}

    def draw(count: int) -> bytes:
        drawn = b""
        while len(drawn) < count:
            drawn += hashlib.sha256(f"{name} {state['block']}".encode()).digest()
            state["block"] += 1
        return drawn[:count]

    return draw


def vectors() -> dict[str, Any]:
    """One stage of four holders of whom one drops out after its shares."""
    names = ["h1", "h2", "h3", "h4"]
    keys = {name: Ed25519PrivateKey.from_private_bytes(stream(f"key {name}")(32)) for name in ("hub", *names)}
    roster = Roster.of(
        Member(name, "coordinator" if name == "hub" else "holder", key.public_key().public_bytes_raw())
        for name, key in keys.items()
    )
    run = Run(Consortium(4, 3, 1, 3), shape=((3, 8), (2, 4)), draw=stream("secrets"))
    run.people = {name: Party(name, key, roster) for name, key in keys.items()}
    run.__dict__["hub"] = type(run.hub)(run.setting())
    secrets = {}
    for name in names:
        run.holders[name] = type(run.holders[name])(run.setting(), name, run.holders[name].secrets, [f"id {name}"])
        own = run.holders[name].secrets
        secrets[name] = {"mask_key": own.mask_key.hex(), "share_key": own.share_key.hex(), "seed": own.seed.hex()}
    values = {name: [[place, 2**64 - 1, 2**63], [place, 2**32 - 1]] for place, name in enumerate(names[:3], 1)}
    collections = {JOIN: run.join(), SHARES: run.share()}
    run.mask({name: [np.array(part, np.uint64) for part in parts] for name, parts in values.items()})
    collections[MASKED] = run.survive(names[:3])
    totals = run.unmask(names[:3])
    collections[AGREE] = run.hub.take_agreements(run.signed(AGREE, names[:3]))
    return {
        "session": SESSION.hex(),
        "terms digest": TERMS.hex(),
        "meaning digest": MEANING.hex(),
        "consortium": run.consortium.to_dict(),
        "roster": roster.text(),
        "roster digest": roster.digest.hex(),
        "private keys": {name: key.private_bytes_raw().hex() for name, key in keys.items()},
        "secrets": secrets,
        "vectors": values,
        "start digest": run.setting().start().hex(),
        "collections": {name: body.hex() for name, body in collections.items()},
        "transcripts": [
            run.holders["h1"].after_joins.hex(),
            run.holders["h1"].after_shares.hex(),
            run.holders["h1"].after_survivors.hex(),
        ],
        "masked": {name: [part.tolist() for part in parts] for name, parts in run.vectors.items()},
        "unmask": {name: run.sent[UNMASK][name].hex() for name in names[:3]},
        "totals": [part.tolist() for part in totals],
    }


def test_the_protocol_still_has_these_bytes() -> None:
    found = vectors()
    assert found["totals"] == [[6, 2**64 - 3, 2**63], [6, 2**32 - 3]]
    assert json.loads(PAGE.read_text()) == json.loads(json.dumps(found))


if __name__ == "__main__":
    PAGE.write_text(json.dumps(vectors(), indent=1) + "\n")
