"""Bad input is named, counted against whoever sent it, and nobody else notices."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from chappe.wire.ops import Ping, Presence, Publish, Send, Subscribe
from chappe.wire.packed import OPS_MAX, encode_op

from .conftest import Witness
from .peer import FORMS, Peer, connect
from .process import Api, NodeProcess

DEEP = 100_000
# What is sent, and what its refusal must name.
BAD_TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "truncated"),
    "cut off": (b'{"op":"send","id":1', "truncated"),
    "not JSON": (b"hello", "malformed"),
    "trailing characters": (b'{"op":"ping"}{"op":"ping"}', "trailing"),
    "an array": (b"[]", "object"),
    "a string": (b'"ping"', "object"),
    "null": (b"null", "object"),
    "no op": (b'{"id":1}', "op"),
    "unknown op": (b'{"op":"fly","id":1}', "fly"),
    "an op of the hub": (b'{"op":"reply","id":1,"ok":true}', "reply"),
    "op of wrong type": (b'{"op":7,"id":1}', "$.op"),
    "id of wrong type": (b'{"op":"ping","id":"1"}', "$.id"),
    "id beyond 64 bits": (b'{"op":"ping","id":123456789012345678901234567890}', "$.id"),
    "id not whole": (b'{"op":"ping","id":1.5}', "$.id"),
    "id overflowing": (b'{"op":"ping","id":1e999}', "$.id"),
    "to of wrong type": (b'{"op":"subscribe","id":1,"to":5}', "$.to"),
    "to holding wrong types": (b'{"op":"send","id":1,"to":["user:a",5],"data":1}', "$.to"),
    "headers of wrong type": (b'{"op":"send","id":1,"to":"user:a","headers":[]}', "$.headers"),
    "data64 of wrong type": (b'{"op":"send","id":1,"to":"user:a","data64":7}', "$.data64"),
    "a raw NUL": (b'{"op":"subscribe","id":1,"to":"topic:\x00"}', "malformed"),
    "NaN": (b'{"op":"send","id":1,"to":"user:a","data":NaN}', "malformed"),
    "nested deeply": (b'{"op":"send","data":' + b"[" * DEEP + b"]" * DEEP + b"}", "deep"),
    "a lone surrogate": (b'{"op":"subscribe","id":1,"to":"topic:\\ud800 alone"}', "surrogate"),
    "a bad escape": (b'{"op":"subscribe","id":1,"to":"topic:\\x"}', "malformed"),
}
BAD_BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "truncated"),
    "cut off": (b'{"to":"topic:a"', "truncated"),
    "not JSON": (b"hello", "malformed"),
    "an array": (b"[]", "object"),
    "an unknown field": (b'{"op":"publish","to":"topic:a","data":1}', "`op`"),
    "nested deeply": (b'{"data":' + b"[" * DEEP + b"]" * DEEP + b"}", "deep"),
    "a lone surrogate": (b'{"to":"topic:\\ud800 alone"}', "surrogate"),
}
_ping = msgspec.msgpack.encode([2, 1])
BAD_PACKED: dict[str, tuple[bytes, str]] = {
    "no array": (b"\x01", "truncated"),
    "cut off": (b"\x01\x93\x04", "truncated"),
    "a reserved byte": (b"\x01\xc1", "malformed"),
    "a map": (b"\x01\x80", "array"),
    "unknown op": (b"\x01\x91\x7f", "127"),
    "an op of the hub": (b"\x01\x93\x20\x01\xc3", "32"),
    "id of wrong type": (b"\x01" + msgspec.msgpack.encode([2, "x"]), "$[1]"),
    "to of wrong type": (b"\x01" + msgspec.msgpack.encode([6, 1, 5]), "$[2]"),
    "data of wrong type": (b"\x01" + msgspec.msgpack.encode([4, 1, "user:a", {}]), "$[3]"),
    "a string that is not UTF-8": (b"\x01\x93\x06\x01\xa2\xff\xff", "UTF-8"),
    "nested deeply": (b"\x01\x94\x04\x01\xa6user:a" + b"\x91" * DEEP, "$[3]"),
    "a string of 4 GB": (b"\x01\x93\x06\x01\xdb\xff\xff\xff\xff", "truncated"),
    "a batch with an unknown op": (b"\x01\x92" + _ping + b"\x91\x7f", "127"),
    "a batch with a wrong type": (
        b"\x01\x92" + _ping + msgspec.msgpack.encode([6, 1, 5]),
        "$[1][2]",
    ),
    "a batch of too many": (
        b"\x01\xdc" + struct.pack(">H", OPS_MAX + 1) + _ping * (OPS_MAX + 1),
        str(OPS_MAX),
    ),
    "a batch of 4 billion": (b"\x01\xdd\xff\xff\xff\xff" + _ping, str(OPS_MAX)),
}
BAD_ADDRESSES = {
    "a control character": "topic:a\nb",
    "an escape": "topic:\x1b[2J",
    "NUL": "topic:\x00",
    "a right-to-left override": "topic:\u202etxt",
    "10 kB": "topic:" + "n" * 10_000,
    "10 kB of kind": "n" * 10_000 + ":x",
    "a wildcard": "topic:*",
    "no kind": "news",
    "unknown kind": "planet:mars",
    "no name": "topic:",
    "nothing": "",
    "another kind than meant": "user:bob",
}


@pytest.fixture(autouse=True)
def _nobody_else_notices(witness: Witness) -> Iterator[None]:
    yield
    witness.notices_nothing()


def greeted(node: NodeProcess, form: str) -> Peer:
    peer = connect(node.addresses, form)
    assert peer.greet("user:mallory")["ok"]
    return peer


def assert_named(refusal: dict[str, Any], reason: str) -> None:
    assert (refusal["op"], refusal["error"]) == ("error", "protocol")
    assert reason in refusal["reason"]
    assert len(refusal["reason"]) <= 200


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_malformed_text_is_named_and_the_session_goes_on(node: NodeProcess, name: str) -> None:
    body, reason = BAD_TEXTS[name]
    with greeted(node, "text") as peer:
        peer.say_body(body)
        assert_named(peer.hear(), reason)
        peer.say(Ping(id=9))
        assert peer.hear() == {"op": "pong", "id": 9}


@pytest.mark.parametrize("form", ["packed", "tcp"])
@pytest.mark.parametrize("name", BAD_PACKED)
def test_malformed_packed_frame_is_named_and_none_of_it_is_carried_out(
    node: NodeProcess, name: str, form: str
) -> None:
    body, reason = BAD_PACKED[name]
    with greeted(node, form) as peer:
        peer.say_body(body)
        assert_named(peer.hear(), reason)
        peer.say(Ping(id=9))
        assert peer.hear() == {"op": "pong", "id": 9}


@pytest.mark.parametrize("form", FORMS)
def test_third_malformed_frame_closes_the_session(node: NodeProcess, form: str) -> None:
    with greeted(node, form) as peer:
        for _ in range(3):
            peer.say_body(b"{" if form == "text" else b"\x01\x91\x7f")
        assert [peer.hear()["op"] for _ in range(3)] == ["error"] * 3
        closed = peer.hear()
        assert (closed["op"], closed["code"]) == ("closed", 4000)
        assert "malformed" in closed["reason"]


@pytest.mark.parametrize("form", FORMS)
def test_strangers_have_three_tries_as_well(node: NodeProcess, form: str) -> None:
    with connect(node.addresses, form) as peer:
        peer.say(Subscribe(id=1, to="topic:a"))
        assert "hello first" in peer.hear()["reason"]
        reply = peer.greet("topic:mallory")
        assert (reply["error"], reply["reason"][:3]) == ("protocol", "as:")
        peer.say_body(b"")
        # On a stream a frame without a version ends it: nothing behind can be read.
        peer.say(Ping())
        assert peer.hear()["op"] == "error"
        assert peer.hear()["code"] == (1002 if form == "tcp" else 4000)


@pytest.mark.parametrize("body", [b"", b"\x02\x91\x02", b"\xff"])
def test_stream_of_another_version_is_over(node: NodeProcess, body: bytes) -> None:
    with greeted(node, "tcp") as peer:
        peer.say_body(body)
        peer.say(Ping())
        assert_named(peer.hear(), "version")
        closed = peer.hear()
        assert (closed["code"], closed["reason"][:7]) == (1002, "version")


@pytest.mark.parametrize("body", [b"", b"\x02\x91\x02", b"\xff"])
def test_packed_message_of_another_version_is_malformed(node: NodeProcess, body: bytes) -> None:
    with greeted(node, "packed") as peer:
        peer.say_body(body)
        assert_named(peer.hear(), "version")
        peer.say(Ping(id=9))
        assert peer.hear()["op"] == "pong"


@pytest.mark.parametrize("form", FORMS)
def test_bad_address_is_answered_and_is_no_strike(node: NodeProcess, form: str) -> None:
    with greeted(node, form) as peer:
        for address in BAD_ADDRESSES.values():
            for op in (
                Subscribe(id=2, to=address),
                Publish(id=2, to=address, data=msgspec.Raw(b"1")),
            ):
                reply = peer.ask(op)
                assert (reply["id"], reply["ok"], reply["error"]) == (2, False, "protocol")
                assert reply["reason"].startswith("to:")
                # A stranger's text comes back short and harmless.
                assert len(reply["reason"]) < 300
                assert reply["reason"].isprintable()
        for address in ("user:a\x7f", "user:" + "n" * 10_000, "topic:a", ["\n", "user:a"]):
            reply = peer.ask(Send(id=3, to=address, data=msgspec.Raw(b"1")))
            assert (reply["ok"], reply["error"]) == (False, "protocol")
        reply = peer.ask(Presence(id=4, to="user:\x00"))
        assert (reply["error"], reply["reason"][:3]) == ("protocol", "to:")
        assert peer.ask(Subscribe(id=5, to="topic:fine"))["ok"]


@pytest.mark.parametrize("form", FORMS)
def test_op_without_its_payload_is_answered(node: NodeProcess, form: str) -> None:
    with greeted(node, form) as peer:
        for _ in range(4):
            reply = peer.ask(Publish(id=2, to="topic:a"))
            assert (reply["error"], reply["reason"][:5]) == ("protocol", "data:")


def test_data_that_claims_to_be_json_goes_into_nobodys_frames(node: NodeProcess) -> None:
    with greeted(node, "tcp") as peer, greeted(node, "text") as reader:
        assert reader.ask(Subscribe(id=2, to="topic:lies"))["ok"]
        for data in (b'1},{"op":"dropped"', b"", b'"\xff"', b"[" * DEEP):
            body = b"\x01" + msgspec.msgpack.encode([5, 3, "topic:lies", data])
            peer.say_body(body)
            reply = peer.hear()
            assert (reply["error"], reply["reason"][:5]) == ("protocol", "data:")
        peer.say(Publish(id=4, to="topic:lies", data=msgspec.Raw(b'"truth"')))
        assert reader.hear()["data"] == "truth"


def test_the_last_of_duplicate_keys_counts(node: NodeProcess) -> None:
    with greeted(node, "text") as peer:
        peer.say_body(b'{"op":"ping","id":7,"id":8}')
        assert peer.hear() == {"op": "pong", "id": 8}


def test_refusals_are_counted(node: NodeProcess, api: Api) -> None:
    before = api.metric("refusals_total", error="protocol")
    with greeted(node, "text") as peer:
        peer.say_body(b"{")
        peer.hear()
        peer.ask(Subscribe(id=2, to="news"))
    assert api.metric("refusals_total", error="protocol") == before + 2


@pytest.mark.parametrize("name", BAD_BODIES)
def test_malformed_body_is_answered_over_http(api: Api, name: str) -> None:
    body, reason = BAD_BODIES[name]
    status, answer = api.request("POST", "/v1/publish", body)
    assert status == 400
    refusal = json.loads(answer)
    assert refusal["error"] == "protocol"
    assert reason in refusal["reason"]


@pytest.mark.parametrize("address", BAD_ADDRESSES.values(), ids=BAD_ADDRESSES)
def test_bad_address_is_answered_over_http(api: Api, address: str) -> None:
    body = json.dumps({"as": "user:mallory", "to": address, "data": 1}).encode()
    status, answer = api.request("POST", "/v1/publish", body)
    assert status == 400
    assert json.loads(answer)["reason"].startswith("to:")


@pytest.mark.parametrize("field", ["to", "as", "app", "data64"])
def test_wrong_type_is_named_over_http(api: Api, field: str) -> None:
    body = {"as": "user:mallory", "to": "topic:a", "data": 1, field: 5}
    status, answer = api.request("POST", "/v1/publish", json.dumps(body).encode())
    assert status == 400
    assert f"$.{field}" in json.loads(answer)["reason"]


def test_frame_may_hold_as_many_ops_as_allowed(node: NodeProcess) -> None:
    with greeted(node, "tcp") as peer:
        ops = b"".join(encode_op(Ping(id=n))[1:] for n in range(OPS_MAX))
        peer.say_body(b"\x01\xdc" + struct.pack(">H", OPS_MAX) + ops)
        assert [peer.hear()["id"] for _ in range(OPS_MAX)] == list(range(OPS_MAX))
