"""`/echo`: whole messages come back, so that conformance suites can run."""

from __future__ import annotations

from picows import WSFrame, WSTransport

from chappe.edge.websocket.connection import Connection
from chappe.errors import RemoteProtocolError
from chappe.wire.websocket import BINARY, FIN, RSV1, TEXT, deflate, encode_frame


class EchoConnection(Connection):
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
