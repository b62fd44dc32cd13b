"""The packed form: golden bytes, round trips, and refusals."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import BadRequest, RemoteProtocolError
from chappe.message import Message
from chappe.wire import packed, text
from chappe.wire.ops import (
    CLIENT_OPS,
    CODES,
    HUB_OPS,
    PACKED,
    Ack,
    Avatar,
    Cancel,
    Closed,
    Consume,
    Create,
    Delete,
    Delivery,
    Dropped,
    Error,
    Fetch,
    Hello,
    Inspect,
    Join,
    Leave,
    Letters,
    Members,
    Nack,
    Ping,
    Pong,
    Position,
    Presence,
    Promote,
    Provide,
    Publish,
    Reconnect,
    Register,
    Reply,
    Request,
    Respond,
    Send,
    Shown,
    Subscribe,
    Unprovide,
    Unregister,
    Unsubscribe,
)
from tests.wire.vocabulary import KINDS, NO_QUEUE, messages, ops, plain

JSON = msgspec.Raw(b'{"a":1}')
HALF = b"\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"
# The format itself, as bytes: a change here is a change for every peer there is.
GOLDEN = [
    (
        Hello(id=1, as_="user:a", token="t", v=2, app="shop"),
        b"\x01\x96\x01\x01\xa6user:a\xa1t\x02\xa4shop",
    ),
    (Hello(id=1, as_="user:a"), b"\x01\x93\x01\x01\xa6user:a"),
    (Ping(), b"\x01\x91\x02"),
    (Ping(id=-1), b"\x01\x92\x02\xff"),
    (Pong(id=2), b"\x01\x92\x03\x02"),
    (Send(id=3, to="user:b", data=JSON), b'\x01\x94\x04\x03\xa6user:b\xc4\x07{"a":1}'),
    (Send(id=3, to="user:b", data64="AP8="), b"\x01\x95\x04\x03\xa6user:b\xc4\x02\x00\xff\xc3"),
    (Send(id=3, to=["user:b", "user:c"]), b"\x01\x93\x04\x03\x92\xa6user:b\xa6user:c"),
    (
        Send(
            id=3,
            to="queue:q",
            data=JSON,
            key="k",
            headers={"h": "v"},
            tags=["t"],
            delay_ms=5,
            producer="p",
            seq=6,
            num=7,
        ),
        b'\x01\x9c\x04\x03\xa7queue:q\xc4\x07{"a":1}\xc2\xa1k\x81\xa1h\xa1v\x91\xa1t\x05\xa1p\x06\x07',
    ),
    (
        Send(id=3, to="queue:q", data=JSON, num=7, consumers=["c"], type=1),
        b'\x01\x9e\x04\x03\xa7queue:q\xc4\x07{"a":1}\xc2\xc0\xc0\xc0\xc0\xc0\xc0\x07\x91\xa1c\x01',
    ),
    (
        Publish(id=4, to="topic:t", data=JSON, reliable=True),
        b'\x01\x96\x05\x04\xa7topic:t\xc4\x07{"a":1}\xc2\xc3',
    ),
    (Subscribe(id=5, to="topic:t"), b"\x01\x93\x06\x05\xa7topic:t"),
    (
        Subscribe(id=5, to="topic:t", as_="avatar:a", epoch="e", offset=3),
        b"\x01\x96\x06\x05\xa7topic:t\xa8avatar:a\xa1e\x03",
    ),
    (Unsubscribe(to="topic:t"), b"\x01\x93\x07\xc0\xa7topic:t"),
    (Unprovide(id=3, to="service:s"), b"\x01\x93\x14\x03\xa9service:s"),
    (
        Create(id=4, to="topic:t", anonymous=True, history=9, history_s=1.5),
        b"\x01\x96\x15\x04\xa7topic:t\xc3\x09\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00",
    ),
    (
        Create(
            id=4,
            to="queue:q",
            volatile=False,
            depth_max=1,
            bytes_max=2,
            ack_timeout_s=0.5,
            attempts_max=16,
            lanes=3,
            retry_s=0.5,
            retry_max_s=0.5,
            ordered=True,
            consumers=["c"],
            await_s=0.5,
            push_interval_s=0.5,
            expire_s=0.5,
        ),
        b"\x01\xdc\x00\x13\x15\x04\xa7queue:q\xc0\xc0\xc0\xc2\x01\x02"
        + HALF
        + b"\x10\x03"
        + HALF
        + HALF
        + b"\xc3\x91\xa1c"
        + HALF
        + HALF
        + HALF,
    ),
    (Delete(id=5, to="queue:q"), b"\x01\x93\x16\x05\xa7queue:q"),
    (Position(to="topic:t", epoch="e", offset=7), b"\x01\x94\x26\xa7topic:t\xa1e\x07"),
    (Presence(id=6, to="user:b"), b"\x01\x93\x08\x06\xa6user:b"),
    (Join(id=7, to="room:1"), b"\x01\x93\x09\x07\xa6room:1"),
    (Leave(id=8, to="room:1"), b"\x01\x93\x0a\x08\xa6room:1"),
    (Shown(id=8, notes=["p1"]), b"\x01\x93\x1d\x08\x91\xa2p1"),
    (Members(id=8, to="room:1", n=9), b"\x01\x94\x1c\x08\xa6room:1\x09"),
    (
        Fetch(id=9, to="queue:q", n=2, wait_ms=300, group="g", tags=["t"]),
        b"\x01\x97\x0b\x09\xa7queue:q\x02\xcd\x01\x2c\xa1g\x91\xa1t",
    ),
    (
        Consume(id=10, to="queue:q", credit=5, group="g", tags=["t"]),
        b"\x01\x96\x0c\x0a\xa7queue:q\x05\xa1g\x91\xa1t",
    ),
    (
        Fetch(id=9, to="queue:q", headers={"h": "v"}, name="c"),
        b"\x01\x99\x0b\x09\xa7queue:q\x01\x00\xc0\xc0\x81\xa1h\xa1v\xa1c",
    ),
    (
        Consume(id=10, to="queue:q", headers={"h": "v"}, name="c"),
        b"\x01\x98\x0c\x0a\xa7queue:q\x01\xc0\xc0\x81\xa1h\xa1v\xa1c",
    ),
    (Ack(message=12), b"\x01\x93\x0d\xc0\x0c"),
    (Nack(id=1, message="m0a"), b"\x01\x93\x0e\x01\xa3m0a"),
    (Nack(id=1, message=5, delay_ms=9), b"\x01\x94\x0e\x01\x05\x09"),
    (Cancel(message=2**40), b"\x01\x93\x0f\xc0\xcf\x00\x00\x01\x00\x00\x00\x00\x00"),
    (Cancel(id=1, message=5, to="queue:q"), b"\x01\x94\x0f\x01\x05\xa7queue:q"),
    (
        Register(id=1, to="queue:q", name="c", group="g", tags=["t"], headers={"h": "v"}, new=True),
        b"\x01\x98\x17\x01\xa7queue:q\xa1c\xa1g\x91\xa1t\x81\xa1h\xa1v\xc3",
    ),
    (Unregister(id=1, to="queue:q", name="c", group="g"), b"\x01\x95\x18\x01\xa7queue:q\xa1c\xa1g"),
    (Inspect(id=1, to="queue:q"), b"\x01\x93\x19\x01\xa7queue:q"),
    (
        Inspect(id=1, to="queue:q", n=2, lane=3, after=4, reverse=True, dead=True, delayed=True),
        b"\x01\x99\x19\x01\xa7queue:q\x02\x03\x04\xc3\xc3\xc3",
    ),
    (
        Letters(id=1, to="queue:q", do="replay", messages=[5, "m"]),
        b"\x01\x95\x1a\x01\xa7queue:q\xa6replay\x92\x05\xa1m",
    ),
    (Promote(id=1, broker="node-a"), b"\x01\x93\x1b\x01\xa6node-a"),
    (Promote(id=1, broker="node-a", force=True), b"\x01\x94\x1b\x01\xa6node-a\xc3"),
    (
        Avatar(id=1, do="add", avatar="avatar:x", user="user:b"),
        b"\x01\x95\x10\x01\xa3add\xa8avatar:x\xa6user:b",
    ),
    (Provide(id=1, to="service:s"), b"\x01\x93\x11\x01\xa9service:s"),
    (
        Request(to="service:s", data=JSON, request="r"),
        b'\x01\x96\x12\xc0\xa9service:s\xc4\x07{"a":1}\xc2\xa1r',
    ),
    (Respond(request="r", data=JSON), b'\x01\x96\x13\xc0\xa0\xc4\x07{"a":1}\xc2\xa1r'),
    (Reply(id=1, ok=True), b"\x01\x93\x20\x01\xc3"),
    (
        Reply(id=1, ok=False, error="overload", reason="full", outcome="unknown"),
        b"\x01\x96\x20\x01\xc2\xa8overload\xa4full\xa7unknown",
    ),
    (
        Reply(id=1, ok=True, message=5, session="s", heartbeat_s=5.0, v=1, online=True),
        b"\x01\x9b\x20\x01\xc3\xc0\xc0\xc0\x05\xa1s\xcb\x40\x14\x00\x00\x00\x00\x00\x00\x01\xc3",
    ),
    (
        Reply(id=1, ok=True, nodes=2, verdicts={"u": "ok"}, data=JSON),
        b'\x01\x9e\x20\x01\xc3\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\x02\x81\xa1u\xa2ok\xc4\x07{"a":1}',
    ),
    (
        Delivery(message=9, from_="user:a", to="user:b", ts=3, data=JSON),
        b'\x01\x96\x21\x09\xa6user:a\xa6user:b\x03\xc4\x07{"a":1}',
    ),
    (
        Delivery(message=9, from_="user:a", to="user:b", ts=3, data64="AP8="),
        b"\x01\x97\x21\x09\xa6user:a\xa6user:b\x03\xc4\x02\x00\xff\xc3",
    ),
    (
        Reply(id=1, ok=True, n=2, num=7, lanes=[1, 2]),
        b"\x01\xdc\x00\x16\x20\x01\xc3\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc2"
        b"\xc0\xc0\xc0\xc0\x02\x07\x92\x01\x02",
    ),
    (
        Reply(id=1, ok=True, n=2, members=["user:a", "user:b"]),
        b"\x01\xdc\x00\x17\x20\x01\xc3\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc2"
        b"\xc0\xc0\xc0\xc0\x02\xc0\xc0\x92\xa6user:a\xa6user:b",
    ),
    (
        Delivery(
            message=9,
            from_="user:a",
            to="queue:q",
            ts=3,
            data=JSON,
            key="k",
            headers={"h": "v"},
            tags=["t"],
            num=7,
            type=1,
            group="g",
            attempt=2,
        ),
        b'\x01\x9f\x21\x09\xa6user:a\xa7queue:q\x03\xc4\x07{"a":1}\xc2\x00'
        b"\xa1k\x81\xa1h\xa1v\x91\xa1t\x07\x01\xa1g\x02",
    ),
    (Error(error="protocol", reason="r"), b"\x01\x93\x22\xa8protocol\xa1r"),
    (Dropped(n=3), b"\x01\x92\x23\x03"),
    (Reconnect(reason="drain", after_ms=100), b"\x01\x93\x24\xa5drain\x64"),
    (Closed(code=4006, reason="slow"), b"\x01\x93\x25\xcd\x0f\xa6\xa4slow"),
]


def decode(data: bytes, kind):
    return (packed.decode_client_op if kind in CLIENT_OPS else packed.decode_hub_op)(data)


def test_the_codes_are_fixed():
    names = {op.__name__: code for op, code in CODES.items()}
    assert names == {
        "Hello": 1,
        "Ping": 2,
        "Pong": 3,
        "Send": 4,
        "Publish": 5,
        "Subscribe": 6,
        "Unsubscribe": 7,
        "Presence": 8,
        "Join": 9,
        "Leave": 10,
        "Fetch": 11,
        "Consume": 12,
        "Ack": 13,
        "Nack": 14,
        "Cancel": 15,
        "Avatar": 16,
        "Provide": 17,
        "Request": 18,
        "Respond": 19,
        "Unprovide": 20,
        "Create": 21,
        "Delete": 22,
        "Register": 23,
        "Unregister": 24,
        "Inspect": 25,
        "Letters": 26,
        "Promote": 27,
        "Members": 28,
        "Shown": 29,
        "Reply": 32,
        "Delivery": 33,
        "Error": 34,
        "Dropped": 35,
        "Reconnect": 36,
        "Closed": 37,
        "Position": 38,
    }


@pytest.mark.parametrize(("op", "data"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_of_an_op_are_fixed(op, data):
    assert packed.encode_op(op) == data
    assert plain(decode(data, type(op))) == plain(op)


def test_every_op_has_golden_bytes():
    assert {type(op) for op, _ in GOLDEN} == set(CODES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda op: op.__name__)
def test_both_forms_have_the_same_fields_in_the_same_order(kind):
    assert PACKED[kind].__struct_fields__ == kind.__struct_fields__


@pytest.mark.parametrize("kind", KINDS, ids=lambda op: op.__name__)
@given(data=st.data())
def test_every_op_survives_a_round_trip(kind, data):
    op = data.draw(ops(kind))
    encoded = packed.encode_op(op)
    read = decode(encoded, kind)
    assert isinstance(read, kind)
    assert plain(read) == plain(op)
    # Encoded again from its packed form it is the same bytes: a relay changes nothing.
    assert packed.encode_op(read) == encoded


@pytest.mark.parametrize("kind", KINDS, ids=lambda op: op.__name__)
@given(data=st.data())
def test_text_and_packed_say_the_same(kind, data):
    op = data.draw(ops(kind))
    read = text.decode_client_op if kind in CLIENT_OPS else text.decode_hub_op
    from_text = read(text.encode_op(op))
    assert plain(decode(packed.encode_op(from_text), kind)) == plain(op)


@given(ops(), st.data())
def test_trailing_fields_may_be_left_out_and_fields_of_a_later_version_added(op, data):
    array = msgspec.msgpack.decode(packed.encode_op(op)[1:])
    longer = array + [None] * (len(op.__struct_fields__) + 1 - len(array)) + ["novelty", 7]
    if None not in longer[len(array) : -2]:
        read = decode(b"\x01" + msgspec.msgpack.encode(longer), type(op))
        assert plain(read) == plain(op)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\x02\x91\x02", "version"),
        (b"\x00\x91\x02", "version"),
        (b"\x01", "truncated"),
        (b"\x01\x90", "length 1"),
        (b"\x01\x91\x7f", "127"),
        (b"\x01\x91\xc0", "null"),
        (b"\x01\x91\x20", "32"),
        (b"\x01\x81\x02\x01", "array"),
        (b"\x01\x92\x02\xa11", "int"),
        (b"\x01\x92\x02\xcf\x80\x00\x00\x00\x00\x00\x00\x00", "<="),
        (b"\x01\x93\x06\x01\xa1\xff", "UTF-8"),
        (b"\x01\x93\x06\x01\xc4\x01a", "str"),
        (b"\x01\x94\x04\x01\xa1a\xa11", "bytes"),
        (b"\x01\x91\x02\x00", "trailing"),
        (b"\x01\xdd\xff\xff\xff\xff\x02", "truncated"),
        (b"\x01\x93\x04\x01\xdd\xff\xff\xff\xff", "truncated"),
        (b"\x01\x93\x04\x01\xdb\xff\xff\xff\xff", "truncated"),
        (b"\x01\x94\x04\x01\xa1a\xc6\xff\xff\xff\xff", "truncated"),
        (b"\x01\x98\x04\x01\xa1a\xc0\xc2\xc0\xdf\xff\xff\xff\xff", ""),
        (b"\x01\x93\x02\x01" + b"\x91" * 100_000 + b"\xc0", "deep"),
        (b"\x01\xc1", ""),
    ],
)
def test_a_frame_that_is_wrong_is_refused_saying_why(data, why):
    with pytest.raises(RemoteProtocolError) as caught:
        packed.decode_client_op(data)
    assert why in caught.value.reason
    assert len(caught.value.reason) <= 200


@given(st.binary(max_size=100))
def test_only_a_protocol_error_comes_out_of_garbage(data):
    for prefix in (b"", b"\x01", b"\x01\x95\x04\x01", b"\x01\x9f\x20"):
        for read in (packed.decode_client_op, packed.decode_hub_op):
            try:
                read(prefix + data)
            except RemoteProtocolError as error:
                assert error.reason  # noqa: PT017


@given(ops(), st.data())
def test_only_a_protocol_error_comes_out_of_a_damaged_op(op, data):
    encoded = bytearray(packed.encode_op(op))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (bytes(encoded), bytes(encoded[: data.draw(st.integers(0, len(encoded)))])):
        for read in (packed.decode_client_op, packed.decode_hub_op):
            try:
                read(damaged)
            except RemoteProtocolError as error:
                assert len(error.reason) <= 200  # noqa: PT017


@given(st.lists(ops().filter(lambda op: type(op) in CLIENT_OPS), min_size=1, max_size=20))
def test_many_ops_in_a_frame_are_read_in_order(some):
    bodies = [packed.encode_op(op) for op in some]
    read = packed.read_client_ops(packed.check_version(packed.encode_ops(bodies)))
    assert [plain(op) for op in read] == [plain(op) for op in some]


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 255, 256, packed.OPS_MAX])
def test_any_number_of_ops_up_to_the_bound_is_read(count):
    bodies = [packed.encode_op(Ping(id=n)) for n in range(count)]
    array = packed.check_version(packed.encode_ops(bodies))
    for read in (packed.read_client_ops, packed.read_hub_ops):
        assert [op.id for op in read(array)] == list(range(count))


def test_the_bytes_of_many_ops_are_fixed():
    bodies = [packed.encode_op(Ping(id=1)), packed.encode_op(Pong())]
    assert packed.encode_ops(bodies) == b"\x01\x92\x92\x02\x01\x91\x03"


@pytest.mark.parametrize(
    "array",
    [
        b"\xdc" + (packed.OPS_MAX + 1).to_bytes(2, "big") + b"\x91\x02" * (packed.OPS_MAX + 1),
        b"\xdc\xff\xff\x91\x02",
        b"\xdd\xff\xff\xff\xff\x91\x02",
        b"\xdd\x00\x00\x00\x01\x91\x02",
        b"",
        b"\x90",
        b"\x91\x90",
        b"\x92\x91\x02",
        b"\x92\x91\x02\x02",
        b"\x92\x91\x02\x91\x91\x02",
        b"\x92\x91\x02\x92\x06\xa1\xff",
        b"\x91\xdd\x00\x00\x00\x01\x02",
        b"\xdc",
        b"\xdc\x00\x01",
    ],
)
def test_many_ops_that_are_wrong_or_too_many_are_refused(array):
    for read in (packed.read_client_ops, packed.read_hub_ops):
        with pytest.raises(RemoteProtocolError):
            read(array)


@given(st.binary(max_size=60))
def test_only_a_protocol_error_comes_out_of_many_garbled_ops(data):
    for prefix in (b"", b"\x92", b"\x93\x91\x02", b"\xdc\x00\x02", b"\xdc\x00\x02\x91\x02"):
        for read in (packed.read_client_ops, packed.read_hub_ops):
            try:
                assert 0 < len(read(prefix + data)) <= 60
            except RemoteProtocolError as error:
                assert error.reason  # noqa: PT017


@given(messages)
def test_a_message_reads_as_the_general_encoder_would_write_it(message):
    (encoded,) = packed.encode_messages([message])
    assert plain(packed.decode_hub_op(encoded)) == {
        "message": message.id,
        "from_": message.sender,
        "to": message.to,
        "ts": message.ts_ms,
        "offset": message.offset,
        "payload": (message.payload, message.binary),
        **NO_QUEUE,
    }


def test_a_payload_that_cannot_be_packed_is_refused():
    with pytest.raises(BadRequest, match="data64"):
        packed.encode_op(Send(to="user:b", data64="not base64!"))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1))
def test_the_commonest_reply_reads_as_the_general_one(request, message):
    general = Reply(id=request, ok=True, message=message)
    assert packed.encode_accepted(request, message) == packed.encode_op(general)
    assert plain(packed.decode_hub_op(packed.encode_accepted(request, message))) == plain(general)


def test_a_message_with_every_value_at_its_edge_survives():
    message = Message(2**63 - 1, "user:" + "é" * 127, 'topic:\\"', 2**53, b"\x00" * 70_000, True)
    (encoded,) = packed.encode_messages([message])
    assert packed.decode_hub_op(encoded).data == message.payload


def test_hub_and_client_ops_are_disjoint_but_for_three():
    assert {op.__name__ for op in set(CLIENT_OPS) & set(HUB_OPS)} == {"Ping", "Pong", "Request"}
