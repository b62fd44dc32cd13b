"""The JSON text form: round trips, refusals, and messages formatted by hand."""

import json
from base64 import b64decode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import RemoteProtocolError
from chappe.message import Message
from chappe.wire import text
from chappe.wire.ops import (
    CLIENT_OPS,
    HUB_OPS,
    Cancel,
    Consume,
    Delivery,
    Fetch,
    Inspect,
    Letters,
    Members,
    Nack,
    Promote,
    Register,
    Reply,
    Send,
    Unregister,
)
from tests.wire.vocabulary import KINDS, messages, ops, plain


def decode(data: bytes, kind):
    return (text.decode_client_op if kind in CLIENT_OPS else text.decode_hub_op)(data)


@pytest.mark.parametrize("kind", KINDS, ids=lambda op: op.__name__)
@given(data=st.data())
def test_every_op_survives_a_round_trip(kind, data):
    op = data.draw(ops(kind))
    encoded = text.encode_op(op)
    assert plain(decode(encoded, kind)) == plain(op)
    assert json.loads(encoded)["op"] == kind.__struct_config__.tag


@given(ops())
def test_what_both_sides_say_is_read_by_both(op):
    if type(op) in CLIENT_OPS and type(op) in HUB_OPS:
        encoded = text.encode_op(op)
        assert plain(text.decode_client_op(encoded)) == plain(text.decode_hub_op(encoded))


@pytest.mark.parametrize("kind", KINDS, ids=lambda op: op.__name__)
def test_an_op_is_read_on_its_own_side_only(kind):
    encoded = text.encode_op(kind(id=1, ok=True) if kind is Reply else kind())
    if kind not in CLIENT_OPS:
        with pytest.raises(RemoteProtocolError):
            text.decode_client_op(encoded)
    if kind not in HUB_OPS:
        with pytest.raises(RemoteProtocolError):
            text.decode_hub_op(encoded)


@given(st.binary(max_size=200))
def test_only_a_protocol_error_comes_out_of_garbage(data):
    for read in (text.decode_client_op, text.decode_hub_op):
        try:
            read(data)
        except RemoteProtocolError as error:
            assert error.reason  # noqa: PT017


@given(ops(), st.data())
def test_only_a_protocol_error_comes_out_of_a_damaged_op(op, data):
    encoded = bytearray(text.encode_op(op))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    cut = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    for damaged in (bytes(encoded), cut):
        for read in (text.decode_client_op, text.decode_hub_op):
            try:
                read(damaged)
            except RemoteProtocolError as error:
                assert len(error.reason) <= 200  # noqa: PT017


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"null", "object"),
        (b"[]", "object"),
        (b'"ping"', "object"),
        (b"{}", "op"),
        (b'{"op":"dance"}', "dance"),
        (b'{"op":7}', "op"),
        (b'{"op":"reply","id":1,"ok":true}', "reply"),
        (b'{"op":"ping","id":"1"}', "id"),
        (b'{"op":"ping","id":1.5}', "id"),
        (b'{"op":"ping","id":true}', "id"),
        (b'{"op":"ping","id":9223372036854775808}', "id"),
        (b'{"op":"ping","id":-9223372036854775809}', "id"),
        (b'{"op":"ping","id":' + b"9" * 5000 + b"}", "id"),
        (b'{"op":"send","to":7}', "to"),
        (b'{"op":"send","to":["user:a",7]}', "to[1]"),
        (b'{"op":"send","to":"user:b","data64":7}', "data64"),
        (b'{"op":"send","to":"user:b","data":NaN}', "malformed"),
        (b'{"op":"send","to":"user:b","data":Infinity}', "malformed"),
        (b'{"op":"send","to":"user:b","data":}', "malformed"),
        (b'{"op":"send","to":"user:\xff","data":1}', "UTF-8"),
        (b'{"op":"send","to":"user:\\ud800 and more"}', "surrogate"),
        (b'{"op":"send","to":"a\nb"}', "malformed"),
        (b'{"op":"ping","op":"pong"}', "op"),
        (b'{"op":"ping"} x', "malformed"),
        (b'\xef\xbb\xbf{"op":"ping"}', "malformed"),
        (b'{"op":"send","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
        (b'{"op":"ping","more":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "deep"),
    ],
)
def test_a_frame_that_is_wrong_is_refused_saying_why(data, why):
    with pytest.raises(RemoteProtocolError) as caught:
        text.decode_client_op(data)
    assert why in caught.value.reason
    assert caught.value.close_code == 1002


