"""Sessions that are addressed by key, on our own edge: every path is theirs.

The upgrade is answered at once, and then looked at: a handshake hook may take its time. Whoever is
refused is closed with a code. What a session says waits in an inbox until its handlers have come to
it; above a bound, the connection is not read from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from picows import (
    WSFrame,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)

from chappe.edge.origin import Origins
from chappe.edge.peer import peer_of
from chappe.edge.websocket.connection import Connection
from chappe.edge.websocket.edge import WebSocketEdge
from chappe.edge.websocket.handshake import refusal_of
from chappe.errors import ABNORMAL, CloseCode, Overload, RemoteProtocolError
from chappe.hub.hub import Hub
from chappe.keys.inbox import Inbox
from chappe.keys.serving import Serving
from chappe.keys.session import Handshake, KeySession
from chappe.wire.websocket import FIN, PING, TEXT, encode_frame

_PING_FRAME = encode_frame(FIN | PING, b"")


class KeyedEdge(WebSocketEdge):
    """Makes the protocol of each accepted connection."""

    def __init__(
        self,
        hub: Hub,
        serving: Serving,
        origins: Origins,
        *,
        loop: asyncio.AbstractEventLoop,
        handshake_timeout_s: float = 5.0,
    ) -> None:
        super().__init__(
            hub, origins, loop=loop, deflate=False, handshake_timeout_s=handshake_timeout_s
        )
        self.serving = serving
        self.tasks: set[asyncio.Task[None]] = set()

    def answer(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener | None:
        """What a handshake gets: a connection, or a refusal."""
        refused = refusal_of(request, self._origins, draining=self.hub.draining, same=True)
        if refused is not None:
            return refused
        path, _, query = request.path.decode("latin-1").partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        handshake = Handshake(path, query, headers, "")
        return WSUpgradeResponseWithListener(
            WSUpgradeResponse.create_101_response(), KeyedConnection(self, handshake)
        )

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something for a connection."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def stop(self) -> None:
        """Let go of what is under way."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


class KeyedConnection(Connection):
    """The edge's end of a session."""

    __slots__ = ("_handshake", "_inbox", "_session")

    _edge: KeyedEdge
    _session: KeySession | None

    def __init__(self, edge: KeyedEdge, handshake: Handshake) -> None:
        super().__init__(edge, False)
        self._handshake = handshake
        self._session = None
        self._inbox = Inbox(edge.serving, edge.run, self._read_on)

    def opened(self) -> None:
        self._handshake.client = peer_of(self._transport)
        self._edge.run(self._begin())

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    async def _begin(self) -> None:
        serving = self._edge.serving
        refused = await serving.refusal(self._handshake)
        if refused is not None:
            self.say_goodbye(CloseCode.UNAUTHORIZED, refused)
            return
        if self._transport.is_closing():
            return
        try:
            self._session = serving.open("websocket", self, self._handshake, beats=True)
        except Overload as full:
            self.say_goodbye(CloseCode.TRY_AGAIN_LATER, full.reason)
            return
        self._session.core.write = self._transport.write
        self._inbox.begin(self._session)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.read_frame(frame)

    def take_message(self, kind: int, message: bytes) -> None:
        self.heard()
        if not self._inbox.put(message.decode() if kind == TEXT else message):
            self._transport.pause_reading()

    def heard(self) -> None:
        if self._session is not None:
            self._session.core.beats_missed = 0

    def put(self, frame: bytes) -> None:
        if self._session is not None:
            self._edge.hub.outboxes.put(self._session.core, frame)
        else:
            self._transport.write(frame)

    def fail(self, error: RemoteProtocolError) -> None:
        if self._session is not None:
            self._edge.serving.broker.end(self._session, error.close_code, error.reason)
        else:
            self.say_goodbye(error.close_code, error.reason)

    def left(self, code: int) -> None:
        if self._session is not None:
            self._edge.serving.broker.lost(self._session, code)

    def gone(self) -> None:
        self.left(ABNORMAL)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._edge.serving.broker.pause(self._session)

    def resume_writing(self) -> None:
        if self._session is not None:
            self._edge.serving.broker.resume(self._session)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def ping(self) -> None:
        self.put(_PING_FRAME)

    def close(self, code: int, reason: str) -> None:
        self.say_goodbye(code, reason)

    def abort(self) -> None:
        self._transport.abort()
