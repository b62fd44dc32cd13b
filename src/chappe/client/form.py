"""Forms: how a client's ops become bodies, and a hub's bodies ops.

A body is one op, or packed also many, without what delimits it; that is the link's affair.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from chappe.errors import BadRequest, RemoteProtocolError
from chappe.message import Message
from chappe.wire import ops, packed, text
from chappe.wire.ops import CODES, VERSION, Op, Publish, Reply, Request, Respond, Send

PayloadKind = type[Send] | type[Publish]
CarryKind = type[Request] | type[Respond] | type[Send] | type[Publish]
Receivers = str | Sequence[str]

_pack = msgspec.msgpack.Encoder().encode
_version = bytes([VERSION])


class Form(NamedTuple):
    """One of the ways in which ops travel."""

    name: str
    encode: Callable[[Op], bytes]
    decode: Callable[[bytes], Sequence[Op]]
    # The bodies of single ops as the few bodies in which they are sent together.
    join: Callable[[Sequence[bytes]], Sequence[bytes]]
    # Kind, request id, receivers, payload, whether it is binary.
    encode_payload: Callable[[PayloadKind, int | None, Receivers, bytes, bool], bytes]
    # Kind, the other fields, payload, whether it is binary.
    carry: Callable[[CarryKind, dict[str, Any], bytes, bool], bytes]
    # How a message's id stands in an op.
    message_id: Callable[[int], str | int]


def encode_data(data: Any) -> tuple[bytes, bool]:
    """A caller's data as (payload, whether it is binary): bytes as they are, the rest as JSON.

    Raises BadRequest for what JSON cannot say.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), True
    try:
        payload = msgspec.json.encode(data)
        if b"null" in payload:
            _check_numbers(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"data: {error}") from None
    return payload, False


def _check_numbers(data: Any) -> None:
    """Raise ValueError for what is no number in JSON: the encoder would make null of it."""
    left = [msgspec.to_builtins(data)]
    while left:
        value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is no number in JSON")
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value


def check_receivers(to: Receivers) -> Receivers:
    """A caller's receivers as they travel, one address or a list; raises BadRequest."""
    if isinstance(to, str):
        return check_text(to)
    if not isinstance(to, Sequence):
        raise BadRequest("to: an address, or a list of addresses")
    return [check_text(address) for address in to]


def check_text(address: str) -> str:
    """Refuse what cannot travel as an address at all; what it means is for the hub to judge."""
    if not isinstance(address, str):
        raise BadRequest("to: an address is a text such as user:alice")
    try:
        address.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"to: {address[:40]!a} is not Unicode text") from None
    return address


def read_id(form: Form, message: str | int) -> str | int:
    """The id of a message as a caller has it, as it travels; raises BadRequest."""
    try:
        return form.message_id(int(message))
    except ValueError:
        raise BadRequest(f"message: {str(message)[:40]!a} is not the id of a message") from None


def read_message(op: Any) -> Message:
    """The message in a delivery of either form; raises RemoteProtocolError."""
    # Written out beside read_payload: this is on the path of every message.
    data = op.data
    try:
        if data.__class__ is bytes:
            payload, binary = data, bool(op.data64)
        elif data.__class__ is msgspec.Raw:
            payload, binary = bytes(data), False
        else:
            payload, binary = b64decode(op.data64 or "", validate=True), True
        return Message(int(op.message), op.from_, op.to, op.ts, payload, binary, op.offset)
    except ValueError as error:
        raise RemoteProtocolError(f"message: {error}") from None


def read_payload(op: Any) -> tuple[bytes, bool]:
    """The payload of a hub's op of either form, and whether it is binary.

    An op without one holds JSON's null. Raises RemoteProtocolError.
    """
    data = op.data
    if data.__class__ is bytes:
        return data, bool(op.data64)
    if data.__class__ is msgspec.Raw:
        return bytes(data), False
    if not op.data64:
        return b"null", False
    try:
        return b64decode(op.data64, validate=True), True
    except ValueError as error:
        raise RemoteProtocolError(f"data64: {error}") from None


def read_data(op: Reply | Request) -> Any:
    """What the payload of a hub's op stands for; raises RemoteProtocolError."""
    payload, binary = read_payload(op)
    if binary:
        return payload
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"data: {error}") from None


def _pack_payload(
    kind: PayloadKind, id: int | None, to: Receivers, payload: bytes, binary: bool
) -> bytes:
    # The first fields of both ops; the others hold their defaults and are left out.
    return _version + _pack((CODES[kind], id, to, payload, binary))


def _text_payload(
    kind: PayloadKind, id: int | None, to: Receivers, payload: bytes, binary: bool
) -> bytes:
    op: Send | Publish = kind(id=id, to=to)  # type: ignore[arg-type]
    if binary:
        op.data64 = b64encode(payload).decode()
    else:
        op.data = msgspec.Raw(payload)
    return text.encode_op(op)


def _pack_carried(kind: CarryKind, fields: dict[str, Any], payload: bytes, binary: bool) -> bytes:
    return packed.encode_op(ops.PACKED[kind](data=payload, data64=binary, **fields))


def _text_carried(kind: CarryKind, fields: dict[str, Any], payload: bytes, binary: bool) -> bytes:
    if binary:
        return text.encode_op(kind(data64=b64encode(payload).decode(), **fields))
    return text.encode_op(kind(data=msgspec.Raw(payload), **fields))


def _decode_packed(body: bytes) -> list[Op]:
    return packed.read_hub_ops(packed.check_version(body))


def _decode_text(body: bytes) -> tuple[Op]:
    return (text.decode_hub_op(body),)


def _join_packed(bodies: Sequence[bytes]) -> list[bytes]:
    joined: list[bytes] = []
    run: list[bytes] = []
    size = 0
    for body in bodies:
        if run and (size + len(body) > packed.MANY_BYTES_MAX or len(run) == packed.OPS_MAX):
            joined.append(packed.encode_ops(run))
            run, size = [], 0
        run.append(body)
        size += len(body)
    if run:
        joined.append(packed.encode_ops(run))
    return joined


PACKED = Form(
    "packed", packed.encode_op, _decode_packed, _join_packed, _pack_payload, _pack_carried, int
)
# On a stream the version byte is read together with the length.
STREAM = PACKED._replace(name="stream", decode=packed.read_hub_ops)
TEXT = Form(
    "text", text.encode_op, _decode_text, lambda bodies: bodies, _text_payload, _text_carried, str
)
