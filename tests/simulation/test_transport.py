"""What a stream transport owes its protocol, on real sockets and on simulated ones alike."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.grounds import HOST, Ground, Recorder

# More than kernels keep of a connection whose reader sleeps.
FLOOD = 32 * 1024 * 1024
PATTERN = bytes(range(251))


def test_bytes_arrive_whole_and_in_order_both_ways(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        there, back = PATTERN * 5000, PATTERN[::-1] * 3000
        for at in range(0, len(there), 100_000):
            near.transport.write(there[at : at + 100_000])
        far.transport.writelines([back[:1], memoryview(back)[1:70_000], bytearray(back[70_000:])])
        await far.until_received(len(there))
        await near.until_received(len(back))
        assert far.received == there
        assert near.received == back

    ground.run(scenario)


def test_each_end_knows_both_addresses(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        assert near.transport.get_extra_info("peername") == far.transport.get_extra_info("sockname")
        assert far.transport.get_extra_info("peername") == near.transport.get_extra_info("sockname")
        assert near.transport.get_extra_info("peername")[0] == HOST
        assert near.transport.get_extra_info("nothing", 7) == 7

    ground.run(scenario)


def test_what_the_accepted_end_says_first_arrives(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, _ = await ground.pair(far=Recorder(greeting=b"welcome"))
        await near.until_received(7)
        assert near.received == b"welcome"

    ground.run(scenario)


def test_close_delivers_what_was_written_before_it(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        near.transport.write(PATTERN * 20_000)
        near.transport.close()
        assert near.transport.is_closing()
        near.transport.close()
        await far.until_event("lost")
        await near.until_event("lost")
        assert far.received == PATTERN * 20_000
        assert far.events == ["made", "data", "eof", "lost"]
        assert (near.error, far.error) == (None, None)
        assert (near.lost, far.lost) == (1, 1)

    ground.run(scenario)


def test_the_protocol_is_told_of_a_close_after_the_call_returns(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, _ = await ground.pair()
        near.transport.close()
        assert near.lost == 0
        await near.until_event("lost")

    ground.run(scenario)


def test_abort_drops_what_is_buffered(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        far.transport.pause_reading()
        near.transport.write(bytes(FLOOD))
        near.transport.abort()
        await near.until_event("lost")
        assert near.error is None
        assert near.transport.get_write_buffer_size() == 0
        far.transport.resume_reading()
        await far.until_event("lost")
        assert len(far.received) < FLOOD

    ground.run(scenario)


def test_a_protocol_that_reads_no_more_gets_nothing_until_it_does(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        far.transport.pause_reading()
        assert not far.transport.is_reading()
        near.transport.write(b"later")
        near.transport.write_eof()
        await asyncio.sleep(0.2)
        assert far.events == ["made"]
        far.transport.resume_reading()
        assert far.transport.is_reading()
        await far.until_event("lost")
        assert far.received == b"later"

    ground.run(scenario)


def test_a_writer_is_paused_by_a_reader_that_sleeps_and_resumed_when_it_wakes(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        far.transport.pause_reading()
        near.transport.write(bytes(FLOOD))
        assert near.events == ["made", "pause"]
        assert near.transport.get_write_buffer_size() > 64 * 1024
        near.transport.write(b"more")
        far.transport.resume_reading()
        await near.until_event("resume")
        assert near.transport.get_write_buffer_size() <= 16 * 1024
        await far.until_received(FLOOD + 4)
        assert near.events == ["made", "pause", "resume"]

    ground.run(scenario)


def test_limits_of_the_write_buffer_are_the_protocols_to_set(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        near.transport.set_write_buffer_limits(high=2 * FLOOD)
        assert near.transport.get_write_buffer_limits() == (FLOOD // 2, 2 * FLOOD)
        far.transport.pause_reading()
        near.transport.write(bytes(FLOOD))
        assert "pause" not in near.events
        near.transport.abort()
        far.transport.abort()
        await far.until_event("lost")
        await near.until_event("lost")

    ground.run(scenario)


def test_an_end_that_wrote_eof_can_still_read(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair(far=Recorder(keep_open=True))
        assert near.transport.can_write_eof()
        near.transport.write(b"question")
        near.transport.write_eof()
        await far.until_event("eof")
        assert far.received == b"question"
        with pytest.raises(RuntimeError):
            near.transport.write(b"more")
        far.transport.write(b"answer")
        far.transport.close()
        await near.until_event("lost")
        await far.until_event("lost")
        assert near.received == b"answer"
        assert near.error is None

    ground.run(scenario)


def test_writing_to_a_peer_that_is_gone_ends_in_an_error(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair(near=Recorder(keep_open=True))
        far.transport.abort()
        await near.until_event("eof")
        async with asyncio.timeout(30):
            while not near.lost:
                near.transport.write(b"anybody there?")
                await asyncio.sleep(0.01)
        assert isinstance(near.error, ConnectionError)
        assert near.lost == 1

    ground.run(scenario)


def test_writing_after_close_is_ignored(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        near.transport.write(b"before")
        near.transport.close()
        near.transport.write(b"after")
        await far.until_event("lost")
        await near.until_event("lost")
        assert far.received == b"before"

    ground.run(scenario)


def test_only_bytes_can_be_written(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()
        with pytest.raises(TypeError):
            near.transport.write("text")  # type: ignore[arg-type]
        near.transport.write(b"")
        near.transport.close()
        await far.until_event("lost")
        await near.until_event("lost")
        assert far.events == ["made", "eof", "lost"]

    ground.run(scenario)


def test_connecting_to_nobody_is_refused(ground: Ground):
    async def scenario(ground: Ground) -> None:
        listener = ground.listen(Recorder)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.get_running_loop().create_connection(Recorder, HOST, listener.port)

    ground.run(scenario)


def test_connections_outlive_their_listener(ground: Ground):
    async def scenario(ground: Ground) -> None:
        near, far = await ground.pair()  # which closes its listener
        near.transport.write(b"still here")
        await far.until_received(10)
        near.transport.close()
        await far.until_event("lost")

    ground.run(scenario)


def test_asyncios_streams_work(ground: Ground):
    async def scenario(ground: Ground) -> None:
        far = Recorder()
        listener = ground.listen(lambda: far)
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        writer.write(b"line\n")
        await writer.drain()
        await far.until_received(5)
        far.transport.write(b"answer\nrest")
        assert await reader.readline() == b"answer\n"
        far.transport.close()
        assert await reader.read() == b"rest"
        writer.close()
        await writer.wait_closed()
        listener.close()

    ground.run(scenario)
