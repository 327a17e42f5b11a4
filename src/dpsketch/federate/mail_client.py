"""A party's calls to a mailbox: post and fetch."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from dpsketch.errors import FederationError
from dpsketch.federate.boxes import MOST_BYTES
from dpsketch.federate.canonical import Writer
from dpsketch.federate.envelope import SESSION, Envelope
from dpsketch.federate.mailbox import CHALLENGE, FETCH, LONGEST_WAIT, NEXT, REQUEST
from dpsketch.federate.roster import Party

_SILENCE = LONGEST_WAIT + 35  # seconds without an answer after which a call is tried again
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds between tries
_MOST_TEXT = 1000


class MailClient:
    """Calls to the mailbox at an address, tried again for `patience` seconds while it cannot be reached.

    `certificates`: a file with the certificates that an https address is checked against, instead of the system's.
    """

    def __init__(
        self,
        party: Party,
        address: str,
        patience: float = 600,
        certificates: Path | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        parts = urlsplit(address)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/") or parts.username:
            raise FederationError("this is not the address of a mailbox", "pass http(s)://HOST:PORT")
        self._party, self._patience, self._challenge, self._tell = party, patience, b"", tell
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            try:
                context = ssl.create_default_context(cafile=certificates)
            except (OSError, ssl.SSLError):
                raise FederationError(f"{certificates} has no certificates", "name a PEM file") from None
            self._connection = http.client.HTTPSConnection(host, port, timeout=_SILENCE, context=context)
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=_SILENCE)
        self.address, self.sent, self.received = address, 0, 0  # bytes of messages

    def post(self, data: bytes) -> None:
        """Store a signed envelope in its receiver's box. Posting it again changes nothing."""
        self._call("POST", "/post", data)
        self.sent += len(data)

    def fetch(self, box: str, after: int = 0, wait: float = 0) -> tuple[bytes | None, int]:
        """The next message of the own box, or of `EVERYONE`, and the number to go on after; None if there is none
        after `wait` seconds. The message is not verified yet.
        """
        for _ in range(2):
            if not self._challenge:
                self._challenge = self._call("GET", "/challenge", b"")[1]
            if len(self._challenge) != CHALLENGE:
                raise FederationError(f"{self.address} is not a mailbox", "check the address")
            body = Writer(REQUEST).text(box).number(after).number(min(int(wait), LONGEST_WAIT)).raw(self._challenge)
            name = self._party.name
            request = Envelope(bytes(SESSION), name, name, FETCH, body=body.bytes())
            status, message, reached = self._call("POST", "/fetch", request.sign(self._party))
            if status != http.client.UNAUTHORIZED:
                break
            self._challenge = b""  # the mailbox was started again
        self.received += len(message)
        return (message if status == http.client.OK else None), max(after, reached)

    def close(self) -> None:
        self._connection.close()

    def _call(self, method: str, path: str, data: bytes) -> tuple[int, bytes, int]:
        end, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                self._connection.request(method, path, data or None)
                answer = self._connection.getresponse()
                body = answer.read(MOST_BYTES + 1)
                reached = int(answer.headers.get(NEXT, "0"))
                break
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._connection.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise FederationError(f"the certificate of {self.address} is not trusted", "pass --ca") from None
                if time.monotonic() + pause > end:
                    raise FederationError(f"{self.address} cannot be reached", "check address and network") from None
                if pause == _FIRST_PAUSE:
                    self._tell(f"{self.address} does not answer; trying again for {self._patience:g} seconds")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        if answer.status == http.client.FORBIDDEN:
            fact = body[:_MOST_TEXT].decode(errors="replace")
            raise FederationError(f"{self.address} refused: {fact}", "compare the rosters and the versions of dpsketch")
        if answer.status not in (http.client.OK, http.client.NO_CONTENT, http.client.UNAUTHORIZED):
            raise FederationError(f"{self.address} is not a mailbox of this version", "check the address")
        if len(body) > MOST_BYTES:
            raise FederationError(f"{self.address} sent a message that is too long", "check the address")
        return answer.status, body, reached
