"""Boxes and the mailbox: who may store and fetch what, replays, restarts, sizes."""

from __future__ import annotations

import http.client
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dpsketch.errors import FederationError
from dpsketch.federate.boxes import MOST_BYTES, Boxes
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.mail_client import MailClient
from dpsketch.federate.mailbox import Mailbox
from dpsketch.federate.roster import EVERYONE, Party
from parties import parties

SESSION = bytes(range(32))


@pytest.fixture
def people() -> dict[str, Party]:
    return parties(hub="coordinator", north="holder", south="holder")


@pytest.fixture
def boxes(tmp_path: Path, people: dict[str, Party]) -> Boxes:
    return Boxes(tmp_path / "boxes", people["hub"].roster, SESSION)


def message(party: Party, receiver: str = "hub", sequence: int = 0, body: bytes = b"sum") -> bytes:
    return Envelope(SESSION, party.name, receiver, "masked", 0, sequence, body).sign(party)


def test_messages_come_in_order_once(boxes: Boxes, people: dict[str, Party]) -> None:
    sent = [message(people["north"]), message(people["south"]), message(people["north"], sequence=1)]
    assert [boxes.post(data) for data in sent] == [True] * 3
    assert [boxes.post(data) for data in sent] == [False] * 3
    for _ in range(2):
        got, after = [], 0
        while (found := boxes.fetch("hub", after))[0] is not None:
            data, after = found
            got.append(data)
        assert got == sent
        boxes = Boxes(boxes.folder, boxes.roster, SESSION)  # as after a crash


def test_a_second_message_under_the_same_number_is_refused(boxes: Boxes, people: dict[str, Party]) -> None:
    boxes.post(message(people["north"]))
    with pytest.raises(FederationError, match="two different messages of round masked"):
        boxes.post(message(people["north"], body=b"another"))
    assert boxes.fetch("hub")[0] == message(people["north"])


def test_a_message_of_another_session_is_refused(boxes: Boxes, people: dict[str, Party]) -> None:
    earlier = replace(Envelope.verify(message(people["north"]), boxes.roster), session=bytes(32))
    with pytest.raises(FederationError, match="another session"):
        boxes.post(earlier.sign(people["north"]))


def test_a_forgotten_message_stays_forgotten(boxes: Boxes, people: dict[str, Party]) -> None:
    data, later = message(people["north"]), message(people["north"], sequence=1)
    envelope = Envelope.verify(data, boxes.roster)
    boxes.post(data)
    boxes.post(later)
    boxes.forget(envelope)
    assert boxes.has(envelope)
    assert boxes.get(envelope) is None
    assert not boxes.post(data)
    assert boxes.fetch("hub") == (later, 2)


def test_what_a_killed_process_left_is_listed(boxes: Boxes, people: dict[str, Party]) -> None:
    boxes.post(message(people["north"]))
    boxes.post(message(people["south"]))
    log = boxes.folder / "hub" / "log"
    log.write_bytes(log.read_bytes()[:70])
    (boxes.folder / "hub" / "north.partial").write_bytes(b"half")
    again = Boxes(boxes.folder, boxes.roster, SESSION)
    assert again.fetch("hub", 1) == (message(people["south"]), 2)
    assert again.fetch("hub", 2) == (None, 2)


def test_one_sender_cannot_fill_the_disk(tmp_path: Path, people: dict[str, Party]) -> None:
    boxes = Boxes(tmp_path / "small", people["hub"].roster, SESSION, room=1000)
    boxes.post(message(people["north"], body=bytes(600)))
    with pytest.raises(FederationError, match="no room for north"):
        boxes.post(message(people["north"], sequence=1, body=bytes(600)))
    boxes.post(message(people["south"], body=bytes(600)))


def test_parties_write_to_each_other_over_http(boxes: Boxes, people: dict[str, Party]) -> None:
    with Mailbox(boxes) as mailbox:
        north, south = (MailClient(people[name], mailbox.address, 5) for name in ("north", "south"))
        big = message(people["north"], "south", body=bytes(8 << 20))
        north.post(big)
        north.post(big)
        assert south.fetch("south") == (big, 1)
        assert south.fetch("south", 1) == (None, 1)
        assert south.received == len(big)
        south.post(message(people["south"], EVERYONE))
        assert north.fetch(EVERYONE) == (message(people["south"], EVERYONE), 1)
        for client in (north, south):
            client.close()


