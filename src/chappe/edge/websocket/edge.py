"""WebSocket: ops as JSON text frames or packed binary frames, on `/ws` (RFC 6455, RFC 7692).

picows reads and unmasks frames, and refuses what is wrong with a single one: no mask, a reserved
opcode, a control frame that is long or fragmented, a declared length above the bound. What a run of
frames means is decided in `connection` and in `wire.websocket`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

from picows import WSUpgradeRequest, WSUpgradeResponse, WSUpgradeResponseWithListener
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from chappe.edge.origin import Origins
from chappe.edge.websocket.connection import Connection
from chappe.edge.websocket.echo import EchoConnection
from chappe.edge.websocket.endpoint import HubConnection
from chappe.edge.websocket.handshake import refusal_of
from chappe.hub.hub import Hub
from chappe.wire.websocket import deflate_answer

# The smallest picows takes; a busy connection's buffer grows by itself.
_READ_BUFFER_BYTES = 2048


class ParserWatch:
    """Stands where picows wants a logger.

    It logs each connection and each peer's mistake, and strangers must not fill the log. One thing
    is worth hearing: that its parser gave up, before it sends a close frame of its own.
    """

    __slots__ = ("_connection", "_edge")

    def __init__(self, edge: WebSocketEdge) -> None:
        self._edge = edge
        self._connection: Callable[[], Connection | None] | None = None

    def listen(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener | None:
        """Answer a handshake, and remember whose parser this is."""
        answer = self._edge.answer(request)
        if answer is not None and answer.listener is not None:
            self._connection = weakref.ref(answer.listener)
        return answer

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802, the name that loggers have
        return False

    def error(self, *_: object) -> None:
        connection = self._connection() if self._connection is not None else None
        if connection is not None:
            connection.parser_failed()

    def ignore(self, *_: object, **__: object) -> None:
        """Not worth a line."""

    log = debug = info = warning = exception = ignore


class WebSocketEdge:
    """Makes the protocol of each accepted connection."""

    def __init__(
        self,
        hub: Hub,
        origins: Origins,
        *,
        loop: asyncio.AbstractEventLoop,
        deflate: bool = True,
        echo: bool = False,
        handshake_timeout_s: float = 5.0,
    ) -> None:
        self.hub = hub
        self.loop = loop
        self._origins = origins
        self._deflate = deflate
        self._echo = echo
        self._handshake_timeout_s = handshake_timeout_s

    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of one connection."""
        watch = ParserWatch(self)
        return WSProtocol(  # type: ignore[no-any-return]
            None,  # host and port: only a client has them
            None,  # path, likewise
            False,  # is_client_side
            watch.listen,
            watch,
            True,  # disconnect_on_exception
            self._handshake_timeout_s,
            False,  # enable_auto_ping: the hub beats for all edges
            20,
            20,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,  # enable_auto_pong: a pong goes through the outbox, so writes never interleave
            self.hub.limits.message_bytes_max,
            None,  # extra_headers
            _READ_BUFFER_BYTES,
        )

    def answer(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener | None:
        """What a handshake gets: a connection, a refusal, or None for a path that is not there."""
        path = request.path.split(b"?", 1)[0]
        if path == b"/ws":
            kind: type[Connection] = HubConnection
        elif path == b"/echo" and self._echo:
            kind = EchoConnection
        else:
            return None
        refused = refusal_of(request, self._origins, draining=self.hub.draining)
        if refused is not None:
            return refused
        offered = ",".join(request.headers.getall("Sec-WebSocket-Extensions", []))
        answer = deflate_answer(offered) if self._deflate else None
        extra = {"Sec-WebSocket-Extensions": answer} if answer else None
        return WSUpgradeResponseWithListener(
            WSUpgradeResponse.create_101_response(extra), kind(self, answer is not None)
        )
