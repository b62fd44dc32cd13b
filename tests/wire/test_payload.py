"""Payloads: what says it is JSON must be JSON, since it goes into others' frames as it is."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import BadRequest
from chappe.wire import packed, text
from chappe.wire.ops import Send
from chappe.wire.payload import check_json, take_payload
from tests.wire.vocabulary import json_payloads


def through_text(op: bytes) -> tuple[bytes, bool]:
    return take_payload(text.decode_client_op(op))


def through_packed(op: Send) -> tuple[bytes, bool]:
    return take_payload(packed.decode_client_op(packed.encode_op(op)))


@given(json_payloads)
def test_json_stays_the_senders_bytes(payload):
    op = b'{"op":"send","to":"user:b","data":' + payload + b"}"
    assert through_text(op) == (payload, False)


@given(st.binary(max_size=100))
def test_bytes_cross_from_text_to_packed_intact(payload):
    op = Send(to="user:b", data64=b64encode(payload).decode())
    assert through_text(text.encode_op(op)) == (payload, True)
    assert through_packed(op) == (payload, True)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"{",
        b"{bad",
        b"[1,]",
        b'{"a":1,}',
        b"01",
        b"1.",
        b"+1",
        b"NaN",
        b"Infinity",
        b"1 2",
        b'"a\nb"',
        b'"\x01"',
        b'"\\x"',
        b'"\\u12"',
        b'"\\ud800"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        b"1\x00",
        b'1,"to":"user:victim"',
        b'1}\n{"op":"message"}',
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_packed_data_that_is_not_json_is_refused(payload):
    op = packed.PACKED[Send](to="user:b", data=payload, data64=False)
    read = packed.decode_client_op(packed.encode_op(op))
    with pytest.raises(BadRequest, match=r"^protocol: data: not JSON"):
        take_payload(read)
    # The same bytes marked as binary are nobody's business.
    op = packed.PACKED[Send](to="user:b", data=payload, data64=True)
    assert take_payload(packed.decode_client_op(packed.encode_op(op))) == (payload, True)


def refuse_constant(name: str) -> None:
    raise ValueError(name)


@given(
    st.binary(max_size=30)
    | st.text(st.sampled_from('[]{}",:01.-+eE\\/ubntrfalsx \n\t'), max_size=15).map(str.encode)
    | json_payloads
)
def test_what_is_taken_as_json_is_json_to_an_independent_reader(payload):
    try:
        check_json(payload)
    except BadRequest:
        return
    json.loads(payload.decode(), parse_constant=refuse_constant)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (b'{"op":"send","to":"user:b"}', "data: missing"),
        (b'{"op":"send","to":"user:b","data64":null}', "data: missing"),
        (b'{"op":"send","to":"user:b","data64":"a"}', "data64: not base64"),
        (b'{"op":"send","to":"user:b","data64":"AA=A"}', "data64: not base64"),
        (b'{"op":"send","to":"user:b","data64":"\xc3\xa9\xc3\xa9"}', "data64: not base64"),
        (b'{"op":"send","to":"user:b","data64":"AA\\n=="}', "data64: not base64"),
        (b'{"op":"send","to":"user:b","data64":"-_8="}', "data64: not base64"),
    ],
)
def test_a_missing_or_broken_payload_is_refused_by_name(op, why):
    with pytest.raises(BadRequest) as caught:
        through_text(op)
    assert caught.value.reason.startswith(why)


def test_packed_without_a_payload_is_refused_by_name():
    with pytest.raises(BadRequest, match="data: missing"):
        through_packed(Send(to="user:b"))


def test_null_is_a_payload():
    assert through_text(b'{"op":"send","to":"user:b","data":null}') == (b"null", False)


def test_an_empty_binary_payload_is_a_payload():
    assert through_text(b'{"op":"send","to":"user:b","data64":""}') == (b"", True)
    assert through_packed(Send(to="user:b", data64="")) == (b"", True)
