"""Text of sessions with keys, and what brokers say to each other: round trips, and garbage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import BadRequest, RemoteProtocolError
from chappe.wire.bus import (
    Answers,
    BusOp,
    Changed,
    Close,
    Deliver,
    decode_envelope,
    encode_envelope,
)
from chappe.wire.keyed import Keyed, decode_keyed, encode_keyed, key_name

_numbers = st.integers(0, 2**63 - 1)
_names = st.text(max_size=20)
OPS = st.one_of(
    st.builds(Deliver, _numbers, _numbers, _numbers, _names, st.binary(), st.booleans()),
    st.builds(Close, _numbers, _names, st.integers(1000, 4999), _names),
    st.builds(Changed, _numbers, st.none() | st.lists(_names)),
    st.builds(Answers, st.lists(st.tuples(_numbers, _numbers))),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text(), st.text(), JSON)
def test_a_text_says_type_key_and_data_both_ways(kind: str, key: str, data: Any):
    written = encode_keyed(kind, key, json.dumps(data).encode())
    assert json.loads(written) == {"type": kind, "key": key, "data": data}
    assert decode_keyed(written) == decode_keyed(written.decode())
    assert decode_keyed(written) == Keyed(type=kind, key=key, data=data)


@pytest.mark.parametrize("plain", ["hello", "", "[1]", "7", '"x"', "null", "{", "[" * 100_000])
def test_text_that_is_no_such_object_is_plain(plain: str):  # K7
    assert decode_keyed(plain) is None


def test_what_is_left_out_is_empty_and_a_key_may_be_a_number():
    assert decode_keyed("{}") == Keyed()
    assert decode_keyed('{"key": null, "data": [1], "more": 2}') == Keyed(data=[1])
    assert decode_keyed('{"type": "watch", "key": 7}') == Keyed(type="watch", key="7")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ('{"type": 5}', "type: "),
        ('{"type": null}', "type: "),
        ('{"key": [1]}', "key: "),
        ('{"key": true}', "key: "),
        ('{"key": 1.5}', "key: "),
    ],
)
def test_a_field_that_is_wrong_is_named(wrong: str, named: str):
    with pytest.raises(BadRequest, match=named):
        decode_keyed(wrong)


def test_a_key_is_written_with_and_without_its_kind():
    assert key_name("key:order-7") == key_name("order-7") == "order-7"
    assert key_name(7) == "7"
    for wrong in ("", "key:", "a b", "a*", "x" * 256, "\n"):
        with pytest.raises(BadRequest, match="key: it "):
            key_name(wrong)
    for other in (None, b"7", True, 7.0):
        with pytest.raises(BadRequest, match="key: must be text or a whole number"):
            key_name(other)  # type: ignore[arg-type]


@given(st.text(), st.lists(OPS))
def test_an_envelope_comes_as_it_was_sent(sender: str, ops: list[BusOp]):
    envelope = decode_envelope(encode_envelope(sender, ops))
    assert (envelope.version, envelope.sender, envelope.ops) == (1, sender, ops)


@given(st.binary())
def test_whatever_else_is_there_is_refused(data: bytes):
    for garbage in (data, b"\x93\x01" + data):
        try:
            decode_envelope(garbage)
        except RemoteProtocolError:
            continue


def test_an_envelope_of_another_version_is_refused():
    written = bytearray(encode_envelope("a", [Close(1, "k", 1000, "")]))
    written[1] = 2
    with pytest.raises(RemoteProtocolError, match="version 1"):
        decode_envelope(bytes(written))