def test_a_refusal_stays_short_whatever_the_peer_wrote():
    with pytest.raises(RemoteProtocolError) as caught:
        text.decode_client_op(b'{"op":"' + b"x" * 1_000_000 + b'"}')
    assert len(caught.value.reason) <= 200


def test_fields_of_a_later_version_are_passed_over():
    op = text.decode_client_op(b'{"op":"ping","id":4,"novelty":{"a":[1,2]}}')
    assert op.id == 4


def test_the_last_of_two_equal_keys_counts():
    assert text.decode_client_op(b'{"op":"ping","id":1,"id":2}').id == 2


# As the reference shows them: what clients in other languages write and read.
QUEUE_OPS = [
    (
        Send(
            id=2,
            to="queue:q",
            data=msgspec.Raw(b"1"),
            key="k",
            headers={"h": "v"},
            tags=["t"],
            delay_ms=5,
            producer="p",
            seq=6,
            num=7,
            consumers=["c"],
            type=1,
        ),
        b'{"op":"send","id":2,"to":"queue:q","data":1,"key":"k","headers":{"h":"v"},"tags":["t"],'
        b'"delay_ms":5,"producer":"p","seq":6,"num":7,"consumers":["c"],"type":1}',
    ),
    (
        Fetch(id=3, to="queue:q", group="g", headers={"h": "v"}, name="c"),
        b'{"op":"fetch","id":3,"to":"queue:q","group":"g","headers":{"h":"v"},"name":"c"}',
    ),
    (
        Consume(id=3, to="queue:q", credit=9, tags=["t"], name="c"),
        b'{"op":"consume","id":3,"to":"queue:q","credit":9,"tags":["t"],"name":"c"}',
    ),
    (Nack(message="5", delay_ms=100), b'{"op":"nack","message":"5","delay_ms":100}'),
    (
        Cancel(id=4, message="5", to="queue:q"),
        b'{"op":"cancel","id":4,"message":"5","to":"queue:q"}',
    ),
    (
        Register(id=5, to="queue:q", name="c", group="g", tags=["t"], headers={"h": "v"}, new=True),
        b'{"op":"register","id":5,"to":"queue:q","name":"c","group":"g","tags":["t"],'
        b'"headers":{"h":"v"},"new":true}',
    ),
    (
        Unregister(id=6, to="queue:q", group="g"),
        b'{"op":"unregister","id":6,"to":"queue:q","group":"g"}',
    ),
    (
        Inspect(id=7, to="queue:q", n=9, lane=1, after=4, reverse=True, dead=True),
        b'{"op":"inspect","id":7,"to":"queue:q","n":9,"lane":1,"after":4,"reverse":true,"dead":true}',
    ),
    (
        Letters(id=8, to="queue:q", do="purge", messages=["5"]),
        b'{"op":"letters","id":8,"to":"queue:q","do":"purge","messages":["5"]}',
    ),
    (Members(id=9, to="room:1", n=5), b'{"op":"members","id":9,"to":"room:1","n":5}'),
    (
        Reply(id=9, ok=True, n=1, members=["user:a"]),
        b'{"op":"reply","id":9,"ok":true,"n":1,"members":["user:a"]}',
    ),
    (Promote(id=9, broker="node-a"), b'{"op":"promote","id":9,"broker":"node-a"}'),
    (
        Reply(id=2, ok=True, message="5", num=7),
        b'{"op":"reply","id":2,"ok":true,"message":"5","num":7}',
    ),
    (Reply(id=1, ok=True, lanes=[1, 4]), b'{"op":"reply","id":1,"ok":true,"lanes":[1,4]}'),
    (
        Delivery(
            message="5",
            from_="user:a",
            to="queue:q",
            ts=3,
            data=msgspec.Raw(b"1"),
            key="k",
            headers={"h": "v"},
            tags=["t"],
            num=7,
            type=1,
            group="g",
            attempt=2,
        ),
        b'{"op":"message","message":"5","from":"user:a","to":"queue:q","ts":3,"data":1,"key":"k",'
        b'"headers":{"h":"v"},"tags":["t"],"num":7,"type":1,"group":"g","attempt":2}',
    ),
]


