"""The WebSocket edge held to RFC 6455, frame by frame, on a real socket."""

import asyncio

import pytest

from chappe.wire.limits import Limits
from tests.edge.wiring import header, masked, serving
from tests.loop import on_loop

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
SMALL = Limits(message_bytes_max=1000, fragments_max=8, inflated_bytes_max=2000)


async def echoed(peer, kind: int, payload: bytes) -> None:
    first, seen = await peer.frame()
    assert first == 0x80 | kind
    assert seen == payload


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("kind", [TEXT, BINARY])
@on_loop
async def test_a_message_of_any_length_is_echoed(kind, size):
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(kind, b"*" * size))
        await echoed(peer, kind, b"*" * size)


@on_loop
async def test_a_message_may_arrive_byte_by_byte():
    async with serving() as served:
        peer = await served.connect()
        for byte in masked(TEXT, "grüß dich".encode()):
            peer.send(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        await echoed(peer, TEXT, "grüß dich".encode())


@on_loop
async def test_fragments_make_one_message():
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(TEXT, b"a", fin=False), masked(CONTINUATION, b"", fin=False))
        peer.send(masked(CONTINUATION, b"b", fin=False), masked(CONTINUATION, b"c"))
        peer.send(masked(BINARY, b"\xff"))
        await echoed(peer, TEXT, b"abc")
        await echoed(peer, BINARY, b"\xff")


@on_loop
async def test_control_frames_may_come_between_fragments():
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(TEXT, b"a", fin=False), masked(PING, b"now"), masked(PONG, b"unasked"))
        await echoed(peer, PONG, b"now")
        peer.send(masked(CONTINUATION, b"b"))
        await echoed(peer, TEXT, b"ab")


@pytest.mark.parametrize("payload", [b"", b"hi", b"\xff\x00", bytes(125)])
@pytest.mark.parametrize("path", ["/echo", "/ws"])
@on_loop
async def test_a_ping_is_answered_with_its_payload(path, payload):
    async with serving() as served:
        peer = await served.connect(path)
        peer.send(masked(PING, payload))
        await echoed(peer, PONG, payload)


@on_loop
async def test_pings_are_answered_in_order():
    async with serving() as served:
        peer = await served.connect("/ws")
        peer.send(*(masked(PING, b"%d" % n) for n in range(50)))
        for n in range(50):
            await echoed(peer, PONG, b"%d" % n)


@on_loop
async def test_a_pong_nobody_asked_for_is_passed_over():
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(PONG, b"hi"), masked(TEXT, b"a"))
        await echoed(peer, TEXT, b"a")


WRONG_FRAMES = {
    "not masked": header(TEXT, 1, mask=False) + b"a",
    "not masked ping": header(PING, 0, mask=False),
    **{f"opcode {n:#x}": masked(n, b"") for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    **{f"text with reserved bits {n}": masked(TEXT, b"a", rsv=n) for n in range(1, 8)},
    **{f"ping with reserved bits {n}": masked(PING, b"a", rsv=n) for n in range(1, 8)},
    **{f"close with reserved bits {n}": masked(CLOSE, b"\x03\xe8", rsv=n) for n in range(1, 8)},
    "fragmented ping": masked(PING, b"a", fin=False),
    "fragmented close": masked(CLOSE, b"\x03\xe8", fin=False),
    "ping of 126 bytes": masked(PING, bytes(126)),
    "close of 126 bytes": masked(CLOSE, b"\x03\xe8" + bytes(124)),
    "continuation of nothing": masked(CONTINUATION, b"a"),
    "text within a message": masked(TEXT, b"a", fin=False) + masked(TEXT, b"b"),
    "reserved bits in a continuation": masked(TEXT, b"a", fin=False)
    + masked(CONTINUATION, b"b", rsv=4),
    "length of 5 in 16 bits": b"\x81\xfe\x00\x05" + bytes(9),
    "length of 300 in 64 bits": b"\x81\xff" + (300).to_bytes(8, "big") + bytes(304),
    "length with its highest bit": b"\x81\xff\x80" + bytes(11),
}


@pytest.mark.parametrize("path", ["/echo", "/ws"])
@pytest.mark.parametrize("frames", WRONG_FRAMES.values(), ids=WRONG_FRAMES.keys())
@on_loop
async def test_a_frame_against_the_rules_closes_with_1002(frames, path):
    async with serving(deflate=False) as served:
        peer = await served.connect(path)
        peer.send(frames)
        assert await peer.closed() == 1002


UTF8_GOOD = ["", "κόσμε", "\U0010ffff", "\ufffe\uffff", "\x00", "\x7f\x80", "日本語", "\U0001f600"]
UTF8_BAD = [
    b"\xff",
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xf4\x90\x80\x80",
    b"\xed\xbf\xbf",
    b"\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xce",
]


@pytest.mark.parametrize("text", UTF8_GOOD)
@on_loop
async def test_utf8_is_taken_however_it_is_cut(text):
    payload = text.encode()
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(TEXT, payload))
        await echoed(peer, TEXT, payload)
        parts = [bytes([byte]) for byte in payload[:7]]
        peer.send(masked(TEXT, b"", fin=False), *(masked(0, part, fin=False) for part in parts))
        peer.send(masked(CONTINUATION, payload[7:]))
        await echoed(peer, TEXT, payload)


