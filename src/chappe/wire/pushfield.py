"""The fields that frames of push are made of, big-endian, lengths and counts unsigned (P2).

    byte            string, bytes                    strings, messages
    +----------+    +------------+-------------+    +----------+------+------+ - - -
    | value u8 |    | length u16 | length bytes |   | count u8 | item | item |
    +----------+    +------------+-------------+    +----------+------+------+ - - -

    long, milliseconds since 1970
    +-----------+
    | value i64 |   never negative
    +-----------+

A reader looks whether bytes are there before it takes them; whatever is wrong is said with the
name of its field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from chappe.errors import LocalProtocolError, RemoteProtocolError

SHORT_MAX = 2**16 - 1
COUNT_MAX = 2**8 - 1
LONG_MAX = 2**63 - 1

SHORT = struct.Struct("!H")
_LONG = struct.Struct("!q")
T = TypeVar("T")


class Reader:
    """Takes fields from the front of a frame; each raises RemoteProtocolError."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def byte(self, field: str) -> int:
        return self.take(field, 1)[0]

    def long(self, field: str) -> int:
        (value,) = _LONG.unpack(self.take(field, _LONG.size))
        if value < 0:
            raise RemoteProtocolError(f"{field}: {value} is negative")
        return int(value)

    def blob(self, field: str) -> bytes:
        (size,) = SHORT.unpack(self.take(field, SHORT.size))
        return self.take(field, size)

    def string(self, field: str) -> str:
        try:
            return self.blob(field).decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError(f"{field}: not UTF-8") from None

    def take(self, field: str, size: int) -> bytes:
        """The next bytes, if there are as many."""
        stop = self._at + size
        if stop > len(self._data):
            left = len(self._data) - self._at
            raise RemoteProtocolError(f"{field}: cut short, {size} bytes wanted, {left} left")
        taken = self._data[self._at : stop]
        self._at = stop
        return taken

    def listed(self, field: str, read: Callable[[Reader], T], item_bytes_min: int) -> tuple[T, ...]:
        """As many items as are counted; not one is read unless all of them could be there."""
        count = self.byte(field)
        left = len(self._data) - self._at
        if count * item_bytes_min > left:
            raise RemoteProtocolError(f"{field}: cut short, {count} counted, {left} bytes left")
        return tuple([read(self) for _ in range(count)])

    def end(self, what: str) -> None:
        """Nothing may be left."""
        left = len(self._data) - self._at
        if left:
            raise RemoteProtocolError(f"{what}: {left} bytes too many")


class Kind(NamedTuple, Generic[T]):
    """How one field is written, and read; writing raises LocalProtocolError."""

    write: Callable[[str, T], bytes]
    read: Callable[[Reader, str], T]


def write_byte(field: str, value: int) -> bytes:
    if not 0 <= value <= COUNT_MAX:
        raise LocalProtocolError(f"{field}: {value} is not between 0 and {COUNT_MAX}")
    return bytes((value,))


def write_long(field: str, value: int) -> bytes:
    if not 0 <= value <= LONG_MAX:
        raise LocalProtocolError(f"{field}: {value} is not between 0 and {LONG_MAX}")
    return _LONG.pack(value)


def write_blob(field: str, value: bytes) -> bytes:
    if len(value) > SHORT_MAX:
        raise LocalProtocolError(f"{field}: {len(value)} bytes, {SHORT_MAX} are allowed")
    return SHORT.pack(len(value)) + value


def write_string(field: str, value: str) -> bytes:
    try:
        return write_blob(field, value.encode())
    except UnicodeEncodeError:
        raise LocalProtocolError(f"{field}: not UTF-8") from None


def write_strings(field: str, values: tuple[str, ...]) -> bytes:
    return write_items(field, [write_string(field, value) for value in values])


def write_items(field: str, items: list[bytes]) -> bytes:
    """A list whose items are encoded already."""
    if len(items) > COUNT_MAX:
        raise LocalProtocolError(f"{field}: {len(items)} items, {COUNT_MAX} are allowed in a frame")
    return bytes((len(items),)) + b"".join(items)


def read_strings(reader: Reader, field: str) -> tuple[str, ...]:
    return reader.listed(field, lambda rest: rest.string(field), SHORT.size)


BYTE = Kind(write_byte, Reader.byte)
BYTES = Kind(write_blob, Reader.blob)
STRING = Kind(write_string, Reader.string)
STRINGS = Kind(write_strings, read_strings)
