"""Links between nodes, without I/O: four messages that prove who is there, then numbered frames.

Both sides know the cluster's secret and neither ever sends it. Whoever dials shows nothing but a
nonce, and gets nothing but a nonce; only then each states who it is, and proves with a MAC over all
that was said that it knows the secret. A stranger who connects learns that something listens.

    dialler                                      acceptor
      1  kind u8, nonce 32        ->
                                  <-           2  kind u8, nonce 32
      3  kind u8, statement, mac  ->
                                  <-           4  kind u8, statement, mac
      the first frame             ->           the link is up on both sides

    statement:  version u16 | incarnation u64 | attempt u64
                | name length u8, name | expected length u8, expected

The two MACs carry different labels, the cluster's name and both nonces, so that neither can be
reflected, replayed, or used in another cluster; the second covers the first statement as well. The
MACs cover the handshake, not the frames: against somebody who sits on the way there is TLS.

    frame:  number u64 | kind u8 | body

Numbers begin at 0 on each link. A number that was there before is a duplicate, and is ignored; one
that skips others means that something is lost, and the link with it.
"""

from __future__ import annotations

import hmac
import struct
from enum import IntEnum
from hashlib import sha256

import msgspec

from chappe.errors import ChappeError, RemoteProtocolError

# Since 2 a pong tells microseconds, before that milliseconds.
VERSION = 2
VERSION_MIN = 1
NONCE_BYTES = 32
SECRET_BYTES_MIN = 32
NAME_BYTES_MAX = 255
INCARNATION_MAX = 2**63 - 1
# The largest message of a handshake: whatever is longer is not one.
HANDSHAKE_BYTES_MAX = 1024

_MAC_BYTES = 32
_DIALLER_HELLO, _ACCEPTOR_HELLO, _DIALLER_PROOF, _ACCEPTOR_PROOF = (
    b"\x01",
    b"\x02",
    b"\x03",
    b"\x04",
)
_DIALLER_LABEL, _ACCEPTOR_LABEL = b"chappe link dialler", b"chappe link acceptor"
_KEY_LABEL = b"chappe link key 1"
_FIXED = struct.Struct("!HQQ")
_HEAD = struct.Struct("!QB")
_PING = struct.Struct("!d")
_PONG = struct.Struct("!dq")
HEAD_BYTES = _HEAD.size
_MICROSECONDS = 2

Readable = bytes | memoryview


class Refused(ChappeError):
    """A handshake failed. `cause` is one of few words, to be counted.

    `proven` tells that the peer knows the secret, and may be told why.
    """

    def __init__(self, cause: str, reason: str, *, proven: bool = False) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.proven = proven


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself; `expected` is whom it thinks it talks to, "" for anybody.

    `attempt` grows with each link that a run of a node dials: of two, the later one counts.
    """

    name: str
    incarnation: int
    version: int = VERSION
    attempt: int = 0
    expected: str = ""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs to prove itself, and to check others; never logged."""

    key: bytes
    cluster: str
    name: str
    incarnation: int
    version: int = VERSION
    version_min: int = VERSION_MIN

    def __repr__(self) -> str:
        return f"Credentials(cluster={self.cluster!r}, name={self.name!r})"


def link_key(secret: bytes) -> bytes:
    """The key of the links' MACs: the secret itself may have other uses."""
    return hmac.digest(secret, _KEY_LABEL, sha256)


