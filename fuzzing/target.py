"""Targets: what reads strangers' bytes, with examples of good ones."""

from __future__ import annotations

import secrets
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jwt
import msgspec

from chappe.access.token import AUDIENCE, Key, TokenAuthenticator
from chappe.address import parse_address
from chappe.clock import SystemClock
from chappe.errors import BadRequest, ChappeError, Forbidden, RemoteProtocolError
from chappe.log.batch import Batch, encode_batch, read_batch
from chappe.log.raw import check_raw
from chappe.message import Message
from chappe.wire import bus, packed, text
from chappe.wire.bus import Answers, Close, Deliver, decode_envelope, encode_envelope
from chappe.wire.keyed import decode_keyed
from chappe.wire.limits import Limits
from chappe.wire.link import (
    Accepting,
    Credentials,
    Dialling,
    FrameKind,
    Frames,
    Refused,
    link_key,
    read_pong,
    write_ping,
    write_pong,
)
from chappe.wire.node import (
    Changed,
    Forward,
    Introduce,
    NodeOp,
    Recovered,
    Returned,
    Routes,
    VisitPart,
    decode_node_ops,
    encode_node_ops,
)
from chappe.wire.ops import (
    CLIENT_OPS,
    Fetch,
    Hello,
    Op,
    Ping,
    Publish,
    Raw,
    Reply,
    Request,
    Send,
    Subscribe,
)
from chappe.wire.payload import take_payload
from chappe.wire.websocket import BINARY, Assembler, check_close, deflate, deflate_answer, inflate
from fuzzing.push import (
    COMET_PARTS,
    DEVICE_PARTS,
    PUSH_COMMANDS,
    PUSH_RESPONSES,
    PUSH_STREAMS,
    agree_with_comet,
    agree_with_device,
    read_push_command,
    read_push_response,
    split_push,
)
from fuzzing.rooms import DATAGRAMS, ROOM_ARRAYS, read_datagram, read_room_ops

_KEYED = (
    b'{"type":"watch","key":"order-7","data":{"n":[1,2.5,null]}}',
    b'{"type":"watch","key":7}',
    b"hello",
)
_ENVELOPES = (
    encode_envelope("a-1", [Deliver(1, 2, 3, "k", b"\x00\xff", True), Answers([(1, 2)])]),
    encode_envelope("b", [Close(4, "k", 4000, "bye"), bus.Changed(5, ["k"]), bus.Changed(6, None)]),
)
LIMITS = Limits(message_bytes_max=16_384, fragments_max=64, inflated_bytes_max=32_768)
_OPS: tuple[Op, ...] = (
    Hello(id=1, as_="user:a", token="t", app="shop"),
    Ping(id=2),
    Send(id=3, to=["user:b", "user:c"], data=Raw(b'{"a":[1,"\xc3\xa9"]}'), headers={"h": "v"}),
    Send(id=4, to="queue:q", data64="AP8=", key="k", tags=["t"], delay_ms=1, producer="p", seq=2),
    Publish(id=5, to="topic:t", data=Raw(b"null"), reliable=True),
    Subscribe(id=6, to="topic:t"),
    Fetch(id=7, to="queue:q", n=2, wait_ms=10, group="g", tags=["t"]),
    Request(id=8, to="service:s", data=Raw(b"1.5e3")),
    Reply(id=9, ok=False, error="overload", reason="full", verdicts={"user:b": "ok"}),
)
_MESSAGES = [
    Message(7, "user:a", "user:b", 1_700_000_000_000, b'{"a":1}'),
    Message(8, 'user:"', "topic:t", 1_700_000_000_000, b"\x00\xff", binary=True),
]
_NODE_OPS: tuple[NodeOp, ...] = (
    Forward("shop", 1, _MESSAGES),
    Returned(1, "shop", "unreachable", "gone", _MESSAGES[0], True),
    Routes(1, "shop", ["user:a", "user:b"], True),
    Changed(2, [("shop", "user:a")], [("shop", "user:b")], 1_700_000_000_000),
    Recovered(3, "epoch", 2, True, _MESSAGES),
    Introduce("session.node", "shop", "user:a", {"send": ["user:*"]}),
    VisitPart(4, b"\x00\xff", True),
)


