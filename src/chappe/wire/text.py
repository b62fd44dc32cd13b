"""The JSON text form of ops."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Union

import msgspec

from chappe.message import Message
from chappe.wire.ops import CLIENT_OPS, HUB_OPS, Op
from chappe.wire.refusal import UNREADABLE, refusal

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
    except UNREADABLE as error:
        raise refusal(error) from None


def decode_hub_op(data: bytes) -> Op:
    """Read what a hub sent; raises RemoteProtocolError."""
    try:
        return _hub_decoder.decode(data)  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise refusal(error) from None


def encode_messages(messages: Sequence[Message]) -> list[bytes]:
    """Each message as its receiver sees it.

    Formatted by hand, three times as fast as the general encoder. Messages of one run mostly share
    sender, receiver and time, so that part is made once and used again while it holds.
    """
    encoded = []
    sender = to = ""
    ts_ms = -1
    middle = b""
    for message in messages:
        if message.sender != sender or message.ts_ms != ts_ms or message.to != to:
            sender, to, ts_ms = message.sender, message.to, message.ts_ms
            middle = b'","from":%b,"to":%b,"ts":%d,"data' % (_encode(sender), _encode(to), ts_ms)
        payload = message.payload
        encoded.append(
            b'{"op":"message","message":"%d%b":%b}' % (message.id, middle, payload)
            if not message.binary
            else b'{"op":"message","message":"%d%b64":"%b"}'
            % (message.id, middle, b64encode(payload))
        )
    return encoded


def encode_accepted(request: int, message: int) -> bytes:
    """The reply that a message was accepted."""
    return b'{"op":"reply","id":%d,"ok":true,"message":"%d"}' % (request, message)
