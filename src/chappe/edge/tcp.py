"""Byte streams: packed ops behind a length, on raw TCP and in memory."""

from __future__ import annotations

import asyncio
from typing import cast

from chappe.edge.peer import peer_of
from chappe.errors import CloseCode, Overload, RemoteProtocolError
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.wire.encoding import STREAM
from chappe.wire.ops import Closed, Malformed, Op, Ping
from chappe.wire.packed import Splitter, read_client_ops

# How long a peer may take to read what was written before the goodbye.
_CLOSE_TIMEOUT_S = 10.0
# How long a peer may take to end its side after the goodbye.
_LINGER_S = 2.0
_PING = STREAM.op(Ping())


class TcpConnection(asyncio.Protocol):
    """One connection: the edge's end of a session."""

    __slots__ = ("_closing", "_edge", "_hub", "_session", "_splitter", "_transport")

    _session: Session
    _transport: asyncio.Transport

    def __init__(self, hub: Hub, edge: str = "tcp") -> None:
        self._hub = hub
        self._edge = edge
        self._splitter = Splitter(hub.limits.message_bytes_max)
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        try:
            self._session = self._hub.open(self._edge, STREAM, self, peer_of(transport))
        except Overload as refusal:
            self.close(CloseCode.TRY_AGAIN_LATER, refusal.reason)
            return
        # One call less on the path of every write.
        self._session.write = self._transport.write

    def data_received(self, data: bytes) -> None:
        session = getattr(self, "_session", None)
        if session is None or self._closing:
            return
        ops: list[Op] = []
        try:
            for array in self._splitter.feed(data):
                try:
                    ops += read_client_ops(array)
                except RemoteProtocolError as error:
                    ops.append(Malformed(error.reason))
        except RemoteProtocolError as error:
            ops.append(Malformed(error.reason, error.close_code))
        if len(ops) == 1:
            self._hub.receive(session, ops[0])
        elif ops:
            self._hub.receive_all(session, ops)

    def pause_writing(self) -> None:
        self._hub.pause(self._session)

    def resume_writing(self) -> None:
        self._hub.resume(self._session)

    def connection_lost(self, exc: Exception | None) -> None:
        if (session := getattr(self, "_session", None)) is not None:
            self._hub.lost(session)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def ping(self) -> None:
        self._hub.outboxes.put(self._session, _PING)

    def close(self, code: int, reason: str) -> None:
        """Say goodbye and why, and end.

        To a peer that was somebody the other side stays open for a moment: what it says before it
        has read the goodbye would be answered with a reset, and that takes the goodbye with it.
        """
        self._transport.write(STREAM.op(Closed(code=code, reason=reason)))
        session = getattr(self, "_session", None)
        if session is not None and session.address and self._transport.can_write_eof():
            self._closing = True
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, self._let_go)
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Close, and cut what a peer that does not read leaves behind."""
        self._transport.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT_S, self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()
