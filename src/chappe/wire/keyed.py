"""Text of sessions that are addressed by key: `{"type": ..., "key": ..., "data": ...}`, both ways.

A key is `key:order-7` where addresses are meant and `order-7` in the text. Text that is no such
object is plain text, and not this module's affair.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chappe.address import name_fault
from chappe.errors import BadRequest

PREFIX = "key:"
# What a message is called whose sender gave it no type, and what an error is called.
MESSAGE = "message"
ERROR = "error"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """A message in that form; what its sender left out is empty."""

    type: str = ""
    key: str = ""
    data: Any = None


def decode_keyed(text: str | bytes) -> Keyed | None:
    """Read a message; None for plain text. Raises BadRequest that names a field that is wrong."""
    try:
        found = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if not isinstance(found, dict):
        return None
    kind, key = found.get("type", ""), found.get("key", "")
    if not isinstance(kind, str):
        raise BadRequest("type: must be text")
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    elif key is None:
        key = ""
    elif not isinstance(key, str):
        raise BadRequest("key: must be text or a whole number")
    return Keyed(type=kind, key=key, data=found.get("data"))


def encode_keyed(kind: str, key: str, data: bytes) -> bytes:
    """Write a message whose data is JSON already."""
    return b'{"type":%b,"key":%b,"data":%b}' % (_encode(kind), _encode(key), data)


def key_name(key: str | int) -> str:
    """A key as it stands in the text, with or without `key:` before it; raises BadRequest."""
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if not isinstance(key, str):
        raise BadRequest(f"key: must be text or a whole number, not {type(key).__name__}")
    name = key.removeprefix(PREFIX)
    fault = name_fault(name)
    if fault:
        raise BadRequest(f"key: it {fault}")
    return name