@dataclass(frozen=True)
class Target:
    """A reader, the inputs it accepts, and the errors it declares."""

    name: str
    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    errors: tuple[type[ChappeError], ...]
    memory_bytes_max: int = 4 * 1024 * 1024


def targets() -> list[Target]:
    """Every target, made anew."""
    token = _Token()
    packed_ops = tuple(map(packed.encode_op, _OPS))
    many = packed.encode_ops(packed_ops)
    deliveries = tuple(packed.encode_messages(_MESSAGES))
    protocol = (RemoteProtocolError,)
    return [
        Target(
            "text",
            _read_text,
            (*map(text.encode_op, _OPS), *text.encode_messages(_MESSAGES)),
            (RemoteProtocolError, BadRequest),
        ),
        Target("packed", _read_packed, (*packed_ops, many, *deliveries), (*protocol, BadRequest)),
        Target("splitter", _split, tuple(b"\x05" + packed.frame(b) for b in packed_ops), protocol),
        Target("assembler", _assemble, _RUNS, protocol),
        Target("inflate", _inflate, _DEFLATED, protocol),
        Target("close", _close, (b"\x03\xe8bye", b"", b"\x0f\xa0\xc3\xa9"), protocol),
        Target("deflate-offer", _offer, _OFFERS, ()),
        Target("node-ops", _node_ops, _NODE_FRAMES, protocol),
        Target("link-frames", _link_frames, _LINK_FRAMES, protocol),
        Target("link-handshake", _link_handshake, _link_talk(), (Refused,)),
        Target("room-ops", read_room_ops, ROOM_ARRAYS, protocol),
        Target("datagram", read_datagram, DATAGRAMS, ()),
        Target("push-commands", read_push_command, PUSH_COMMANDS, protocol),
        Target("push-responses", read_push_response, PUSH_RESPONSES, protocol),
        Target("push-splitter", split_push, PUSH_STREAMS, protocol),
        Target("push-comet-key", agree_with_comet, COMET_PARTS, protocol),
        Target("push-device-key", agree_with_device, DEVICE_PARTS, protocol),
        Target("keyed", decode_keyed, _KEYED, (BadRequest,)),
        Target("envelope", decode_envelope, _ENVELOPES, protocol),
        Target("batch", _batch, _BATCHES, ()),
        Target("raw-batches", _raw_batches, _BATCHES, (BadRequest, Forbidden)),
        Target("address", _address, _ADDRESSES, (BadRequest,)),
        Target("token", token.verify, token.tokens(), (Forbidden,)),
        Target("token-header", token.verify_header, token.headers(), (Forbidden,)),
        Target("claims", token.verify_claims, token.claims(), (Forbidden,)),
    ]


def _read_text(data: bytes) -> None:
    for read in (text.decode_hub_op, text.decode_client_op):
        try:
            op = read(data)
        except RemoteProtocolError:
            continue
        _take(op)


def _read_packed(data: bytes) -> None:
    array = packed.check_version(data)
    for read in (packed.read_hub_ops, packed.read_client_ops):
        try:
            ops = read(array)
        except RemoteProtocolError:
            continue
        for op in ops:
            _take(op)


def _take(op: Op) -> None:
    """Go on as a hub would: what was read can be written again and read as the same."""
    if getattr(op, "data64", None) or getattr(op, "data", None):
        take_payload(op)  # type: ignore[arg-type]
    encoded = packed.encode_op(op)
    read = packed.decode_client_op if isinstance(op, CLIENT_OPS) else packed.decode_hub_op
    assert packed.encode_op(read(encoded)) == encoded


