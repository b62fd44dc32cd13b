"""Payloads: taken out of ops, put into them, crossing between JSON text and packed form."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

import msgspec

from chappe.errors import BadRequest
from chappe.wire.ops import PayloadOp

_check = msgspec.json.Decoder(msgspec.Raw).decode


def take_payload(op: PayloadOp) -> tuple[bytes, bool]:
    """The payload of an op as (bytes, whether they are binary rather than JSON text).

    Raises BadRequest when there is none, or it is not what it says.
    """
    data: Any = op.data
    if data.__class__ is bytes:
        if op.data64:
            return data, True
        check_json(data)
        return data, False
    if data.__class__ is msgspec.Raw:
        return bytes(data), False
    if not isinstance(op.data64, str):
        raise BadRequest("data: missing; give data (any JSON value) or data64 (base64)")
    try:
        return b64decode(op.data64, validate=True), True
    except (binascii.Error, ValueError):
        raise BadRequest("data64: not base64") from None


def check_json(data: bytes) -> None:
    """Refuse bytes that are not JSON text in UTF-8: they would go into others' frames as they are.

    Raises BadRequest.
    """
    try:
        _check(data)
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("data: not JSON text; mark binary data as such") from None
