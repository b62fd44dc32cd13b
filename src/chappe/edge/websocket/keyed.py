"""Sessions that are addressed by key, on our own edge: every path is theirs.

The upgrade is answered at once, and then looked at: a handshake hook may take its time. Whoever is
refused is closed with a code. What a session says waits in an inbox until its handlers have come to
it; above a bound, the connection is not read from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

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

    async def stop(self) -> None:
        """Let go of what is under way."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


class KeyedConnection(Connection):
    """The edge's end of a session."""

    __slots__ = ("_handshake", "_inbox", "_session", "_task", "_unread")

    _edge: KeyedEdge
    _session: KeySession | None

    def __init__(self, edge: KeyedEdge, handshake: Handshake) -> None:
        super().__init__(edge, False)
        self._handshake = handshake
        self._session = None
        self._inbox: deque[str | bytes] = deque()
        self._unread = False
        self._task: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self._handshake.client = peer_of(self._transport)
        self._spawn(self._begin)

    def _spawn(self, work: Callable[[], object]) -> None:
        task = self._task = self._edge.loop.create_task(work())  # type: ignore[arg-type]
        self._edge.tasks.add(task)
        task.add_done_callback(self._edge.tasks.discard)

    async def _begin(self) -> None:
        serving = self._edge.serving
        refused = await serving.refusal(self._handshake)
        if refused is not None:
            self._turn_away(CloseCode.UNAUTHORIZED, refused)
            return
        if self._transport.is_closing():
            return
        try:
            self._session = serving.open("websocket", self, self._handshake, beats=True)
        except Overload as full:
            self._turn_away(CloseCode.TRY_AGAIN_LATER, full.reason)
            return
        self._session.core.write = self._transport.write
        await serving.connected(self._session)
        await self._work()

    def _turn_away(self, code: CloseCode, reason: str) -> None:
        self._inbox.clear()
        self.say_goodbye(code, reason)

    async def _work(self) -> None:
        """Hand what waits to its handlers, one after the other, until nothing does."""
        serving, session, inbox = self._edge.serving, self._session, self._inbox
        assert session is not None
        while inbox and not session.closed:
            message = inbox.popleft()
            if self._unread and len(inbox) <= serving.options.inbox_messages_max // 2:
                self._unread = False
                self._transport.resume_reading()
            if isinstance(message, str):
                await serving.take_text(session, message)
            else:
                await serving.take_binary(session, message)
        self._task = None

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.read_frame(frame)

    def take_message(self, kind: int, message: bytes) -> None:
        self.heard()
        inbox = self._inbox
        inbox.append(message.decode() if kind == TEXT else message)
        if len(inbox) > self._edge.serving.options.inbox_messages_max and not self._unread:
            self._unread = True
            self._transport.pause_reading()
        if self._task is None:
            self._spawn(self._work)

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