def test_a_fetch_waits_for_a_message(boxes: Boxes, people: dict[str, Party]) -> None:
    with Mailbox(boxes) as mailbox:
        north = MailClient(people["north"], mailbox.address, 5)
        got: list[bytes | None] = []
        waiting = threading.Thread(target=lambda: got.append(north.fetch("north", 0, 20)[0]))
        waiting.start()
        boxes.post(message(people["hub"], "north"))
        waiting.join(10)
        assert got == [message(people["hub"], "north")]


def test_a_client_goes_on_with_a_mailbox_that_was_started_again(boxes: Boxes, people: dict[str, Party]) -> None:
    with Mailbox(boxes) as mailbox:
        north = MailClient(people["north"], mailbox.address, 5)
        assert north.fetch("north") == (None, 0)
        port = urlsplit(mailbox.address).port or 0
    north.close()
    boxes.post(message(people["hub"], "north"))
    with Mailbox(boxes, port=port):
        assert north.fetch("north")[0] is not None


def test_only_members_of_the_roster_are_served(boxes: Boxes, people: dict[str, Party]) -> None:
    stranger = replace(parties(north="holder")["north"], roster=boxes.roster)
    with Mailbox(boxes) as mailbox:
        eve = MailClient(stranger, mailbox.address, 1)
        with pytest.raises(FederationError, match="signature of that member"):
            eve.post(message(stranger))
        with pytest.raises(FederationError, match="signature of that member"):
            eve.fetch("north")
        with pytest.raises(FederationError, match="north may not read this box"):
            MailClient(people["north"], mailbox.address, 1).fetch("south")
    assert boxes.fetch("hub")[0] is None


def test_a_request_overheard_before_is_refused_by_a_new_server(boxes: Boxes, people: dict[str, Party]) -> None:
    heard: list[bytes] = []

    class Overheard(MailClient):
        def _call(self, method: str, path: str, data: bytes) -> tuple[int, bytes, int]:
            heard.append(data)
            return super()._call(method, path, data)

    with Mailbox(boxes) as mailbox:
        Overheard(people["north"], mailbox.address, 1).fetch("north")
    with Mailbox(boxes) as mailbox:
        assert MailClient(people["south"], mailbox.address, 1)._call("POST", "/fetch", heard[-1])[0] == 401


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [("/post", MOST_BYTES + 1, 413), ("/post", -1, 413), ("/elsewhere", 0, 404), ("/post", 3, 403)],
)
def test_what_is_not_a_call_is_refused(boxes: Boxes, path: str, length: int, status: int) -> None:
    with Mailbox(boxes) as mailbox:
        parts = urlsplit(mailbox.address)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", str(length))
        connection.endheaders(b"abc" if length == 3 else None)
        assert connection.getresponse().status == status
        connection.close()


def test_an_address_that_is_none_is_refused(people: dict[str, Party]) -> None:
    for address in ("ftp://here", "nowhere", "http://a:b@c", "http://host:99999999"):
        with pytest.raises(FederationError, match="not the address of a mailbox"):
            MailClient(people["north"], address)
    with pytest.raises(FederationError, match="cannot be reached"):
        MailClient(people["north"], "http://127.0.0.1:9", 0).fetch("north")


def test_a_mailbox_with_a_certificate(tmp_path: Path, boxes: Boxes, people: dict[str, Party]) -> None:
    certificate, key = own_certificate(tmp_path)
    with Mailbox(boxes, certificate=certificate, key=key) as mailbox:
        assert mailbox.address.startswith("https://")
        north = MailClient(people["north"], mailbox.address, 5, certificate)
        north.post(message(people["north"]))
        assert north.fetch("north") == (None, 0)
        north.close()
        with pytest.raises(FederationError, match="is not trusted"):
            MailClient(people["north"], mailbox.address, 5).fetch("north")
    assert boxes.fetch("hub")[0] is not None


def own_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hub")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    (folder / "hub.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "hub.key").write_bytes(text)
    return folder / "hub.pem", folder / "hub.key"