def _split(data: bytes) -> None:
    step = max(1, data[0]) if data else 1
    splitter = packed.Splitter(LIMITS.message_bytes_max)
    for at in range(1, len(data), step):
        for array in splitter.feed(data[at : at + step]):
            assert len(array) <= LIMITS.message_bytes_max


def _assemble(data: bytes) -> None:
    """Frames of one byte of flags, one byte of length, and as much payload as is left."""
    assembler = Assembler(LIMITS, deflate=True)
    while len(data) >= 2:
        first, size = data[0], data[1]
        payload, data = data[2 : 2 + size], data[2 + size :]
        message = assembler.feed(first & 0x3, bool(first & 0x80), first >> 4 & 0x7, payload)
        assert message is None or len(message[1]) <= LIMITS.inflated_bytes_max


def _inflate(data: bytes) -> None:
    assert len(inflate(data, LIMITS.inflated_bytes_max)) <= LIMITS.inflated_bytes_max


def _close(data: bytes) -> None:
    check_close(data)


def _offer(data: bytes) -> None:
    deflate_answer(data.decode("latin-1"))


def _node_ops(data: bytes) -> None:
    """What was read can be written again and read as the same."""
    ops = decode_node_ops(data)
    assert decode_node_ops(encode_node_ops(ops)) == ops


def _link_frames(data: bytes) -> None:
    """Frames of two bytes of length and as much as is left; a ping is answered, a pong read."""
    frames = Frames(LIMITS.message_bytes_max)
    while len(data) >= 2:
        size = int.from_bytes(data[:2])
        taken = frames.take(data[2 : 2 + size])
        data = data[2 + size :]
        if taken is not None and taken[0] == FrameKind.PING:
            write_pong(taken[1], 0)
        elif taken is not None and taken[0] == FrameKind.PONG:
            read_pong(taken[1])


def _dialling(name: str) -> Dialling:
    return Dialling(_link_credentials(name), b"d" * 32, expected="b", attempt=1)


def _accepting(name: str) -> Accepting:
    return Accepting(_link_credentials(name), b"a" * 32)


def _link_credentials(name: str) -> Credentials:
    return Credentials(key=link_key(b"s" * 32), cluster="chappe", name=name, incarnation=1)


def _link_talk() -> tuple[bytes, ...]:
    """The four messages of a handshake, each behind a byte that says who it is for."""
    dialler, acceptor = _dialling("a"), _accepting("b")
    hello = dialler.hello()
    answer = acceptor.take(hello)
    proof = dialler.take(answer)
    assert proof is not None
    return b"\0" + hello, b"\1" + answer, b"\2" + proof, b"\3" + acceptor.take(proof)


def _link_handshake(data: bytes) -> None:
    """Anybody can dial a cluster's port, or listen where a node was: none gets further."""
    turn, message = (data[0] & 3 if data else 0), data[1:]
    talk = [said[1:] for said in _link_talk()]
    side: Dialling | Accepting = _dialling("a") if turn & 1 else _accepting("b")
    if turn & 2:
        side.take(talk[turn & 1])
    side.take(message)
    assert side.peer is None or message == talk[turn]


def _batch(data: bytes) -> None:
    """What is read as a batch is the very one that was written."""
    batch = read_batch(data)
    if not isinstance(batch, Batch):
        return
    again = encode_batch(
        [batch.body],
        lsn=batch.lsn,
        epoch=batch.epoch,
        ts_ms=batch.ts_ms,
        count=batch.count,
        first=batch.first,
    )
    assert again == batch.data == data[: len(again)]


def _raw_batches(data: bytes) -> None:
    """A master's batches are taken whole or not at all."""
    batches = check_raw(data, 0, 1, begins=True)
    assert b"".join(batch.data for batch in batches) == data


def _address(data: bytes) -> None:
    # Half of a surrogate pair stands for each byte that is not UTF-8.
    address = parse_address(data.decode("utf-8", "surrogateescape"))
    assert parse_address(str(address)) == address


