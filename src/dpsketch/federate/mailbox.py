"""The mailbox: boxes over HTTP, or HTTPS with a certificate. Parties make outgoing calls only, to one party's mailbox.

Three calls: `GET /challenge` returns 32 random bytes of this server; `POST /post` stores a signed envelope; `POST
/fetch`, itself a signed envelope that holds the challenge, returns the next message of the sender's own box or of
everyone's, and waits for it if asked. Only members of the roster can store or fetch anything.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dpsketch.errors import FederationError
from dpsketch.federate.boxes import MOST_BYTES, Boxes
from dpsketch.federate.canonical import Reader
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.roster import EVERYONE

FETCH = "fetch"  # the round of a request
REQUEST = b"dpsketch fetch 1\n"
CHALLENGE = 32  # bytes
LONGEST_WAIT = 25  # seconds that an answer waits for a message
NEXT = "X-Next"  # the header with the number to go on after
_SILENCE = 60  # seconds after which a connection without traffic is closed
_SPARE = 16  # connections, besides three for each member


class Mailbox:
    """A server of boxes, in threads of its own. `address` is its URL."""

    def __init__(
        self,
        boxes: Boxes,
        host: str = "127.0.0.1",
        port: int = 0,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        try:
            self._server = _Server((host, port), boxes)
        except (OSError, OverflowError) as error:
            raise FederationError(f"{host}:{port} cannot be listened on: {_reason(error)}", "choose a port") from None
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                context.load_cert_chain(certificate, key)
            except (OSError, ssl.SSLError) as error:
                self._server.server_close()
                raise FederationError(
                    f"{certificate}: {_reason(error)}", "name a PEM certificate and its key"
                ) from None
            self._server.tls = context
        name = f"[{host}]" if ":" in host else host
        self.address = f"{scheme}://{name}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Mailbox:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], boxes: Boxes) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.boxes, self.challenge = boxes, secrets.token_bytes(CHALLENGE)
        self.tls: ssl.SSLContext | None = None
        self._free = threading.BoundedSemaphore(3 * len(boxes.roster.members) + _SPARE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(_SILENCE)
            if self.tls is not None:
                request = self.tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:
            self.shutdown_request(request)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: what strangers send is not worth a traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "dpsketch", ""
    server: _Server
    timeout = _SILENCE

    def do_GET(self) -> None:
        if self.path == "/challenge":
            self._answer(HTTPStatus.OK, self.server.challenge)
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if not 0 <= length <= MOST_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        data = self.rfile.read(length)
        try:
            if self.path == "/post":
                self.server.boxes.post(data)
                self._answer(HTTPStatus.OK)
            elif self.path == "/fetch":
                self._fetch(data)
            else:
                self._answer(HTTPStatus.NOT_FOUND)
        except FederationError as error:
            self._answer(HTTPStatus.FORBIDDEN, error.fact.encode())

    def _fetch(self, data: bytes) -> None:
        request = Envelope.verify(data, self.server.boxes.roster)
        box, after, wait, challenge = fetch_request(request)
        if challenge != self.server.challenge:
            self._answer(HTTPStatus.UNAUTHORIZED)
            return
        if box not in (request.sender, EVERYONE):
            raise FederationError(f"{request.sender} may not read this box", "fetch your own")
        message, reached = self.server.boxes.wait(box, after, min(wait, LONGEST_WAIT))
        self._answer(HTTPStatus.OK if message is not None else HTTPStatus.NO_CONTENT, message or b"", reached)

    def _answer(self, status: HTTPStatus, body: bytes = b"", reached: int | None = None) -> None:
        self.send_response(status)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        if reached is not None:
            self.send_header(NEXT, str(reached))
        self.end_headers()
        if status != HTTPStatus.NO_CONTENT:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log of calls."""


def fetch_request(request: Envelope) -> tuple[str, int, int, bytes]:
    """What a signed request asks for: box, number to go on after, seconds to wait, and the challenge it answers."""
    reader = Reader(request.body, REQUEST, "a request")
    if request.round != FETCH:
        raise reader.damaged()
    box, after, wait, challenge = reader.text(), reader.number(), reader.number(), reader.raw(CHALLENGE)
    reader.end()
    return box, after, wait, challenge


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "not possible"
