"""Datagrams between processes of rooms, without I/O: each proves that its sender has the secret.

    +------------+---------+-------------------+------------+-------------+------+--------+
    | version u8 | kind u8 | sender's life u64 | ticket u64 | counter u64 | body | mac 16 |
    +------------+---------+-------------------+------------+-------------+------+--------+

A life is drawn at random by each start of a process. Who has something to say to another asks for a
ticket first. The ticket, drawn at random by who gives it, says that all that carries it was made
after that; the counter, that it was not there before. So nothing that somebody has overheard is
taken again, whoever was started anew since, and no clocks are compared.

    sender                                           receiver
      HELLO    who I am, a nonce          ->
                                          <-         WELCOME  that nonce, a ticket
      PARCEL, PIECE, ..  with the ticket  ->
                                          <-         STRANGER  that ticket; only if it has no such

    HELLO:     nonce 16 | port u16 | host length u8, host | name length u8, name | zeros
    WELCOME:   nonce 16 | name length u8, name            the ticket stands in the head
    STRANGER:  nothing                                    ticket and counter are what it answers
    PARCEL:    [op, op, ..]                               see rooms.py
    PIECE:     id u32 | index u16 | count u16 | part      see parcel.py

All five are sealed with a key that is the receiver's, made of the cluster's and of where it takes
datagrams: what was meant for another is not taken, nor what comes back from where it went. An
answer goes to where a datagram came from, which may be a lie, so it is never the larger of the two:
a HELLO is filled up with zeros, and a STRANGER is as small as a datagram can be.
"""

from __future__ import annotations

import hmac
import struct
from enum import IntEnum
from hashlib import blake2b

import msgspec

from chappe.errors import RemoteProtocolError

VERSION = 1
NONCE_BYTES = 16
NAME_BYTES_MAX = 255
HOST_BYTES_MAX = 255

_HEAD = struct.Struct("!BBQQQ")
_PORT = struct.Struct("!H")
HEAD_BYTES = _HEAD.size
MAC_BYTES = 16
# Around every body.
OVERHEAD_BYTES = HEAD_BYTES + MAC_BYTES
# UDP has no more.
DATAGRAM_BYTES_MAX = 65_507
# The largest WELCOME there is.
HELLO_BYTES_MIN = OVERHEAD_BYTES + NONCE_BYTES + 1 + NAME_BYTES_MAX
_KEY_LABEL, _SEAL_LABEL = b"chappe datagram1", b"chappe endpoint1"
_KEY_BYTES = 32

Readable = bytes | memoryview


class Kind(IntEnum):
    """What a datagram is."""

    HELLO = 1
    WELCOME = 2
    STRANGER = 3
    PARCEL = 4
    PIECE = 5


class BadDatagram(RemoteProtocolError):
    """A datagram that is not taken. `cause` is one of few words, to be counted."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"a datagram was refused: {cause}")
        self.cause = cause


class Hello(msgspec.Struct, frozen=True):
    """Who somebody is: where it takes datagrams, and the name of its node."""

    nonce: bytes
    host: str
    port: int
    name: str


def datagram_key(secret: bytes, cluster: str) -> bytes:
    """The key of a cluster's datagrams: the secret itself may have other uses."""
    said = len(secret).to_bytes(4, "big") + secret + cluster.encode()
    return blake2b(said, digest_size=_KEY_BYTES, person=_KEY_LABEL).digest()


class Seal:
    """Makes and checks the MACs of all that is said to one receiver, and of what it answers."""

    __slots__ = ("_fresh",)

    def __init__(self, key: bytes, host: str, port: int) -> None:
        where = _PORT.pack(port) + host.encode()
        own = blake2b(where, key=key, digest_size=_KEY_BYTES, person=_SEAL_LABEL).digest()
        # To copy what has read the key is faster than to have it read again.
        self._fresh = blake2b(key=own, digest_size=MAC_BYTES)

    def write(self, kind: Kind, life: int, ticket: int, counter: int, body: bytes = b"") -> bytes:
        """A whole datagram."""
        data = _HEAD.pack(VERSION, kind, life, ticket, counter) + body
        mac = self._fresh.copy()
        mac.update(data)
        return data + mac.digest()

    def check(self, datagram: bytes) -> None:
        """Raise BadDatagram for one that nobody with the key has made."""
        mac = self._fresh.copy()
        mac.update(memoryview(datagram)[:-MAC_BYTES])
        if not hmac.compare_digest(mac.digest(), datagram[-MAC_BYTES:]):
            raise BadDatagram("mac")


def read_head(datagram: bytes) -> tuple[int, int, int, int]:
    """The kind, life, ticket and counter, which nobody has checked yet; raises BadDatagram."""
    if not OVERHEAD_BYTES <= len(datagram) <= DATAGRAM_BYTES_MAX:
        raise BadDatagram("length")
    version, kind, life, ticket, counter = _HEAD.unpack_from(datagram)
    if version != VERSION:
        raise BadDatagram("version")
    return kind, life, ticket, counter


def body_of(datagram: bytes) -> memoryview:
    """What stands between head and MAC."""
    return memoryview(datagram)[HEAD_BYTES:-MAC_BYTES]


def write_hello(hello: Hello) -> bytes:
    """The body of a HELLO, which is no smaller than that of any WELCOME."""
    assert len(hello.nonce) == NONCE_BYTES
    said = b"".join(
        (hello.nonce, _PORT.pack(hello.port), _write_text(hello.host), _write_text(hello.name))
    )
    return said.ljust(HELLO_BYTES_MIN - OVERHEAD_BYTES, b"\0")


def read_hello(body: Readable) -> Hello:
    """Read the body of a HELLO; raises BadDatagram."""
    if len(body) < HELLO_BYTES_MIN - OVERHEAD_BYTES:
        raise BadDatagram("length")
    (port,) = _PORT.unpack_from(body, NONCE_BYTES)
    host, end = _read_text(body, NONCE_BYTES + _PORT.size)
    name, end = _read_text(body, end)
    return Hello(bytes(body[:NONCE_BYTES]), host, port, name)


def write_welcome(nonce: bytes, name: str) -> bytes:
    """The body of a WELCOME."""
    return nonce + _write_text(name)


def read_welcome(body: Readable) -> tuple[bytes, str]:
    """The nonce and the name in the body of a WELCOME; raises BadDatagram."""
    name, end = _read_text(body, NONCE_BYTES)
    if end != len(body):
        raise BadDatagram("garbage")
    return bytes(body[:NONCE_BYTES]), name


def _write_text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(1, "big") + data


def _read_text(data: Readable, at: int) -> tuple[str, int]:
    """The text that begins with its length there, and where it ends."""
    if at >= len(data):
        raise BadDatagram("garbage")
    end = at + 1 + data[at]
    if end > len(data) or end == at + 1:
        raise BadDatagram("garbage")
    try:
        return str(data[at + 1 : end], "utf-8"), end
    except UnicodeDecodeError:
        raise BadDatagram("garbage") from None
