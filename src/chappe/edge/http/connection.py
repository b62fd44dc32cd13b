"""One HTTP connection: uvicorn's, with the patience that it lacks.

uvicorn waits for ever for a request that has begun. Here a request's head and its body each have a
time in which they must be whole. Between requests uvicorn's own keep-alive timer runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from chappe.edge.http.failure import failure
from chappe.edge.http.options import HttpOptions
from chappe.errors import ErrorCode

_LINGER_S = 2.0


class Connection(H11Protocol):
    """A connection that is cut off when its peer takes too long to say what it wants."""

    def __init__(self, config: Config, state: ServerState, options: HttpOptions) -> None:
        # A stream must be able to drop a peer that does not read; requests carry this state.
        super().__init__(config, state, {"connection": self})
        self._options = options
        # h11's state of the peer: IDLE for a head, SEND_BODY for a body, None when it owes nothing.
        self._awaited: Any = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def stuck(self) -> bool:
        """Whether the peer does not take what was written to it."""
        return self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._options.connections_max:
            self._refuse(503, ErrorCode.OVERLOAD, "too many connections", "Service Unavailable")
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for(None)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            # Answered before its body was whole, because it is too large or nobody wants it. What
            # comes of it is thrown away for a moment, so that a peer that is still sending gets to
            # read the answer, but not for as long as it likes.
            self.loop.call_later(_LINGER_S, self.transport.close)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, ErrorCode.PROTOCOL, msg, "Bad Request")

    def abort(self) -> None:
        """Drop the connection and what it still buffers."""
        self.transport.abort()

    def extend(self) -> None:
        """Give the rest of a body its time anew: what came of it was worth reading."""
        if self._awaited is h11.SEND_BODY:
            self._wait_for(None)
            self._watch()

    def _watch(self) -> None:
        """Arm the timer for what the peer must send next, if that has not been done."""
        state = self.conn.their_state
        resting = state is h11.IDLE and self.timeout_keep_alive_task is not None
        if self.transport.is_closing() or resting:
            self._wait_for(None)
        else:
            self._wait_for(state if state in (h11.IDLE, h11.SEND_BODY) else None)

    def _wait_for(self, awaited: Any) -> None:
        if awaited is self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if awaited is not None:
            options = self._options
            head = awaited is h11.IDLE
            seconds = options.header_timeout_s if head else options.body_timeout_s
            self._deadline = self.loop.call_later(seconds, self._cut_off)

    def _cut_off(self) -> None:
        if self._awaited is h11.IDLE:
            reason = "the request's head did not come in time"
            self._refuse(408, ErrorCode.PROTOCOL, reason, "Request Timeout")
        else:
            self.transport.abort()

    def _refuse(self, status: int, error: str, reason: str, phrase: str) -> None:
        """Answer below the application, which never saw a request."""
        if self.cycle is not None and not self.cycle.response_complete:
            # A response is under way; there is no place for another one.
            self.transport.abort()
            return
        body = failure(error, reason)
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, phrase.encode(), len(body), body)
        )
        self.transport.close()
