"""Parties with keys, and the rosters that list them."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpsketch.federate.roster import Member, Party, Roster


def parties(**roles: str) -> dict[str, Party]:
    """One party for each name, in its role, with one roster. Underscores become hyphens."""
    names = {name.replace("_", "-"): role for name, role in roles.items()}
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    roster = Roster.of(Member(name, role, keys[name].public_key().public_bytes_raw()) for name, role in names.items())
    return {name: Party(name, keys[name], roster) for name in names}
