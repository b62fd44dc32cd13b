"""The edge's end of a session, on `/ws`."""

from __future__ import annotations

from picows import WSFrame, WSMsgType, WSTransport

from chappe.edge.peer import peer_of
from chappe.edge.websocket.connection import Connection
from chappe.errors import CloseCode, Overload, RemoteProtocolError
from chappe.hub.session import Session
from chappe.wire import packed, text
from chappe.wire.encoding import (
    WEBSOCKET_PACKED,
    WEBSOCKET_PACKED_DEFLATED,
    WEBSOCKET_TEXT,
    WEBSOCKET_TEXT_DEFLATED,
)
from chappe.wire.ops import Malformed, Op
from chappe.wire.websocket import FIN, PING, TEXT, check_text, encode_frame

_TEXT_TYPE = WSMsgType.TEXT
_PING_FRAME = encode_frame(FIN | PING, b"")


class HubConnection(Connection):
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
