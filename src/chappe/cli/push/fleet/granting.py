"""Grants for a fleet: from the web, or on the word of the app's server; over few connections.

Threads with a connection each: one that is kept costs a fraction of what a client library that
serves loops takes for a request, and a fleet asks for as many as it has devices.
"""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import local
from urllib.parse import urlsplit

import msgspec

from chappe.cli.api import TIMEOUT_S, Proof
from chappe.device import Grant, decode_grant
from chappe.errors import ChappeError

CONNECTIONS_MAX = 8
_ANSWER_BYTES_MAX = 64 * 1024
_AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class NoGrant(ChappeError):
    """None was given; later one may be, if `temporary`."""

    def __init__(self, reason: str, *, temporary: bool) -> None:
        super().__init__(reason)
        self.temporary = temporary


class _Refusal(msgspec.Struct):
    reason: str = ""


class Granting:
    """Asks the node at a URL; a proof makes it the app's server."""

    def __init__(self, http: str, key: str, proof: Proof | None, tls: ssl.SSLContext) -> None:
        parts = urlsplit(http)
        self._address = parts.hostname or "", parts.port
        self._tls = tls if parts.scheme == "https" else None
        self._target = parts.path.rstrip("/") + (
            "/v1/push/devices" if proof is None else "/v1/push/tokens"
        )
        self._key = key
        self._proof = proof
        self._threads = ThreadPoolExecutor(CONNECTIONS_MAX, "granting")
        self._of_thread = local()
        # Of all threads: at most one each.
        self._open: set[HTTPConnection] = set()
        # Alike for all, and kept once.
        self._shared: dict[bytes | str, bytes | str] = {}

    async def get(self, device: str) -> Grant:
        """A grant for a device; raises NoGrant."""
        loop = asyncio.get_running_loop()
        status, answer = await loop.run_in_executor(self._threads, self._ask, device)
        if status != HTTPStatus.OK:
            raise _refused(status, answer)
        grant = decode_grant(answer)
        identity = self._shared.setdefault(grant.identity, grant.identity)
        comet = self._shared.setdefault(grant.comet, grant.comet)
        return msgspec.structs.replace(grant, identity=identity, comet=comet)

    def close(self) -> None:
        """Take no more requests, and break off those under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for connection in list(self._open):
            connection.close()

    def _ask(self, device: str) -> tuple[int, bytes]:
        """In a thread: ask over its connection, or over another if that was dropped meanwhile."""
        said = {"device": device} if self._proof else {"app": self._key, "device": device}
        body = msgspec.json.encode(said)
        kept: HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if kept is not None:
            try:
                return self._exchange(kept, body)
            except (OSError, HTTPException):
                # Asking twice does no harm: the latter of two tokens is used.
                self._drop(kept)
        self._of_thread.connection = fresh = self._connection()
        self._open.add(fresh)
        try:
            return self._exchange(fresh, body)
        except (OSError, HTTPException) as error:
            self._drop(fresh)
            raise NoGrant(f"grant: {error or type(error).__name__}", temporary=True) from None

    def _exchange(self, connection: HTTPConnection, body: bytes) -> tuple[int, bytes]:
        proof = self._proof("POST", self._target, body) if self._proof is not None else {}
        headers = {"Content-Type": "application/json", **proof}
        connection.request("POST", self._target, body, headers)
        with connection.getresponse() as response:
            return response.status, response.read(_ANSWER_BYTES_MAX)

    def _drop(self, connection: HTTPConnection) -> None:
        connection.close()
        self._open.discard(connection)
        self._of_thread.connection = None

    def _connection(self) -> HTTPConnection:
        host, port = self._address
        if self._tls is not None:
            return HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self._tls)
        return HTTPConnection(host, port, timeout=TIMEOUT_S)


def _refused(status: int, answer: bytes) -> NoGrant:
    try:
        reason = msgspec.json.decode(answer, type=_Refusal).reason
    except (msgspec.DecodeError, UnicodeDecodeError):
        reason = ""
    return NoGrant(f"grant: {status} {reason}".rstrip(), temporary=status in _AGAIN)
