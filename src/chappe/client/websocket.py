"""Links over WebSocket: picows shakes hands and reads frames, whole ticks are written at once."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect
from picows.common import WSError, WSInvalidStatusError

from chappe.client.form import PACKED, TEXT, Form
from chappe.client.link import Link, Receiver
from chappe.errors import ABNORMAL, CloseCode, ConnectionClosed, RemoteProtocolError
from chappe.wire import websocket as wire
from chappe.wire.limits import Limits

if TYPE_CHECKING:
    from random import Random

_KINDS = {WSMsgType.TEXT: wire.TEXT, WSMsgType.BINARY: wire.BINARY}
_LATER_MIN = 500
_TOO_MANY = 429


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """picows logs each connection; what matters of it reaches the user as errors and notices."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802, the base class's name
        return False


_quiet = _Quiet(logging.getLogger("picows"), {})


def masked_head(first_byte: int, size: int, key: int) -> bytes:
    """What stands before a payload of that size that is masked with a key of 32 bits."""
    if size < 126:
        return struct.pack("!BBI", first_byte, 0x80 | size, key)
    if size < 65_536:
        return struct.pack("!BBHI", first_byte, 0x80 | 126, size, key)
    return struct.pack("!BBQI", first_byte, 0x80 | 127, size, key)


def masked_frame(first_byte: int, payload: bytes, key: int) -> bytes:
    """A frame of a client: masked with a key of 32 bits, as RFC 6455 wants it."""
    size = len(payload)
    mask = (key.to_bytes(4, "big") * (size // 4 + 1))[:size]
    # One exclusive or of two large numbers: a hundred times faster than byte by byte.
    whole = int.from_bytes(payload, "little") ^ int.from_bytes(mask, "little")
    return masked_head(first_byte, size, key) + whole.to_bytes(size, "little")


class WebSocketDial:
    """Makes links to a `ws://` or `wss://` address."""

    def __init__(
        self,
        url: str,
        *,
        form: str,
        tls: ssl.SSLContext | None,
        message_bytes_max: int,
        timeout_s: float,
        rng: Random,
    ) -> None:
        self.form: Form = TEXT if form == "text" else PACKED
        self.rng = rng
        self.limits = Limits(
            message_bytes_max=message_bytes_max, inflated_bytes_max=message_bytes_max
        )
        self._url = url
        self._tls = tls
        self._timeout_s = timeout_s

    async def __call__(self, receiver: Receiver) -> Link:
        link = WebSocketLink(self, receiver)
        try:
            await ws_connect(
                lambda: link,
                self._url,
                ssl_context=self._tls,
                websocket_handshake_timeout=self._timeout_s,
                logger_name=_quiet,
                # Seen here, so that a ping counts as a sign of life.
                enable_auto_pong=False,
                max_frame_size=self.limits.message_bytes_max,
                max_redirects=0,
                use_aiofastnet=False,
            )
        except asyncio.CancelledError:
            link.abandon()
            raise
        except WSInvalidStatusError as error:
            raise _refusal(error) from None
        except WSError as error:
            raise ConnectionClosed(CloseCode.PROTOCOL_ERROR, str(error)) from None
        if not link.opened:
            raise ConnectionResetError("the hub hung up during the handshake")
        return link


def _refusal(error: WSInvalidStatusError) -> ConnectionClosed:
    """What an answer other than 101 means: come again later, or not at all."""
    status = int(error.response.status) if error.response is not None else 0
    later = status >= _LATER_MIN or status == _TOO_MANY
    code = CloseCode.TRY_AGAIN_LATER if later else CloseCode.POLICY_VIOLATION
    return ConnectionClosed(code, f"the hub answered the handshake with status {status}")


class WebSocketLink(WSListener):
    """One WebSocket connection."""

    def __init__(self, dial: WebSocketDial, receiver: Receiver) -> None:
        self._receiver = receiver
        self._limits = dial.limits
        self._random = dial.rng.getrandbits
        self._first_byte = wire.FIN | (wire.TEXT if dial.form is TEXT else wire.BINARY)
        self._type = WSMsgType.TEXT if dial.form is TEXT else WSMsgType.BINARY
        self._assembler: wire.Assembler | None = None
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._abandoned = False

    @property
    def opened(self) -> bool:
        """Whether the handshake succeeded."""
        return self._transport is not None

    def abandon(self) -> None:
        """Nobody waits for the handshake any longer."""
        self._abandoned = True
        self.abort()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport.underlying_transport
        if self._abandoned:
            self._transport.abort()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._receiver.lost(ABNORMAL, "the hub hung up")

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if (
            frame.msg_type is self._type
            and frame.fin
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
            and self._assembler is None
        ):
            self._receiver.received(frame.get_payload_as_bytes())
            return
        try:
            self._read_frame(frame)
        except RemoteProtocolError as error:
            self._receiver.lost(error.close_code, error.reason)
            self.close(error.close_code, error.reason)
            self._hang_up()

    def _read_frame(self, frame: WSFrame) -> None:
        """Take a control frame, or a fragment."""
        opcode, payload = int(frame.msg_type), frame.get_payload_as_bytes()  # type: ignore[call-overload]
        if opcode == wire.CLOSE:
            code, reason = wire.check_close(payload)
            self._receiver.lost(code, reason)
            self.close(code if payload else CloseCode.NORMAL, "")
            self._hang_up()
        elif opcode in (wire.PING, wire.PONG):
            self._receiver.heard()
            if opcode == wire.PING:
                self._write_frame(wire.FIN | wire.PONG, payload)
        else:
            self._take_fragment(opcode, frame, payload)

    def _take_fragment(self, opcode: int, frame: WSFrame, payload: bytes) -> None:
        if self._assembler is None:
            self._assembler = wire.Assembler(self._limits)
        rsv = frame.rsv1 << 2 | frame.rsv2 << 1 | frame.rsv3
        whole = self._assembler.feed(opcode, bool(frame.fin), rsv, payload)
        self._receiver.heard()
        if whole is not None:
            self._assembler = None
            if whole[0] != _KINDS[self._type]:
                raise RemoteProtocolError("a frame in another form than hello's")
            self._receiver.received(whole[1])

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()

    def write(self, bodies: Iterable[bytes]) -> None:
        assert self._transport is not None
        first, random = self._first_byte, self._random
        self._transport.write(b"".join([masked_frame(first, body, random(32)) for body in bodies]))

    def _write_frame(self, first_byte: int, payload: bytes) -> None:
        assert self._transport is not None
        self._transport.write(masked_frame(first_byte, payload, self._random(32)))

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, code: int, reason: str) -> None:
        if self._closing or self._transport is None:
            return
        self._closing = True
        payload = code.to_bytes(2, "big") + wire.close_reason(reason)
        self._write_frame(wire.FIN | wire.CLOSE, payload)

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
