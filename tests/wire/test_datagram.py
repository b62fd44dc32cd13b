"""Datagrams of rooms: sealed for one receiver, and read with suspicion."""

from __future__ import annotations

import struct
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.wire.datagram import (
    DATAGRAM_BYTES_MAX,
    HELLO_BYTES_MIN,
    NONCE_BYTES,
    OVERHEAD_BYTES,
    BadDatagram,
    Hello,
    Kind,
    Seal,
    body_of,
    datagram_key,
    read_head,
    read_hello,
    read_welcome,
    write_hello,
    write_welcome,
)

KEY = datagram_key(b"s" * 32, "chappe")
SEAL = Seal(KEY, "10.0.0.1", 7404)
u64 = st.integers(0, 2**64 - 1)
kinds = st.sampled_from(list(Kind))
nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=63)
hosts = st.ip_addresses().map(str) | st.just("a-host.example")
hellos = st.builds(Hello, nonces, hosts, st.integers(0, 65_535), names)


def cause(read, *args: object) -> str:
    with pytest.raises(BadDatagram) as caught:
        read(*args)
    return caught.value.cause


@given(kinds, u64, u64, u64, st.binary(max_size=2000))
def test_a_datagram_is_read_as_it_was_written(kind, life, ticket, counter, body):
    data = SEAL.write(kind, life, ticket, counter, body)
    SEAL.check(data)
    assert read_head(data) == (kind, life, ticket, counter)
    assert body_of(data) == body
    assert len(data) == OVERHEAD_BYTES + len(body)


def test_a_datagram_is_laid_out_as_written_down():
    said = (32).to_bytes(4, "big") + b"s" * 32 + b"chappe"
    key = blake2b(said, digest_size=32, person=b"chappe datagram1").digest()
    where = struct.pack("!H", 7404) + b"10.0.0.1"
    own = blake2b(where, key=key, digest_size=32, person=b"chappe endpoint1").digest()
    head = bytes.fromhex("01 04 0000000000000002 0000000000000003 0000000000000004")
    mac = blake2b(head + b"body", key=own, digest_size=16).digest()
    assert SEAL.write(Kind.PARCEL, 2, 3, 4, b"body") == head + b"body" + mac


def test_hello_and_welcome_are_laid_out_as_written_down():
    nonce = bytes(range(16))
    hello = nonce + b"\x1c\xec\x03::1\x01n"
    assert write_hello(Hello(nonce, "::1", 7404, "n")) == hello + bytes(272 - len(hello))
    assert write_welcome(nonce, "n") == nonce + b"\x01n"


@given(kinds, st.binary(max_size=300), st.data())
def test_any_bit_that_flips_is_refused(kind, body, data):
    whole = bytearray(SEAL.write(kind, 1, 2, 3, body))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert cause(SEAL.check, bytes(whole)) == "mac"


@given(st.binary(max_size=300), st.data())
def test_what_was_cut_or_made_longer_is_refused(body, data):
    whole = SEAL.write(Kind.PARCEL, 1, 2, 3, body)
    at = data.draw(st.integers(OVERHEAD_BYTES, len(whole)))
    more = data.draw(st.binary(max_size=40))
    if whole[:at] + more != whole:
        assert cause(SEAL.check, whole[:at] + more) == "mac"


@given(st.binary(min_size=OVERHEAD_BYTES, max_size=400))
def test_garbage_is_refused(garbage):
    assert cause(SEAL.check, garbage) == "mac"


@pytest.mark.parametrize(
    "other",
    [
        Seal(datagram_key(b"t" * 32, "chappe"), "10.0.0.1", 7404),
        Seal(datagram_key(b"s" * 32, "other"), "10.0.0.1", 7404),
        Seal(datagram_key(b"s" * 31, "schappe"), "10.0.0.1", 7404),
        Seal(KEY, "10.0.0.2", 7404),
        Seal(KEY, "10.0.0.1", 7405),
    ],
    ids=["secret", "cluster", "shifted", "host", "port"],
)
def test_what_was_sealed_for_another_is_refused(other):
    assert cause(SEAL.check, other.write(Kind.PARCEL, 1, 2, 3, b"body")) == "mac"


def test_a_secret_of_any_length_makes_a_key():
    keys = {datagram_key(b"s" * size, "chappe") for size in (1, 32, 64, 65, 1000)}
    assert len(keys) == 5


@pytest.mark.parametrize("size", [0, OVERHEAD_BYTES - 1, DATAGRAM_BYTES_MAX + 1])
def test_a_datagram_that_is_too_small_or_too_large_is_refused(size):
    assert cause(read_head, b"\x01" * size) == "length"


@pytest.mark.parametrize("size", [OVERHEAD_BYTES, DATAGRAM_BYTES_MAX])
def test_the_smallest_and_the_largest_datagram_are_read(size):
    assert read_head(b"\x01" * size)[0] == 1


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused(version):
    data = SEAL.write(Kind.PARCEL, 1, 2, 3)
    assert cause(read_head, bytes([version]) + data[1:]) == "version"


@given(hellos)
def test_a_hello_is_read_as_it_was_written(hello):
    assert read_hello(write_hello(hello)) == hello
    assert read_hello(memoryview(write_hello(hello))) == hello


@given(nonces, names)
def test_a_welcome_is_read_as_it_was_written(nonce, name):
    assert read_welcome(write_welcome(nonce, name)) == (nonce, name)


@pytest.mark.parametrize("size", [1, 255])
def test_names_and_hosts_may_be_as_long_as_a_byte_can_say(size):
    hello = Hello(bytes(16), "h" * size, 1, "n" * size)
    assert read_hello(write_hello(hello)) == hello


@given(hellos, names | st.just("n" * 255))
def test_a_hello_is_never_smaller_than_its_answer(hello, name):
    asked = SEAL.write(Kind.HELLO, 1, 0, 0, write_hello(hello))
    answer = SEAL.write(Kind.WELCOME, 2, 3, 0, write_welcome(hello.nonce, name))
    assert len(answer) <= HELLO_BYTES_MIN <= len(asked)


@given(kinds, st.binary(max_size=50))
def test_a_stranger_is_told_no_more_than_it_said(kind, body):
    assert len(SEAL.write(Kind.STRANGER, 1, 2, 3)) <= len(SEAL.write(kind, 1, 2, 3, body))


@given(hellos, st.data())
def test_a_hello_that_could_be_smaller_than_its_answer_is_refused(hello, data):
    body = write_hello(hello)
    size = data.draw(st.integers(0, HELLO_BYTES_MIN - OVERHEAD_BYTES - 1))
    assert cause(read_hello, body[:size]) == "length"


@given(st.binary(max_size=600).map(lambda rest: rest + bytes(272 - min(272, len(rest)))))
def test_only_its_own_error_comes_out_of_a_hello(body):
    try:
        hello = read_hello(body)
    except BadDatagram as bad:
        assert bad.cause == "garbage"  # noqa: PT017
    else:
        assert read_hello(write_hello(hello)) == hello


@given(st.binary(max_size=300))
def test_only_its_own_error_comes_out_of_a_welcome(body):
    try:
        nonce, name = read_welcome(body)
    except BadDatagram as bad:
        assert bad.cause == "garbage"  # noqa: PT017
    else:
        assert write_welcome(nonce, name) == body


@pytest.mark.parametrize(
    "rest", [b"", b"\x00", b"\x02n", b"\x01\xff", b"\x01nx"], ids=lambda rest: rest.hex()
)
def test_a_welcome_without_a_name_or_with_more_is_refused(rest):
    assert cause(read_welcome, bytes(16) + rest) == "garbage"