@pytest.mark.parametrize("path", ["/echo", "/ws"])
@pytest.mark.parametrize("payload", UTF8_BAD)
@on_loop
async def test_text_that_is_not_utf8_closes_with_1007(payload, path):
    async with serving() as served:
        peer = await served.connect(path)
        peer.send(masked(TEXT, payload))
        assert await peer.closed() == 1007
        peer = await served.connect(path)
        peer.send(masked(TEXT, payload[:1], fin=False), masked(CONTINUATION, payload[1:]))
        assert await peer.closed() == 1007


@on_loop
async def test_text_that_cannot_become_utf8_closes_before_the_message_ends():
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(TEXT, b"good ", fin=False), masked(CONTINUATION, b"\xff", fin=False))
        assert await peer.closed() == 1007


@on_loop
async def test_bytes_need_not_be_utf8():
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(BINARY, b"\xff\xfe"))
        await echoed(peer, BINARY, b"\xff\xfe")


@pytest.mark.parametrize("path", ["/echo", "/ws"])
@on_loop
async def test_a_declared_length_above_the_bound_is_refused_before_its_payload(path):
    async with serving() as served:
        for size in (1024 * 1024 + 1, 10**9, 2**62):
            peer = await served.connect(path)
            peer.send(header(BINARY, size) + bytes(4))
            assert await peer.closed() == 1009


@pytest.mark.parametrize("path", ["/echo", "/ws"])
@on_loop
async def test_fragments_that_add_up_past_the_bound_are_refused(path):
    async with serving(limits=SMALL) as served:
        peer = await served.connect(path)
        peer.send(
            masked(BINARY, bytes(600), fin=False), masked(CONTINUATION, bytes(401), fin=False)
        )
        assert await peer.closed() == 1009


@on_loop
async def test_more_fragments_than_allowed_are_refused():
    async with serving(limits=SMALL) as served:
        peer = await served.connect()
        peer.send(masked(BINARY, b"", fin=False), *[masked(0, b"", fin=False)] * 8)
        assert await peer.closed() == 1009


@on_loop
async def test_a_message_at_the_bound_is_taken():
    async with serving(limits=SMALL) as served:
        peer = await served.connect()
        peer.send(masked(BINARY, bytes(1000)))
        await echoed(peer, BINARY, bytes(1000))


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, *range(1007, 1015), 3000, 3999, 4000, 4999]
)
@pytest.mark.parametrize("path", ["/echo", "/ws"])
@on_loop
async def test_a_close_is_answered_with_its_code_and_the_connection_ends(path, code):
    async with serving() as served:
        peer = await served.connect(path)
        peer.send(masked(CLOSE, code.to_bytes(2, "big") + "weil ✓".encode()))
        assert await peer.closed(answer=False) == code


@on_loop
async def test_a_close_without_a_code_is_answered():
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(CLOSE))
        assert await peer.closed(answer=False) == 1000


@pytest.mark.parametrize(
    "code", [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 9999, 65_535]
)
@pytest.mark.parametrize("path", ["/echo", "/ws"])
@on_loop
async def test_a_close_code_that_may_not_travel_closes_with_1002(path, code):
    async with serving() as served:
        peer = await served.connect(path)
        peer.send(masked(CLOSE, code.to_bytes(2, "big")))
        # The peer has said its last word: nothing is waited for.
        async with asyncio.timeout(1.5):
            assert await peer.closed(answer=False) == 1002