class _Handshake:
    """What both sides of a handshake share."""

    _dialler_nonce = b""
    _acceptor_nonce = b""

    def __init__(self, credentials: Credentials, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        self._credentials = credentials
        self._nonce = nonce
        # Set once the peer has proven itself.
        self.peer: Statement | None = None

    @property
    def version(self) -> int:
        """The version that both sides speak."""
        assert self.peer is not None
        return min(self._credentials.version, self.peer.version)

    def _mac(self, label: bytes, *said: bytes) -> bytes:
        mine = self._credentials
        parts = (
            label,
            mine.cluster.encode(),
            self._dialler_nonce,
            self._acceptor_nonce,
            *said,
        )
        # With its length before each part, no two lists of parts give the same bytes.
        data = b"".join([len(part).to_bytes(4, "big") + part for part in parts])
        return hmac.digest(mine.key, data, sha256)

    def _check_nonce(self, message: bytes, kind: bytes) -> bytes:
        if len(message) != 1 + NONCE_BYTES or message[:1] != kind:
            raise Refused("garbage", "not a nonce")
        nonce = message[1:]
        if nonce == self._nonce:
            raise Refused("reflection", "the nonce of this side came back")
        return nonce

    def _take_proof(
        self, message: bytes, kind: bytes, label: bytes, *before: bytes
    ) -> tuple[Statement, bytes]:
        """What a proof states, read and as it came; raises Refused."""
        if len(message) > HANDSHAKE_BYTES_MAX or message[:1] != kind:
            raise Refused("garbage", "not a proof")
        said, mac = message[1:-_MAC_BYTES], message[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(label, *before, said)):
            raise Refused("secret", "another secret, another cluster, or a replay")
        # Only who knows the secret gets this far.
        peer = _read_statement(said)
        mine = self._credentials
        if peer.version < mine.version_min:
            raise Refused(
                "version",
                f"version {peer.version}; at least {mine.version_min}, please",
                proven=True,
            )
        if peer.expected not in ("", mine.name):
            raise Refused("name", f"this is not {peer.expected!r}", proven=True)
        if peer.name == mine.name:
            if peer.incarnation == mine.incarnation:
                raise Refused("itself", "a node does not link to itself", proven=True)
            raise Refused("name", f"two nodes are called {peer.name!r}", proven=True)
        return peer, said

    def _state(self, attempt: int, expected: str) -> bytes:
        mine = self._credentials
        return _write_statement(
            Statement(
                name=mine.name,
                incarnation=mine.incarnation,
                version=mine.version,
                attempt=attempt,
                expected=expected,
            )
        )


class Dialling(_Handshake):
    """The dialler's side: send `hello`, answer the nonce with a proof, check the last message."""

    def __init__(
        self, credentials: Credentials, nonce: bytes, *, expected: str = "", attempt: int = 0
    ) -> None:
        super().__init__(credentials, nonce)
        self._dialler_nonce = nonce
        self._expected = expected
        self._attempt = attempt
        self._said: bytes | None = None

    @property
    def nonce(self) -> bytes:
        """What tells this handshake from all others."""
        return self._nonce

    def hello(self) -> bytes:
        """The first message."""
        return _DIALLER_HELLO + self._nonce

    def take(self, message: bytes) -> bytes | None:
        """Take the acceptor's next message; return what to answer, None when all is proven.

        Raises Refused.
        """
        if self._said is None:
            self._acceptor_nonce = self._check_nonce(message, _ACCEPTOR_HELLO)
            self._said = self._state(self._attempt, self._expected)
            return _DIALLER_PROOF + self._said + self._mac(_DIALLER_LABEL, self._said)
        assert self.peer is None
        peer, _ = self._take_proof(message, _ACCEPTOR_PROOF, _ACCEPTOR_LABEL, self._said)
        if self._expected not in ("", peer.name):
            raise Refused("name", f"{peer.name!r} answered in its place", proven=True)
        self.peer = peer
        return None


class Accepting(_Handshake):
    """The acceptor's side: a nonce for a nonce, a proof for a proof."""

    def __init__(self, credentials: Credentials, nonce: bytes) -> None:
        super().__init__(credentials, nonce)
        self._acceptor_nonce = nonce

    @property
    def dialler_nonce(self) -> bytes:
        """The nonce that the dialler has sent; empty before."""
        return self._dialler_nonce

    def take(self, message: bytes) -> bytes:
        """Take the dialler's next message and return the answer; `peer` is set by the second.

        Raises Refused.
        """
        assert self.peer is None
        if not self._dialler_nonce:
            self._dialler_nonce = self._check_nonce(message, _DIALLER_HELLO)
            return _ACCEPTOR_HELLO + self._nonce
        peer, said = self._take_proof(message, _DIALLER_PROOF, _DIALLER_LABEL)
        self.peer = peer
        mine = self._state(peer.attempt, peer.name)
        return _ACCEPTOR_PROOF + mine + self._mac(_ACCEPTOR_LABEL, said, mine)


def _write_statement(statement: Statement) -> bytes:
    name, expected = statement.name.encode(), statement.expected.encode()
    fixed = _FIXED.pack(statement.version, statement.incarnation, statement.attempt)
    return b"".join(
        (fixed, len(name).to_bytes(1, "big"), name, len(expected).to_bytes(1, "big"), expected)
    )


def _read_statement(data: bytes) -> Statement:
    """Read what a peer that knows the secret has said; raises Refused."""
    try:
        version, incarnation, attempt = _FIXED.unpack_from(data)
        name, rest = _read_text(data[_FIXED.size :])
        expected, rest = _read_text(rest)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise Refused("garbage", "not a statement", proven=True) from None
    if rest or not name:
        raise Refused("garbage", "not a statement", proven=True)
    return Statement(
        name=name, incarnation=incarnation, version=version, attempt=attempt, expected=expected
    )


def _read_text(data: bytes) -> tuple[str, bytes]:
    end = 1 + data[0]
    if len(data) < end:
        raise IndexError
    return data[1:end].decode(), data[end:]


class FrameKind(IntEnum):
    """What a frame carries."""

    BODY = 0
    PING = 1
    PONG = 2


class Frames:
    """Numbers the frames of one link as they go, and checks the numbers of those that come."""

    __slots__ = ("_next_in", "_next_out", "bytes_max", "duplicates")

    def __init__(self, bytes_max: int) -> None:
        self._next_out = 0
        self._next_in = 0
        self.bytes_max = bytes_max
        self.duplicates = 0

    def head(self, kind: FrameKind = FrameKind.BODY) -> bytes:
        """What stands before the body of the next frame."""
        head = _HEAD.pack(self._next_out, kind)
        self._next_out += 1
        return head

    def take(self, frame: Readable) -> tuple[int, bytes] | None:
        """The kind and body of the next frame; None for one that was there before.

        Raises RemoteProtocolError for a gap, or what is no frame.
        """
        if not HEAD_BYTES <= len(frame) <= self.bytes_max:
            raise RemoteProtocolError(f"a frame of {len(frame)} bytes")
        number, kind = _HEAD.unpack_from(frame)
        if number != self._next_in:
            if number < self._next_in:
                self.duplicates += 1
                return None
            raise RemoteProtocolError(f"gap: frame {number} came in the place of {self._next_in}")
        self._next_in += 1
        return kind, bytes(frame[HEAD_BYTES:])


def write_ping(sent_at: float) -> bytes:
    """The body of a ping: the sender's own time, which only it understands."""
    return _PING.pack(sent_at)


def write_pong(ping: bytes, wall_us: int, version: int = VERSION) -> bytes:
    """The body of a pong: a ping's, and the wall clock of who answers, in microseconds.

    Raises RemoteProtocolError when that was no ping.
    """
    if len(ping) != _PING.size:
        raise RemoteProtocolError("a ping of another size")
    wall = wall_us if version >= _MICROSECONDS else wall_us // 1000
    return ping + wall.to_bytes(8, "big", signed=True)


def read_pong(body: bytes, version: int = VERSION) -> tuple[float, int]:
    """The time in the ping that was answered, and the peer's wall clock in microseconds.

    Raises RemoteProtocolError.
    """
    if len(body) != _PONG.size:
        raise RemoteProtocolError("a pong of another size")
    sent_at, wall = _PONG.unpack(body)
    return sent_at, wall if version >= _MICROSECONDS else wall * 1000
