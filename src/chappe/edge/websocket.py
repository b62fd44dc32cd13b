"""WebSocket: ops as JSON text frames or packed binary frames, on `/ws` (RFC 6455, RFC 7692).

picows reads and unmasks frames, and refuses what is wrong with a single one: no mask, a reserved
opcode, a control frame that is long or fragmented, a declared length above the bound. What a run of
frames means is decided here and in `wire.websocket`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from multidict import CIMultiDict
from picows import (
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from chappe.edge.origin import Origins
from chappe.edge.peer import peer_of
from chappe.errors import CloseCode, Overload, RemoteProtocolError
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.wire import packed, text
from chappe.wire.encoding import (
    WEBSOCKET_PACKED,
    WEBSOCKET_PACKED_DEFLATED,
    WEBSOCKET_TEXT,
    WEBSOCKET_TEXT_DEFLATED,
)
from chappe.wire.ops import Malformed, Op
from chappe.wire.websocket import (
    BINARY,
    CLOSE,
    FIN,
    PING,
    PONG,
    RSV1,
    TEXT,
    Assembler,
    check_close,
    check_text,
    close_reason,
    deflate,
    deflate_answer,
    encode_frame,
    may_travel,
)

_NO_HEADERS: CIMultiDict[str] = CIMultiDict()
_VERSION = "13"
_TEXT_TYPE = WSMsgType.TEXT
_PING_FRAME = encode_frame(FIN | PING, b"")
# How long a peer may take to answer a close frame.
_CLOSE_TIMEOUT_S = 2.0
# The smallest picows takes; a busy connection's buffer grows by itself.
_READ_BUFFER_BYTES = 2048


class _Watch:
    """Stands where picows wants a logger.

    It logs each connection and each peer's mistake, and strangers must not fill the log. One thing
    is worth hearing: that its parser gave up, before it sends a close frame of its own.
    """

    __slots__ = ("_connection", "_edge")

    def __init__(self, edge: WebSocketEdge) -> None:
        self._edge = edge
        self._connection: Callable[[], _Connection | None] | None = None

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
        watch = _Watch(self)
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
            kind: type[_Connection] = _HubConnection
        elif path == b"/echo" and self._echo:
            kind = _EchoConnection
        else:
            return None
        headers = request.headers
        if headers.getall("Sec-WebSocket-Version", []) != [_VERSION]:
            return _refusal(
                HTTPStatus.UPGRADE_REQUIRED,
                b"this is a WebSocket of version 13\n",
                {"Sec-WebSocket-Version": _VERSION},
            )
        if "upgrade" in _tokens(headers.getall("Connection", [])):
            # picows knows the word only when it stands alone; Firefox sends `keep-alive, Upgrade`.
            headers["Connection"] = "upgrade"
        origins = headers.getall("Origin", [])
        if len(origins) > 1 or not self._origins.allow(origins[0] if origins else None):
            return _refusal(HTTPStatus.FORBIDDEN, b"this origin may not connect\n")
        if self.hub.draining:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, b"this node is draining\n")
        offered = ",".join(headers.getall("Sec-WebSocket-Extensions", []))
        answer = deflate_answer(offered) if self._deflate else None
        extra = {"Sec-WebSocket-Extensions": answer} if answer else None
        return WSUpgradeResponseWithListener(
            WSUpgradeResponse.create_101_response(extra), kind(self, answer is not None)
        )


def _tokens(values: list[str]) -> set[str]:
    return {token.strip().lower() for value in values for token in value.split(",")}


def _refusal(
    status: HTTPStatus, reason: bytes, headers: dict[str, str] | None = None
) -> WSUpgradeResponseWithListener:
    return WSUpgradeResponseWithListener(
        WSUpgradeResponse.create_error_response(status, reason, headers), None
    )


class _Connection(WSListener):
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
        self._edge.loop.call_later(_CLOSE_TIMEOUT_S, self._transport.close)

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


class _HubConnection(_Connection):
    """The edge's end of a session."""

    __slots__ = ("_ops", "_receive", "_session")

    _session: Session
    # What one read has brought so far; handed over together.
    _ops: list[Op] | None

    def opened(self) -> None:
        hub = self._edge.hub
        encoding = WEBSOCKET_TEXT_DEFLATED if self._deflate else WEBSOCKET_TEXT
        try:
            session = hub.open("websocket", encoding, self, peer_of(self._transport))
        except Overload as refusal:
            self.say_goodbye(CloseCode.TRY_AGAIN_LATER, refusal.reason)
            self._transport.close()
            return
        self._session = session
        # One call less on the path of every write and of every frame.
        session.write = self._transport.write
        self._receive = hub.receive
        self._ops = None

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if (
            frame.msg_type is not _TEXT_TYPE
            or not frame.fin
            or frame.rsv1
            or frame.rsv2
            or frame.rsv3
            or self._assembler is not None
            or transport.is_close_frame_sent
        ):
            self.read_frame(frame)
            return
        data = frame.get_payload_as_bytes()
        try:
            if not data.isascii():
                check_text(data)
            op = text.decode_client_op(data)
        except RemoteProtocolError as error:
            op = self._malformed(error)
        ops = self._ops
        if not frame.last_in_buffer:
            if ops is None:
                self._ops = [op]
            else:
                ops.append(op)
        elif ops is None:
            self._receive(self._session, op)
        else:
            ops.append(op)
            self._hand_over()

    def _hand_over(self) -> None:
        ops, self._ops = self._ops, None
        if ops is not None:
            self._edge.hub.receive_all(self._session, ops)

    def read_frame(self, frame: WSFrame) -> None:
        if self._frames.is_close_frame_sent:
            # Whoever sent it, what this read has brought is not answered any more.
            self._ops = None
            self.gone()
            if not hasattr(self, "_session"):
                return  # never taken in
        # What came before this frame is done before it.
        self._hand_over()
        super().read_frame(frame)

    def take_message(self, kind: int, message: bytes) -> None:
        session = self._session
        ops: list[Op]
        try:
            if kind == TEXT:
                ops = [text.decode_client_op(message)]
            else:
                if not session.address:
                    # Whoever says hello in packed form is answered in it.
                    deflated = self._deflate
                    session.encoding = WEBSOCKET_PACKED_DEFLATED if deflated else WEBSOCKET_PACKED
                ops = packed.read_client_ops(packed.check_version(message))
        except RemoteProtocolError as error:
            ops = [self._malformed(error)]
        self._edge.hub.receive_all(session, ops)

    def _malformed(self, error: RemoteProtocolError) -> Malformed:
        """An op that cannot be read is the session's affair; a text that is not UTF-8 ends the
        connection."""
        ends = error.close_code == CloseCode.INVALID_TEXT
        return Malformed(error.reason, error.close_code if ends else None)

    def heard(self) -> None:
        self._session.beats_missed = 0

    def put(self, frame: bytes) -> None:
        self._edge.hub.outboxes.put(self._session, frame)

    def fail(self, error: RemoteProtocolError) -> None:
        self._edge.hub.close(self._session, error.close_code, error.reason)

    def left(self, code: int) -> None:
        self._edge.hub.lost(self._session, code)

    def gone(self) -> None:
        if (session := getattr(self, "_session", None)) is not None:
            self._edge.hub.lost(session)

    def pause_writing(self) -> None:
        self._edge.hub.pause(self._session)

    def resume_writing(self) -> None:
        self._edge.hub.resume(self._session)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def ping(self) -> None:
        self._edge.hub.outboxes.put(self._session, _PING_FRAME)

    def close(self, code: int, reason: str) -> None:
        self.say_goodbye(code, reason)

    def abort(self) -> None:
        self._transport.abort()


class _EchoConnection(_Connection):
    """Echoes whole messages, for conformance suites; on only in development."""

    __slots__ = ()

    def opened(self) -> None:
        """Nothing to do until a message comes."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.read_frame(frame)

    def take_message(self, kind: int, message: bytes) -> None:
        assert kind in (TEXT, BINARY)
        if self._deflate:
            self.put(encode_frame(FIN | RSV1 | kind, deflate(message)))
        else:
            self.put(encode_frame(FIN | kind, message))

    def heard(self) -> None:
        """No session to keep alive."""

    def put(self, frame: bytes) -> None:
        self._transport.write(frame)

    def fail(self, error: RemoteProtocolError) -> None:
        self.say_goodbye(error.close_code, error.reason)

    def left(self, code: int) -> None:
        """The close frame was answered; the transport closes."""

    def gone(self) -> None:
        """No session to tell."""

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()