class _Token:
    """Tokens of a key that only this process knows."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(32)
        with tempfile.NamedTemporaryFile("w", suffix=".key") as file:
            file.write(self._secret)
            file.flush()
            key = Key(id="k1", file=str(Path(file.name)), app="shop")
            self._authenticator = TokenAuthenticator([key], SystemClock())

    def claims(self) -> tuple[bytes, ...]:
        exp = 4_102_444_800
        base = {"app": "shop", "sub": "user:a", "exp": exp, "aud": AUDIENCE, "jti": "1"}
        scopes = {"send": ["user:*"], "publish": ["topic:a.*"], "subscribe": [], "admin": ["*"]}
        return (
            msgspec.json.encode(base),
            msgspec.json.encode(base | scopes | {"nbf": 1, "iat": 1}),
            msgspec.json.encode(base | {"aud": [AUDIENCE, "x"], "exp": float(exp)}),
        )

    def tokens(self) -> tuple[bytes, ...]:
        headers = {"kid": "k1"}
        return tuple(self._sign(claims, headers).encode() for claims in self.claims())

    def verify(self, data: bytes) -> None:
        self._authenticator.verify(data.decode("utf-8", "replace"))

    def headers(self) -> tuple[bytes, ...]:
        return (
            b'{"alg":"HS256","typ":"JWT","kid":"k1"}',
            b'{"alg":"none","crit":["b64"],"b64":false}',
        )

    def verify_header(self, data: bytes) -> None:
        """Anybody can write a header; nothing of it is signed yet when it is read."""
        header = urlsafe_b64encode(data).rstrip(b"=").decode()
        rest = self.tokens()[0].decode().split(".", 1)[1]
        self._authenticator.verify(f"{header}.{rest}")

    def verify_claims(self, data: bytes) -> None:
        """Whatever was signed, the key's owner may have made a mistake."""
        self._authenticator.verify(self._sign(data, {"kid": "k1"}))

    def _sign(self, claims: bytes, headers: dict[str, str]) -> str:
        return jwt.api_jws.encode(claims, self._secret, algorithm="HS256", headers=headers)


_DEFLATED = (
    deflate(b""),
    deflate(b"hello " * 100),
    deflate(bytes(30_000)),
    deflate(bytes(1_000_000)),
)
_RUNS = (
    b"\x81\x05hello",
    b"\x01\x03hel\x80\x02lo\x82\x01\xff",
    b"\x01\x01\xc3\x80\x01\xa9",
    bytes([0xC0 | BINARY, len(_DEFLATED[1])]) + _DEFLATED[1],
)
_NODE_FRAMES = (encode_node_ops(_NODE_OPS), *(encode_node_ops([op]) for op in _NODE_OPS))


def _framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(2) + frame for frame in frames)


def _numbered() -> tuple[bytes, ...]:
    frames = Frames(LIMITS.message_bytes_max)
    ping, pong = write_ping(1.5), write_pong(write_ping(2.5), 1_700_000_000_000)
    return (
        frames.head(FrameKind.PING) + ping,
        frames.head() + _NODE_FRAMES[0],
        frames.head(FrameKind.PONG) + pong,
    )


_LINK_FRAMES = (_framed(*_numbered()), _framed(_numbered()[0]), _framed(_numbered()[0]) * 2)
_BATCH = encode_batch([b"\x01", b"\xa1a"], lsn=0, epoch=1, ts_ms=1, count=2, first=True)
_BATCHES = (
    _BATCH,
    encode_batch([], lsn=2**40, epoch=2**40, ts_ms=1_700_000_000_000, count=0),
    _BATCH + encode_batch([b"\xc0" * 300], lsn=len(_BATCH), epoch=2, ts_ms=2, count=300),
)
_OFFERS = (
    b"permessage-deflate",
    b'permessage-deflate; client_max_window_bits="9"; server_max_window_bits=15',
    b"x-other; a=b, permessage-deflate; server_no_context_takeover",
)
_ADDRESSES = (b"user:alice", b"topic:a.b/c", "room:\u65e5\u672c".encode(), b"key:" + b"x" * 255)
