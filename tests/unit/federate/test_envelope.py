"""Signed envelopes: any changed byte is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpsketch.errors import FederationError
from dpsketch.federate.envelope import Envelope
from parties import parties

SESSION = bytes(range(32))
PARTIES = parties(hub="coordinator", north="holder", south="holder")
ROSTER = PARTIES["hub"].roster
SENT = Envelope(SESSION, "north", "hub", "masked", 1, 2, b"body")


def test_a_message_is_read_as_it_was_signed() -> None:
    data = SENT.sign(PARTIES["north"])
    assert data == SENT.sign(PARTIES["north"])
    assert Envelope.verify(data, ROSTER) == SENT


def test_every_changed_byte_is_refused() -> None:
    data = SENT.sign(PARTIES["north"])
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(FederationError):
            Envelope.verify(bytes(changed), ROSTER)
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(FederationError):
            Envelope.verify(wrong, ROSTER)


def test_another_member_or_a_stranger_cannot_sign() -> None:
    stranger = parties(north="holder")["north"]
    with pytest.raises(FederationError, match="signature of that member"):
        Envelope.verify(SENT.sign(stranger), ROSTER)
    as_north = replace(PARTIES["south"], name="north")
    with pytest.raises(FederationError, match="signature of that member"):
        Envelope.verify(SENT.sign(as_north), ROSTER)
    with pytest.raises(FederationError, match="to nobody"):
        Envelope.verify(replace(SENT, receiver="west").sign(PARTIES["north"]), ROSTER)


def test_a_number_follows_all_but_the_body() -> None:
    others = [
        replace(SENT, session=bytes(32)),
        replace(SENT, sender="south"),
        replace(SENT, receiver="south"),
        replace(SENT, round="unmask"),
        replace(SENT, stage=2),
        replace(SENT, sequence=1),
    ]
    assert replace(SENT, body=b"other").number == SENT.number
    assert len({SENT.number, *(other.number for other in others)}) == 7
