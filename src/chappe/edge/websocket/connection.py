"""A connection: the rules of RFC 6455 above single frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict
from picows import WSFrame, WSListener, WSMsgType, WSTransport

from chappe.errors import CloseCode, RemoteProtocolError
from chappe.wire.websocket import (
    CLOSE,
    FIN,
    PING,
    PONG,
    Assembler,
    check_close,
    close_reason,
    encode_frame,
    may_travel,
)

if TYPE_CHECKING:
    from chappe.edge.websocket.edge import WebSocketEdge

_NO_HEADERS: CIMultiDict[str] = CIMultiDict()
# How long a peer may take to answer a close frame.
_CLOSE_TIMEOUT_S = 2.0
# How long it may take after that to read what was written before it.
_FLUSH_TIMEOUT_S = 10.0


class Connection(WSListener):
    """What both kinds of connection share: the rules of RFC 6455 above single frames."""

    __slots__ = ("_assembler", "_deflate", "_edge", "_frames", "_transport")

    def __init__(self, edge: WebSocketEdge, deflate: bool) -> None:
        self._edge = edge
        self._deflate = deflate
        self._assembler: Assembler | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        # It alone sends close frames: its parser does so by itself for a frame it cannot read, and
        # goes on to hand over what lies behind. Whether one was sent is therefore asked of it.
        self._frames = transport
        self._transport: Any = transport.underlying_transport
        # The handshake is over; its headers would stay for as long as the connection does.
        transport.request.headers = transport.response.headers = _NO_HEADERS
        self.opened()

    def parser_failed(self) -> None:
        """picows looks a frame ahead: when the bad one follows a close, the close is answered."""
        handshake = self._frames.close_handshake
        if handshake is not None and handshake.recv is not None:
            code = int(handshake.recv.code)  # type: ignore[call-overload]
            self._frames.send_close(code if may_travel(code) else CloseCode.NORMAL)  # type: ignore[arg-type]

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.gone()

    def read_frame(self, frame: WSFrame) -> None:
        """Take any frame that is not a whole, plain text message."""
        if self._frames.is_close_frame_sent and frame.msg_type is not WSMsgType.CLOSE:
            return
        opcode = int(frame.msg_type)  # type: ignore[call-overload]
        rsv = frame.rsv1 << 2 | frame.rsv2 << 1 | frame.rsv3
        try:
            if opcode >= CLOSE:
                self._read_control(opcode, rsv, frame.get_payload_as_bytes())
            else:
                if self._assembler is None:
                    self._assembler = Assembler(self._edge.hub.limits, deflate=self._deflate)
                payload = frame.get_payload_as_bytes()
                message = self._assembler.feed(opcode, bool(frame.fin), rsv, payload)
                if not self._assembler.under_way:
                    self._assembler = None
                if message is not None:
                    self.take_message(*message)
        except RemoteProtocolError as error:
            self.fail(error)
            if opcode == CLOSE:  # the peer has said its last word
                self._transport.close()

    def _read_control(self, opcode: int, rsv: int, payload: bytes) -> None:
        if rsv:
            raise RemoteProtocolError("reserved bits set on a control frame")
        self.heard()
        if opcode == PING:
            self.put(encode_frame(FIN | PONG, payload))
        elif opcode == CLOSE:
            code, _ = check_close(payload)
            self._frames.send_close(code if payload else CloseCode.NORMAL)  # type: ignore[arg-type]
            self._transport.close()
            self.left(code)

    def say_goodbye(self, code: int, reason: str) -> None:
        """Send a close frame and give the peer a moment to answer it."""
        if self._frames.is_close_frame_sent:
            return
        self._frames.send_close(code, close_reason(reason))  # type: ignore[arg-type]
        self._edge.loop.call_later(_CLOSE_TIMEOUT_S, self._let_go)

    def _let_go(self) -> None:
        """Close, and cut what a peer that does not read leaves behind."""
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._edge.loop.call_later(_FLUSH_TIMEOUT_S, self._transport.abort)

    def opened(self) -> None:
        raise NotImplementedError

    def take_message(self, kind: int, message: bytes) -> None:
        raise NotImplementedError

    def heard(self) -> None:
        raise NotImplementedError

    def put(self, frame: bytes) -> None:
        raise NotImplementedError

    def fail(self, error: RemoteProtocolError) -> None:
        raise NotImplementedError

    def left(self, code: int) -> None:
        raise NotImplementedError

    def gone(self) -> None:
        raise NotImplementedError
