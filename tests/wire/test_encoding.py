"""Encodings: what a session of each kind gets is what its reader can read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.message import Message
from chappe.wire import packed, text
from chappe.wire.encoding import (
    EVENT_STREAM,
    JSON_ITEMS,
    STREAM,
    WEBSOCKET_PACKED,
    WEBSOCKET_PACKED_DEFLATED,
    WEBSOCKET_TEXT,
    WEBSOCKET_TEXT_DEFLATED,
)
from chappe.wire.ops import HUB_OPS, Error
from chappe.wire.websocket import BINARY, TEXT, inflate
from tests.wire.vocabulary import NO_QUEUE, messages, ops, plain


def websocket_bodies(data: bytes) -> list[tuple[int, bytes]]:
    """The (opcode, message) of each unmasked frame, read by the letter of RFC 6455."""
    seen = []
    while data:
        assert data[0] & 0b1011_0000 == 0b1000_0000
        assert not data[1] & 0x80
        size, at = data[1], 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
            assert size > 125
        elif size == 127:
            size, at = int.from_bytes(data[2:10], "big"), 10
            assert size > 65_535
        body = data[at : at + size]
        assert len(body) == size
        seen.append((data[0] & 0xF, inflate(body, 10**6) if data[0] & 0x40 else body))
        data = data[at + size :]
    return seen


def read_websocket_text(data: bytes):
    bodies = websocket_bodies(data)
    assert all(opcode == TEXT for opcode, _ in bodies)
    return [text.decode_hub_op(body) for _, body in bodies]


def read_websocket_packed(data: bytes):
    bodies = websocket_bodies(data)
    assert all(opcode == BINARY for opcode, _ in bodies)
    return [op for _, body in bodies for op in packed.read_hub_ops(packed.check_version(body))]


def read_stream(data: bytes):
    arrays = packed.Splitter(10**6).feed(data)
    return [op for array in arrays for op in packed.read_hub_ops(array)]


def read_items(data: bytes):
    whole = json.loads(b"[" + data + b"null]")[:-1]
    return [text.decode_hub_op(json.dumps(item).encode()) for item in whole]


def read_events(data: bytes):
    seen = []
    for block in data.split(b"\n\n")[:-1]:
        assert block.startswith(b"data: ")
        assert b"\n" not in block
        assert b"\r" not in block
        seen.append(text.decode_hub_op(block.removeprefix(b"data: ")))
    return seen


READERS = [
    (WEBSOCKET_TEXT, read_websocket_text),
    (WEBSOCKET_TEXT_DEFLATED, read_websocket_text),
    (WEBSOCKET_PACKED, read_websocket_packed),
    (WEBSOCKET_PACKED_DEFLATED, read_websocket_packed),
    (STREAM, read_stream),
    (JSON_ITEMS, read_items),
    (EVENT_STREAM, read_events),
]
each_encoding = pytest.mark.parametrize(
    ("encoding", "read"), READERS, ids=[encoding.name for encoding, _ in READERS]
)


def comparable(op):
    """The fields of an op; a JSON payload by its value, an id by its digits."""
    fields = plain(op)
    if fields.get("payload") and not fields["payload"][1]:
        fields["payload"] = json.loads(fields["payload"][0])
    if "message" in fields:
        fields["message"] = str(fields["message"])
    return fields


def expected(message: Message):
    payload = (message.payload, True) if message.binary else json.loads(message.payload)
    return {
        "message": str(message.id),
        "from_": message.sender,
        "to": message.to,
        "ts": message.ts_ms,
        "offset": message.offset,
        "payload": payload,
        **NO_QUEUE,
    }


@each_encoding
@given(op=st.sampled_from(HUB_OPS).flatmap(ops))
def test_an_op_is_read_back(encoding, read, op):
    (seen,) = read(encoding.op(op))
    assert comparable(seen) == comparable(op)


@each_encoding
@given(run=st.lists(messages, min_size=1, max_size=5))
def test_messages_are_read_back_in_order(encoding, read, run):
    wanted = [expected(message) for message in run]
    assert [comparable(op) for op in read(encoding.messages(run))] == wanted
    one_by_one = b"".join(encoding.message(message) for message in run)
    assert [comparable(op) for op in read(one_by_one)] == wanted


@each_encoding
@pytest.mark.parametrize("count", [2, 15, 16, 17, 5000])
def test_a_run_of_any_length_is_read_back(encoding, read, count):
    run = [Message(n + 1, "user:a", "topic:t", 1, b"%d" % n) for n in range(count)]
    seen = read(encoding.messages(run))
    assert [str(op.message) for op in seen] == [str(message.id) for message in run]


@each_encoding
def test_an_accepted_message_is_read_back(encoding, read):
    (reply,) = read(encoding.accepted(7, 2**62))
    assert (reply.id, reply.ok, str(reply.message)) == (7, True, str(2**62))


@each_encoding
@pytest.mark.parametrize("size", [1, 100, 125, 126, 256, 65_400, 65_535, 65_536, 200_000])
def test_every_length_is_read_back(encoding, read, size):
    op = Error(error="protocol", reason="x" * size)
    (seen,) = read(encoding.op(op))
    assert seen.reason == op.reason
    message = Message(1, "user:a", "user:b", 2, b"z" * size, binary=True)
    (seen,) = read(encoding.message(message))
    assert comparable(seen) == expected(message)


def test_compression_makes_large_frames_smaller_and_leaves_small_ones():
    message = Message(1, "user:a", "user:b", 2, b'"' + b"x" * 10_000 + b'"')
    assert len(WEBSOCKET_TEXT_DEFLATED.message(message)) < 500
    small = Error(error="protocol", reason="x")
    assert WEBSOCKET_TEXT_DEFLATED.op(small) == WEBSOCKET_TEXT.op(small)


def test_the_same_message_gives_the_same_compressed_bytes():
    # They are shared by every receiver: nothing of one connection may be in them.
    message = Message(1, "user:a", "user:b", 2, b'"' + b"x" * 1000 + b'"')
    first = WEBSOCKET_TEXT_DEFLATED.message(message)
    assert WEBSOCKET_TEXT_DEFLATED.message(message) == first


@pytest.mark.parametrize("size", [125, 126, 127, 65_535, 65_536, 65_537])
@pytest.mark.parametrize(
    ("encoding", "read", "encode"),
    [
        (WEBSOCKET_TEXT, read_websocket_text, text.encode_op),
        (WEBSOCKET_PACKED, read_websocket_packed, packed.encode_op),
    ],
    ids=["text", "packed"],
)
def test_a_body_at_the_edge_of_a_length_is_framed_right(encoding, read, encode, size):
    missing = size - len(encode(Error(error="protocol", reason="x" * (size - 40))))
    op = Error(error="protocol", reason="x" * (size - 40 + missing))
    assert len(encode(op)) == size
    (seen,) = read(encoding.op(op))
    assert seen.reason == op.reason


@pytest.mark.parametrize("payload", [b'{"a":\n1}', b'{"a":\r\n1}', b"[1,\r2]", b"\n\n1\n\n"])
def test_line_ends_between_tokens_do_not_end_an_event(payload):
    message = Message(1, "user:a", "user:b", 2, payload)
    (seen,) = read_events(EVENT_STREAM.message(message))
    assert comparable(seen) == expected(message)
