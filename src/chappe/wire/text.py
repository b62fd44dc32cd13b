"""The JSON text form of ops."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
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


def _no_head(size: int) -> bytes:
    return b""


def encode_messages(
    messages: Sequence[Message], head: Callable[[int], bytes] = _no_head
) -> list[bytes]:
    """Each message as its receiver sees it, behind what `head` makes of its size.

    By hand, nearly twice as fast as the general encoder and a head before it: messages of one run
    mostly share sender, receiver, time and size, so a template is made for the first and filled in
    for the others.
    """
    encoded = []
    template, sender, to, ts_ms, size, id_min, id_end = b"", "", "", -1, -1, 0, 0
    for message in messages:
        payload = message.payload
        if (
            len(payload) != size
            or message.sender != sender
            or message.to != to
            or message.ts_ms != ts_ms
            or not id_min <= message.id < id_end  # as many digits
            or message.binary
            or message.offset
        ):
            if message.binary or message.offset:
                encoded.append(_alone(message, head))
                continue
            size, sender, to, ts_ms = len(payload), message.sender, message.to, message.ts_ms
            id_end = int(10 ** len(str(message.id)))
            id_min = id_end // 10
            template = _template(sender, to, ts_ms, b"")
            length = len(template % (message.id, payload))
            template = _template(sender, to, ts_ms, head(length))
        encoded.append(template % (message.id, payload))
    return encoded


def _template(sender: str, to: str, ts_ms: int, head: bytes) -> bytes:
    """A frame with holes for the id and the payload; a per cent sign elsewhere is doubled."""
    middle = b'","from":%b,"to":%b,"ts":%d,"data":' % (_encode(sender), _encode(to), ts_ms)
    start = head + b'{"op":"message","message":"'
    return start.replace(b"%", b"%%") + b"%d" + middle.replace(b"%", b"%%") + b"%b}"


def _alone(message: Message, head: Callable[[int], bytes]) -> bytes:
    """A message that has more to it than a template holds."""
    data = b'"data64":"%b"' % b64encode(message.payload)
    body = b'{"op":"message","message":"%d","from":%b,"to":%b,"ts":%d,%b%b}' % (
        message.id,
        _encode(message.sender),
        _encode(message.to),
        message.ts_ms,
        data if message.binary else b'"data":' + message.payload,
        b',"offset":%d' % message.offset if message.offset else b"",
    )
    return head(len(body)) + body


def encode_accepted(request: int, message: int) -> bytes:
    """The reply that a message was accepted."""
    return b'{"op":"reply","id":%d,"ok":true,"message":"%d"}' % (request, message)


def encode_ok(request: int) -> bytes:
    """The reply that all is well."""
    return b'{"op":"reply","id":%d,"ok":true}' % request
