"""The JSON text form of ops."""

from __future__ import annotations

from typing import Union

import msgspec

from chappe.errors import RemoteProtocolError
from chappe.message import Message
from chappe.wire.ops import CLIENT_OPS, HUB_OPS, Op
from chappe.wire.payload import base64_json

_client_decoder = msgspec.json.Decoder(Union[CLIENT_OPS])
_hub_decoder = msgspec.json.Decoder(Union[HUB_OPS])
_encode = msgspec.json.Encoder().encode

encode_op = _encode


def decode_client_op(data: bytes) -> Op:
    """Read what an endpoint sent. The bytes must be UTF-8 already.

    Raises RemoteProtocolError naming the field that is wrong.
    """
    try:
        return _client_decoder.decode(data)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(_reason(error)) from None


def decode_hub_op(data: bytes) -> Op:
    """Read what a hub sent; raises RemoteProtocolError."""
    try:
        return _hub_decoder.decode(data)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(_reason(error)) from None


def encode_message(message: Message) -> bytes:
    """A message as its receiver sees it.

    Addresses hold no character that JSON escapes but the quote and the backslash, so formatting by
    hand is safe once those are ruled out, and three times as fast as the general encoder.
    """
    return b'{"op":"message","message":"%d","from":%b,"to":%b,"ts":%d,"data%b}' % (
        message.id,
        _quoted(message.sender),
        _quoted(message.to),
        message.ts_ms,
        b'64":' + base64_json(message.payload) if message.binary else b'":' + message.payload,
    )


def encode_accepted(request: int, message: int) -> bytes:
    """The reply that a message was accepted."""
    return b'{"op":"reply","id":%d,"ok":true,"message":"%d"}' % (request, message)


class _Quoted(dict[str, bytes]):
    """JSON strings of addresses, remembered: the same few senders and receivers come again."""

    SIZE_MAX = 65_536

    def __missing__(self, text: str) -> bytes:
        if len(self) >= self.SIZE_MAX:
            self.clear()
        self[text] = quoted = _encode(text)
        return quoted


_quoted = _Quoted().__getitem__


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "JSON is nested too deeply"
    return str(error)
