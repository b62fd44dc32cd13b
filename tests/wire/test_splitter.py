"""Cutting a stream into frames: any chunks, any lengths, bounded memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import RemoteProtocolError
from chappe.wire import packed
from chappe.wire.packed import LENGTH, Splitter
from tests.wire.vocabulary import ops

MEBIBYTE = 1024 * 1024
bodies = st.lists(st.binary(max_size=40).map(lambda rest: b"\x01" + rest), max_size=8)


def stream(bodies) -> bytes:
    return b"".join(map(packed.frame, bodies))


def cut(data: bytes, at: list[int]) -> list[bytes]:
    ends = [*sorted(n % (len(data) + 1) for n in at), len(data)]
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@given(bodies, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_chunks_give_the_same_frames(bodies, at):
    splitter = Splitter(100)
    seen = [array for chunk in cut(stream(bodies), at) for array in splitter.feed(chunk)]
    assert seen == [body[1:] for body in bodies]


@given(st.lists(ops(), min_size=1, max_size=4))
def test_byte_by_byte_gives_every_op(some):
    splitter = Splitter(MEBIBYTE)
    data = stream(map(packed.encode_op, some))
    seen = [array for byte in data for array in splitter.feed(bytes([byte]))]
    assert [b"\x01" + array for array in seen] == [packed.encode_op(op) for op in some]


@given(bodies, st.data())
def test_a_frame_comes_out_as_soon_as_its_last_byte_is_in(bodies, data):
    bodies = [*bodies, b"\x01last"]
    whole = stream(bodies)
    splitter = Splitter(100)
    assert len(list(splitter.feed(whole[:-1]))) == len(bodies) - 1
    assert list(splitter.feed(whole[-1:])) == [b"last"]


@pytest.mark.parametrize("size", [101, 65_536, 10**9, 2**32 - 1])
@pytest.mark.parametrize("step", [1, 4, 5, 1000])
def test_a_declared_length_above_the_bound_is_refused_at_its_fifth_byte(size, step):
    splitter = Splitter(100)
    data = packed.frame(b"\x01ok") + LENGTH.pack(size) + b"\x01"
    seen = []

    def feed_all():
        for n in range(0, len(data), step):
            seen.extend(splitter.feed(data[n : n + step]))

    with pytest.raises(RemoteProtocolError, match=f"{size} bytes declared, 100 are") as caught:
        feed_all()
    assert caught.value.close_code == 1009
    if step != 1000:  # whoever takes the frames one by one has had those before the bad one
        assert seen == [b"ok"]


def test_a_gigabyte_declared_takes_no_memory():
    splitter = Splitter(MEBIBYTE)
    chunk = LENGTH.pack(10**9) + b"\x01" + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            list(splitter.feed(chunk))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_a_frame_that_never_ends_holds_no_more_than_the_bound():
    splitter = Splitter(MEBIBYTE)
    chunk = bytes(65_536)
    tracemalloc.start()
    try:
        list(splitter.feed(LENGTH.pack(MEBIBYTE) + b"\x01"))
        for _ in range(MEBIBYTE // len(chunk) - 1):
            assert list(splitter.feed(chunk)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What has come, and the room a growing buffer keeps.
    assert peak < 2.5 * MEBIBYTE


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x00\x01", "empty"),
        (b"\x00\x00\x00\x02\x02\x00", "has 2"),
        (b"\x00\x00\x00\x02\x00\x00", "has 0"),
        (b"GET / HTTP/1.1\r\n\r\n", "declared"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "declared"),
    ],
)
def test_what_is_no_frame_is_refused(data, why):
    with pytest.raises(RemoteProtocolError, match=why):
        list(Splitter(100).feed(data))


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_only_a_protocol_error_comes_out_of_garbage(chunks):
    splitter = Splitter(50)
    try:
        for chunk in chunks:
            for array in splitter.feed(chunk):
                assert len(array) < 50
    except RemoteProtocolError as error:
        assert error.close_code in (1002, 1009)  # noqa: PT017


def test_a_frame_of_the_largest_size_passes():
    body = b"\x01" + bytes(MEBIBYTE - 1)
    assert list(Splitter(MEBIBYTE).feed(packed.frame(body))) == [body[1:]]