@pytest.mark.parametrize(("op", "data"), QUEUE_OPS, ids=lambda value: type(value).__name__)
def test_what_is_said_of_queues_is_fixed(op, data):  # Q13
    assert text.encode_op(op) == data
    assert plain(decode(data, type(op))) == plain(op)


@given(messages)
def test_a_message_reads_as_the_general_encoder_would_write_it(message):
    (encoded,) = text.encode_messages([message])
    read = text.decode_hub_op(encoded)
    assert (read.message, read.from_, read.to, read.ts) == (
        str(message.id),
        message.sender,
        message.to,
        message.ts_ms,
    )
    # An independent reader sees the same object as in what msgspec's own encoder makes of it.
    general = Delivery(
        message=str(message.id), from_=message.sender, to=message.to, ts=message.ts_ms
    )
    expected = json.loads(msgspec.json.encode(general))
    expected["from"], expected["to"], expected["ts"] = message.sender, message.to, message.ts_ms
    if message.offset:
        expected["offset"] = message.offset
    seen = json.loads(encoded)
    if message.binary:
        assert b64decode(seen.pop("data64"), validate=True) == message.payload
    else:
        assert bytes(read.data) == message.payload.strip()
        assert seen.pop("data") == json.loads(message.payload)
    assert seen == expected


@given(st.lists(messages, max_size=6), st.lists(st.integers(0, 5), max_size=12))
def test_a_run_of_messages_reads_as_each_alone(pool, order):
    run = [pool[n % len(pool)] for n in order] if pool else []
    alone = [one for message in run for one in text.encode_messages([message])]
    assert text.encode_messages(run) == alone


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1))
def test_the_commonest_reply_reads_as_the_general_one(request, message):
    general = Reply(id=request, ok=True, message=str(message))
    assert text.encode_accepted(request, message) == text.encode_op(general)


def test_messages_of_a_run_differ_in_any_one_thing():
    base = {"id": 1, "sender": "user:a", "to": "user:b", "ts_ms": 1, "payload": b"1"}
    others = {"id": 2, "sender": "user:c", "to": "user:d", "ts_ms": 2, "payload": b"2"}
    for name, value in others.items():
        run = [Message(**base), Message(**base | {name: value}), Message(**base)]
        first, second, third = map(json.loads, text.encode_messages(run))
        assert first == third
        (changed,) = {key for key in first if first[key] != second[key]}
        assert changed == {"id": "message", "sender": "from", "ts_ms": "ts", "payload": "data"}.get(
            name, name
        )


@pytest.mark.parametrize("ids", [(10, 1), (9, 10), (1, 10, 2)])
def test_the_ids_of_a_run_may_have_more_digits_or_fewer_in_any_order(ids):
    run = [Message(number, "user:a", "topic:t", 1, b"0") for number in ids]
    alone = [body for message in run for body in text.encode_messages([message], len_head)]
    assert text.encode_messages(run, len_head) == alone


def len_head(size):
    return b"%d:" % size