@pytest.mark.parametrize(
    ("payload", "code"), [(b"\x03", 1002), (b"\x03\xe8\xff", 1007), (b"\x03\xe8\xc3", 1007)]
)
@on_loop
async def test_a_garbled_close_is_refused(payload, code):
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(CLOSE, payload))
        assert await peer.closed(answer=False) == code


@on_loop
async def test_nothing_is_taken_after_a_close():
    async with serving() as served:
        peer = await served.connect()
        peer.send(masked(TEXT, b"a"), masked(CLOSE, b"\x03\xe8"), masked(TEXT, b"b"))
        await echoed(peer, TEXT, b"a")
        assert await peer.closed(answer=False) == 1000


@pytest.mark.parametrize("path", ["/echo", "/ws"])
@pytest.mark.parametrize(
    "behind",
    [masked(CLOSE), masked(3), header(TEXT, 1, mask=False) + b"a"],
    ids=["another close", "an unknown opcode", "no mask"],
)
@on_loop
async def test_a_close_is_answered_whatever_lies_behind_it(behind, path):
    async with serving() as served:
        peer = await served.connect(path)
        peer.send(masked(CLOSE, b"\x0f\xa1"), behind)
        assert await peer.closed(answer=False) == 4001


@on_loop
async def test_the_hub_closes_and_waits_for_the_answer():
    async with serving() as served:
        peer = await served.connect("/ws")
        peer.send(*[masked(TEXT, b"nonsense")] * 3)
        for _ in range(3):
            assert (await peer.hear())["error"] == "protocol"
        first, payload = await peer.frame()
        assert (first, payload[:2]) == (0x88, (4000).to_bytes(2, "big"))
        peer.send(masked(CLOSE, payload[:2]))
        async with asyncio.timeout(1.5):  # less than the hub would wait for an answer
            assert await peer.reader.read() == b""


@on_loop
async def test_a_peer_that_never_answers_a_close_is_let_go():
    async with serving() as served:
        peer = await served.connect("/ws")
        peer.send(*[masked(TEXT, b"nonsense")] * 3)
        for _ in range(3):
            await peer.hear()
        assert await peer.closed(answer=False) == 4000


GOOD_THEN_BAD = {
    "opcode": masked(3),
    "unmasked": header(TEXT, 1, mask=False) + b"a",
    "too large": masked(BINARY, bytes(1001)),
    "close code": masked(CLOSE, b"\x03\xec"),
    "close of one byte": masked(CLOSE, b"\x03"),
    "reserved bit": masked(TEXT, b"a", rsv=4),
    "not UTF-8": masked(TEXT, b"\xff"),
    "continuation": masked(CONTINUATION, b"a"),
}


@pytest.mark.parametrize("bad", GOOD_THEN_BAD.values(), ids=GOOD_THEN_BAD.keys())
@on_loop
async def test_nothing_behind_a_bad_frame_is_carried_out(bad):
    subscribe = b'{"op":"subscribe","id":9,"to":"topic:t"}'
    async with serving(limits=SMALL, deflate=False) as served:
        peer = await served.connect("/ws")
        await peer.hello()
        (session,) = served.hub.sessions.values()
        # In the same segment, and in one of its own while the connection is being closed.
        peer.send(bad, masked(TEXT, subscribe))
        await peer.writer.drain()
        for _ in range(20):
            peer.send(masked(TEXT, subscribe))
            await asyncio.sleep(0)
        assert await peer.closed(answer=False) in (1002, 1007, 1009)
        assert not session.topics
        assert not served.hub.sessions


@pytest.mark.parametrize("bad", GOOD_THEN_BAD.values(), ids=GOOD_THEN_BAD.keys())
@on_loop
async def test_nothing_comes_after_the_close_frame(bad):
    async with serving(limits=SMALL, deflate=False) as served:
        peer = await served.connect("/ws")
        await peer.hello()
        peer.send(masked(TEXT, b'{"op":"presence","id":2,"to":"user:b"}'), bad)
        first = 0x81
        while first == 0x81:
            first, _ = await peer.frame()
        assert first == 0x88
        peer.send(masked(CLOSE, b"\x03\xea"))
        assert await peer.reader.read() == b"", "something came after the close frame"
