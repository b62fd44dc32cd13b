"""Connections in memory have the manners of a socket."""

from __future__ import annotations

import asyncio

import pytest

from chappe.edge.memory import MemoryTransport
from tests.loop import on_loop

HIGH = 64 * 1024


class End(asyncio.Protocol):
    """Keeps all that happens to it."""

    transport: MemoryTransport

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = b""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.events.append("lost")
        self.lost.set()


def joined() -> tuple[End, End]:
    here, there = End(), End()
    MemoryTransport.join(asyncio.get_running_loop(), here, there)
    return here, there


async def settle() -> None:
    """Let everything that is scheduled happen."""
    for _ in range(5):
        await asyncio.sleep(0)


@on_loop
async def test_what_is_written_arrives_in_order_and_never_within_the_write() -> None:
    here, there = joined()
    here.transport.write(b"one ")
    here.transport.write(bytearray(b"two "))
    here.transport.write(memoryview(b"three"))
    here.transport.write(b"")
    assert there.data == b"", "a socket does not call its peer either"
    await settle()
    assert there.data == b"one two three"
    there.transport.write(b"back")
    await settle()
    assert here.data == b"back"


@on_loop
async def test_a_buffer_may_be_used_again_once_it_was_written() -> None:
    here, there = joined()
    buffer = bytearray(b"first")
    here.transport.write(buffer)
    buffer[:] = b"later"
    await settle()
    assert there.data == b"first"


@on_loop
async def test_the_writer_is_paused_above_the_mark_and_resumed_below_it() -> None:
    here, there = joined()
    there.transport.pause_reading()
    assert not there.transport.is_reading()
    here.transport.write(b"x" * HIGH)
    assert here.events == ["made"]
    here.transport.write(b"x")
    here.transport.write(b"x" * HIGH)
    assert here.events == ["made", "pause"], "once"
    assert here.transport.get_write_buffer_size() == 2 * HIGH + 1
    await settle()
    assert there.data == b""
    there.transport.resume_reading()
    await settle()
    assert len(there.data) == 2 * HIGH + 1
    assert here.events == ["made", "pause", "resume"]
    assert here.transport.get_write_buffer_size() == 0


@on_loop
async def test_closing_delivers_what_was_written_first() -> None:
    here, there = joined()
    here.transport.write(b"last words")
    here.transport.close()
    here.transport.close()
    here.transport.write(b"too late")
    assert here.transport.is_closing()
    await settle()
    assert there.data == b"last words"
    assert (here.events, there.events) == (["made", "lost"], ["made", "lost"])
    there.transport.write(b"to nobody")
    await settle()
    assert here.data == b""


@on_loop
async def test_a_reader_that_pauses_gets_last_words_when_it_reads_again() -> None:
    here, there = joined()
    there.transport.pause_reading()
    here.transport.write(b"last words")
    here.transport.close()
    await settle()
    assert (there.data, there.events) == (b"", ["made"])
    there.transport.resume_reading()
    await settle()
    assert (there.data, there.events) == (b"last words", ["made", "lost"])


@on_loop
async def test_aborting_drops_what_was_not_read() -> None:
    here, there = joined()
    here.transport.write(b"never read")
    here.transport.abort()
    await settle()
    assert there.data == b""
    assert (here.events, there.events) == (["made", "lost"], ["made", "lost"])


@on_loop
async def test_an_end_that_closed_is_told_nothing_any_more() -> None:
    here, there = joined()
    there.transport.write(b"crossing")
    here.transport.close()
    await settle()
    assert here.data == b""
    assert here.events == ["made", "lost"]


@pytest.mark.parametrize("name", ["peername", "sockname"])
@on_loop
async def test_it_says_where_it_is(name: str) -> None:
    here, _ = joined()
    assert here.transport.get_extra_info(name) == ("memory", 0)
    assert not here.transport.can_write_eof()
    assert here.transport.get_protocol() is here
