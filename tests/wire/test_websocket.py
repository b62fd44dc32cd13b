"""What a run of WebSocket frames means (RFC 6455), and what compression may cost (RFC 7692)."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode

from chappe.errors import RemoteProtocolError
from chappe.wire.limits import Limits
from chappe.wire.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FIN,
    PING,
    TEXT,
    Assembler,
    check_close,
    check_text,
    close_reason,
    deflate,
    deflate_answer,
    encode_frame,
    inflate,
)

RSV1, RSV2, RSV3 = 0b100, 0b010, 0b001
SMALL = Limits(message_bytes_max=100, fragments_max=8, inflated_bytes_max=200)
PLAIN_ANSWER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"


def feed(assembler: Assembler, *frames):
    """The whole messages that come out of (opcode, fin, payload) frames."""
    seen = []
    for opcode, fin, payload in frames:
        message = assembler.feed(opcode, fin, 0, payload)
        if message is not None:
            seen.append(message)
    return seen


def cut(data: bytes, at: list[int]) -> list[bytes]:
    ends = [*sorted(n % (len(data) + 1) for n in at), len(data)]
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def fragments(kind: int, parts: list[bytes]):
    last = len(parts) - 1
    return [(kind if n == 0 else CONTINUATION, n == last, part) for n, part in enumerate(parts)]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 70_000])
def test_a_frame_is_what_an_independent_library_writes(size):
    payload = bytes(n % 256 for n in range(size))
    expected = Frame(Opcode.BINARY, payload).serialize(mask=False)
    assert encode_frame(FIN | BINARY, payload) == expected


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (0, b"\x82\x00"),
        (125, b"\x82\x7d"),
        (126, b"\x82\x7e\x00\x7e"),
        (65_535, b"\x82\x7e\xff\xff"),
        (65_536, b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_a_length_takes_the_fewest_bytes(size, header):
    assert encode_frame(FIN | BINARY, bytes(size)) == header + bytes(size)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=200))
def test_a_close_frame_holds_as_much_of_the_reason_as_fits(reason):
    code, text = check_close(b"\x0f\xa0" + close_reason(reason))
    assert code == 4000
    assert reason.startswith(text)
    assert len(text.encode()) <= 123
    assert text == reason or len(text.encode()) > 119


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, *range(1007, 1015), 3000, 3999, 4000, 4999]
)
def test_a_close_code_that_may_travel_is_taken(code):
    assert check_close(code.to_bytes(2, "big") + b"bye") == (code, "bye")


@pytest.mark.parametrize(
    "code", [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 5001, 65_535]
)
def test_a_close_code_that_may_not_travel_is_refused(code):
    with pytest.raises(RemoteProtocolError) as caught:
        check_close(code.to_bytes(2, "big"))
    assert caught.value.close_code == 1002


def test_a_close_frame_may_be_empty_but_not_half_a_code():
    assert check_close(b"") == (1005, "")
    with pytest.raises(RemoteProtocolError):
        check_close(b"\x03")


def test_a_close_reason_that_is_not_utf8_is_refused():
    with pytest.raises(RemoteProtocolError) as caught:
        check_close(b"\x03\xe8\xff")
    assert caught.value.close_code == 1007


@given(st.binary(max_size=100), st.lists(st.integers(0, 1000), max_size=7))
def test_fragments_of_any_size_make_the_same_message(payload, at):
    parts = cut(payload, at)
    assert feed(Assembler(SMALL), *fragments(BINARY, parts)) == [(BINARY, payload)]


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.lists(st.integers(0, 1000), max_size=7),
)
def test_a_character_may_be_split_across_fragments(text, at):
    payload = text.encode()
    assert feed(Assembler(SMALL), *fragments(TEXT, cut(payload, at))) == [(TEXT, payload)]


@given(st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=7))
def test_text_is_taken_exactly_when_it_is_utf8(payload, at):
    try:
        payload.decode()
        good = True
    except UnicodeDecodeError:
        good = False
    frames = fragments(TEXT, cut(payload, at))
    if good:
        check_text(payload)
        assert feed(Assembler(SMALL), *frames) == [(TEXT, payload)]
    else:
        for refuse in (lambda: check_text(payload), lambda: feed(Assembler(SMALL), *frames)):
            with pytest.raises(RemoteProtocolError) as caught:
                refuse()
            assert caught.value.close_code == 1007


def test_text_that_cannot_become_utf8_is_refused_before_it_ends():
    assembler = Assembler(SMALL)
    assembler.feed(TEXT, False, 0, "κόσμε".encode())
    with pytest.raises(RemoteProtocolError) as caught:
        assembler.feed(CONTINUATION, False, 0, b"\xed\xa0\x80")
    assert caught.value.close_code == 1007


def test_text_that_ends_within_a_character_is_refused():
    with pytest.raises(RemoteProtocolError) as caught:
        feed(Assembler(SMALL), (TEXT, False, b"\xf0\x9f"), (CONTINUATION, True, b"\x98"))
    assert caught.value.close_code == 1007


def test_messages_follow_each_other_and_leave_nothing_behind():
    assembler = Assembler(SMALL)
    frames = [
        *fragments(TEXT, [b"a", b"b"]),
        (BINARY, True, b"\xff"),
        *fragments(TEXT, [b"", b"c"]),
    ]
    assert feed(assembler, *frames) == [(TEXT, b"ab"), (BINARY, b"\xff"), (TEXT, b"c")]
    assert not assembler.under_way


@pytest.mark.parametrize(
    "frames",
    [
        [(CONTINUATION, True, b"")],
        [(CONTINUATION, False, b"a")],
        [(TEXT, False, b"a"), (TEXT, True, b"b")],
        [(TEXT, False, b"a"), (BINARY, False, b"b")],
        [(TEXT, True, b"a"), (CONTINUATION, True, b"b")],
    ],
)
def test_frames_out_of_order_are_refused(frames):
    with pytest.raises(RemoteProtocolError) as caught:
        feed(Assembler(SMALL), *frames)
    assert caught.value.close_code == 1002


@pytest.mark.parametrize("rsv", range(1, 8))
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_reserved_bits_are_refused_without_an_extension(rsv, opcode):
    with pytest.raises(RemoteProtocolError, match="reserved"):
        Assembler(SMALL).feed(opcode, True, rsv, b"a")


@pytest.mark.parametrize("rsv", [RSV2, RSV3, RSV1 | RSV2, RSV1 | RSV3, RSV1 | RSV2 | RSV3])
def test_compression_leaves_the_other_reserved_bits_refused(rsv):
    with pytest.raises(RemoteProtocolError, match="reserved"):
        Assembler(SMALL, deflate=True).feed(TEXT, True, rsv, b"a")


def test_only_the_first_fragment_says_that_a_message_is_compressed():
    assembler = Assembler(SMALL, deflate=True)
    assembler.feed(TEXT, False, RSV1, b"a")
    with pytest.raises(RemoteProtocolError, match="continuation"):
        assembler.feed(CONTINUATION, True, RSV1, b"a")


@pytest.mark.parametrize(
    "parts", [[bytes(101)], [bytes(60), bytes(41)], [bytes(100), b"a"], [b""] * 9]
)
def test_a_message_that_is_too_large_or_too_cut_up_is_refused(parts):
    with pytest.raises(RemoteProtocolError) as caught:
        feed(Assembler(SMALL), *fragments(BINARY, parts))
    assert caught.value.close_code == 1009


def test_a_message_at_the_bounds_is_taken():
    parts = [bytes(93), *[b"a"] * 7]
    assert feed(Assembler(SMALL), *fragments(BINARY, parts)) == [(BINARY, b"".join(parts))]


@given(st.binary(max_size=5000))
def test_compression_survives_a_round_trip(payload):
    assert inflate(deflate(payload), 5000) == payload


@given(st.binary(max_size=500), st.lists(st.integers(0, 1000), max_size=5))
def test_compression_is_what_an_independent_library_reads_and_writes(payload, at):
    theirs = PerMessageDeflate(True, True, 15, 15)
    read = theirs.decode(Frame(Opcode.BINARY, deflate(payload), rsv1=True))
    assert bytes(read.data) == payload
    compressed = bytes(theirs.encode(Frame(Opcode.BINARY, payload)).data)
    assembler = Assembler(Limits(), deflate=True)
    parts = cut(compressed, at)
    for n, part in enumerate(parts):
        rsv = RSV1 if n == 0 else 0
        seen = assembler.feed(CONTINUATION if n else BINARY, n == len(parts) - 1, rsv, part)
    assert seen == (BINARY, payload)


def test_compressed_text_must_be_utf8_too():
    with pytest.raises(RemoteProtocolError) as caught:
        Assembler(SMALL, deflate=True).feed(TEXT, True, RSV1, deflate(b"\xff"))
    assert caught.value.close_code == 1007


def test_an_uncompressed_message_may_come_on_a_compressed_connection():
    assert Assembler(SMALL, deflate=True).feed(TEXT, True, 0, b"a") == (TEXT, b"a")


def bomb(size: int) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1024 * 1024)
    parts = [squeeze.compress(block) for _ in range(size // len(block))]
    return b"".join(parts) + squeeze.flush(zlib.Z_SYNC_FLUSH)[:-4]


def test_a_message_that_inflates_to_a_gigabyte_is_refused_within_the_bound():
    payload = bomb(1024 * 1024 * 1024)
    limits = Limits()
    assert len(payload) <= limits.message_bytes_max
    assembler = Assembler(limits, deflate=True)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError) as caught:
            assembler.feed(BINARY, True, RSV1, payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.close_code == 1009
    # The inflated bytes up to the bound, and copies of what was sent.
    assert peak < limits.inflated_bytes_max * 2 + len(payload) * 3


@pytest.mark.parametrize("size", [199, 200])
def test_what_inflates_to_the_bound_is_taken(size):
    assert inflate(deflate(bytes(size)), 200) == bytes(size)


@pytest.mark.parametrize("size", [201, 10_000])
def test_what_inflates_past_the_bound_is_refused(size):
    with pytest.raises(RemoteProtocolError) as caught:
        inflate(deflate(bytes(size)), 200)
    assert caught.value.close_code == 1009


@given(st.binary(max_size=200))
def test_only_a_protocol_error_comes_out_of_what_is_not_compressed(data):
    try:
        assert len(inflate(data, 100)) <= 100
    except RemoteProtocolError as error:
        assert error.close_code in (1007, 1009)  # noqa: PT017


@given(
    st.lists(
        st.tuples(
            st.sampled_from([CONTINUATION, TEXT, BINARY]),
            st.booleans(),
            st.integers(0, 7),
            st.binary(max_size=50),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_only_a_protocol_error_comes_out_of_any_run_of_frames(frames, compressed):
    assembler = Assembler(SMALL, deflate=compressed)
    try:
        for frame in frames:
            message = assembler.feed(*frame)
            assert message is None or len(message[1]) <= 200
    except RemoteProtocolError as error:
        assert error.close_code in (1002, 1007, 1009)  # noqa: PT017


@pytest.mark.parametrize(
    ("offer", "answer"),
    [
        ("", None),
        ("x-webkit-deflate-frame", None),
        ("permessage-deflate", PLAIN_ANSWER),
        ("permessage-deflate; client_max_window_bits", PLAIN_ANSWER),
        ("permessage-deflate; client_max_window_bits=15", PLAIN_ANSWER),
        ('permessage-deflate; client_max_window_bits="8"', PLAIN_ANSWER),
        ("permessage-deflate;server_no_context_takeover", PLAIN_ANSWER),
        ("permessage-deflate; client_no_context_takeover", PLAIN_ANSWER),
        # Taken only by repeating it (RFC 7692 7.1.2.1).
        (
            "permessage-deflate; server_max_window_bits=15",
            PLAIN_ANSWER + "; server_max_window_bits=15",
        ),
        ("permessage-deflate; server_max_window_bits=10", None),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; server_max_window_bits=7", None),
        ("permessage-deflate; client_max_window_bits=16", None),
        ("permessage-deflate; client_max_window_bits=7", None),
        ("permessage-deflate; client_max_window_bits=08", None),
        ("permessage-deflate; client_max_window_bits=x", None),
        ("permessage-deflate; server_no_context_takeover=1", None),
        ("permessage-deflate; client_no_context_takeover; client_no_context_takeover", None),
        ("permessage-deflate; novelty", None),
        ("permessage-deflate; server_max_window_bits=10, permessage-deflate", PLAIN_ANSWER),
        ("x-other, permessage-deflate; client_max_window_bits", PLAIN_ANSWER),
        ("permessage-deflate; ", None),
        (",,;=", None),
    ],
)
def test_an_offer_of_compression_is_answered_or_passed_over(offer, answer):
    assert deflate_answer(offer) == answer


@given(st.text(max_size=60))
def test_any_offer_has_an_answer_or_none(offer):
    assert deflate_answer(offer) is None or "permessage-deflate" in offer


def test_ping_is_a_control_opcode_like_close():
    assert PING >= CLOSE
