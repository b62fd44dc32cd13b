"""Bounds, deadlines and what is left behind: against a peer that does as it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.client import (
    Client,
    ClientOptions,
    Connecting,
    Disconnected,
    Dropped,
    Reconnected,
    Unreadable,
    connect,
)
from chappe.client.inbox import OVERHEAD_BYTES
from chappe.errors import CloseCode, ConfigError, ConnectionClosed, Overload
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire import ops
from chappe.wire.ops import PACKED, Reply

from .conftest import QUICK, Notices, serving
from .peer import Port, peering


def to(port: Port, *, on_notice: Any = None, **bounds: Any) -> Connecting:
    return connect(
        port.url, as_="user:a", options=ClientOptions(**{**QUICK, **bounds}), on_notice=on_notice
    )


def delivery(n: int, size: int = 10) -> ops.Op:
    return PACKED[ops.Delivery](
        message=n, from_="user:b", to="user:a", ts=1, data=b"x" * size, data64=True
    )


def assert_clean(client: Client) -> None:
    outgoing = client._conversation.outgoing
    assert client.pending == outgoing.in_flight == outgoing.bytes == 0
    assert not outgoing.waiting
    assert not client._conversation.awaiting


def test_an_answer_that_does_not_come_in_time_has_an_unknown_outcome(run):  # H5
    async def test():
        async with peering() as port, to(port, request_timeout_s=0.05) as alice:
            with pytest.raises(Overload) as caught:
                await alice.send("user:b", 1)
            assert caught.value.outcome_unknown
            assert_clean(alice)
            # An answer that comes later is nobody's.
            port.peer.say(Reply(port.peer.ops[0].id, True, message=1))
            asking = asyncio.create_task(alice.presence("user:b"))
            await port.peer.heard(2)
            port.peer.say(Reply(port.peer.ops[1].id, True, online=True))
            assert await asking

    run(test())


def test_every_request_is_failed_at_its_own_time(run):
    async def test():
        async with peering() as port, to(port, request_timeout_s=0.2) as alice:
            loop = asyncio.get_running_loop()
            first = asyncio.create_task(alice.send("user:b", 1))
            await asyncio.sleep(0.1)
            began = loop.time()
            with pytest.raises(Overload):
                await alice.send("user:b", 2)
            assert first.done()
            # Not when the first was due, halfway; uvloop's clock has whole milliseconds.
            assert loop.time() - began > 0.15
            with pytest.raises(Overload):
                await first

    run(test())


def test_a_request_that_never_left_failed_for_certain(run):
    async def test():
        notices = Notices()
        async with peering() as port:
            alice = await to(port, on_notice=notices, request_timeout_s=0.05)
            port.greets = False
            port.peer.transport.abort()
            await notices.wait(Disconnected)
            with pytest.raises(Overload) as caught:
                await alice.send("user:b", 1)
            assert not caught.value.outcome_unknown
            assert_clean_but_greeting(alice)
            await alice.close()

    def assert_clean_but_greeting(alice: Client) -> None:
        assert alice.pending == alice._conversation.outgoing.bytes == 0
        assert not alice._conversation.outgoing.waiting

    run(test())


def test_a_request_that_was_written_when_the_connection_broke_is_not_sent_again(run):
    async def test():
        notices = Notices()
        # It fails with the connection, not with its time.
        async with peering() as port, to(port, on_notice=notices, request_timeout_s=1e6) as alice:
            asking = asyncio.create_task(alice.send("user:b", "once at most"))
            await port.peer.heard(1)
            port.peer.transport.abort()
            with pytest.raises(Overload) as caught:
                await asking
            assert caught.value.outcome_unknown
            await notices.wait(Reconnected)
            second = asyncio.create_task(alice.send("user:b", "another"))
            (op,) = await port.peer.heard(1)
            assert op.data == b'"another"'
            port.peer.say(Reply(op.id, True, message=7))
            assert await second == "7"

    run(test())


def test_requests_above_the_bound_are_refused_here(run):
    async def test():
        async with peering() as port, to(port, requests_max=3) as alice:
            asking = [asyncio.create_task(alice.send("user:b", n)) for n in range(3)]
            await port.peer.heard(3)
            with pytest.raises(Overload, match="3 requests") as caught:
                await alice.send("user:b", 4)
            assert not caught.value.outcome_unknown
            for op in port.peer.ops:
                port.peer.say(Reply(op.id, True, message=1))
            await asyncio.gather(*asking)
            fourth = asyncio.create_task(alice.send("user:b", 4))
            await port.peer.heard(4)
            fourth.cancel()

    run(test())


def test_a_peer_that_does_not_read_fills_a_bounded_buffer_and_then_refuses(run):
    async def test():
        bytes_max = 300_000
        async with peering() as port, to(port, outgoing_bytes_max=bytes_max) as alice:
            port.peer.transport.pause_reading()
            data = b"x" * 50_000
            posted = 0

            async def post_on() -> None:
                nonlocal posted
                while True:
                    alice.post("user:b", data)
                    posted += 1
                    await asyncio.sleep(0)

            with pytest.raises(Overload, match="wait to be sent"):
                await post_on()
            assert alice._conversation.outgoing.bytes <= bytes_max
            draining = asyncio.create_task(alice.drained())
            await asyncio.sleep(0)
            assert not draining.done()
            port.peer.transport.resume_reading()
            await draining
            assert len(await port.peer.heard(posted)) == posted
            assert [len(op.data) for op in port.peer.ops] == [50_000] * posted

    run(test())


def test_a_cancelled_request_leaves_nothing_behind(run):
    async def test():
        async with peering() as port, to(port) as alice:
            asking = asyncio.create_task(alice.send("user:b", 1))
            await port.peer.heard(1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert_clean(alice)

    run(test())


def test_a_request_that_is_cancelled_while_it_waits_is_never_sent(run):
    async def test():
        notices = Notices()
        async with peering() as port, to(port, on_notice=notices) as alice:
            port.peer.transport.abort()
            await notices.wait(Disconnected)
            asking = [asyncio.create_task(alice.send("user:b", n)) for n in range(3)]
            await asyncio.sleep(0)
            assert alice.pending == 3
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
            assert_clean(alice)
            alice.post("user:b", "next")
            assert [op.data for op in await _first_ops(port, notices)] == [b'"next"']

    async def _first_ops(port: Port, notices: Notices) -> list[Any]:
        await notices.wait(Reconnected)
        return await port.peer.heard(1)

    run(test())


def test_a_full_inbox_stops_the_reading_and_loses_nothing(run):
    async def test():
        size, count = 10_000, 500
        pause = 50 * (size + OVERHEAD_BYTES)
        async with peering() as port, to(port, inbox_bytes_pause=pause) as alice:
            for n in range(count):
                port.peer.say(delivery(n, size))
            while not alice._connection.deaf:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            held = alice.waiting
            # What one read of the socket brought beyond the mark, at most.
            assert 50 <= held <= 50 + 262_144 // size + 1
            got = [(await alice.receive()).id for _ in range(count)]
            assert got == list(range(count))

    run(test())


def test_a_client_that_stopped_reading_still_beats_and_is_not_called_silent(run):  # H4
    async def test():
        notices = Notices()
        options = HubOptions(heartbeat_s=0.05, outbox_bytes_max=64 * 1024 * 1024)
        async with serving(options) as service:
            small = ClientOptions(inbox_bytes_pause=1000, **QUICK)
            url = service.url("tcp")
            async with (
                connect(url, as_="user:a", options=small, on_notice=notices) as alice,
                connect(url, as_="user:b") as bob,
            ):
                for n in range(200):
                    await bob.send("user:a", [n, "x" * 100_000])
                await asyncio.sleep(0.5)
                assert alice._connection.deaf
                assert not notices
                got = [(await alice.receive()).data[0] for _ in range(200)]
                assert got == list(range(200))

    run(test())


def test_an_awaited_answer_is_read_even_when_the_inbox_is_crowded(run, dial):
    async def test():
        async with (
            serving() as service,
            dial(service, "a", options={"inbox_bytes_pause": 1000}) as alice,
            dial(service, "b") as bob,
        ):
            for n in range(100):
                await bob.send("user:a", n)
            # All hundred lie before the answer, far above the mark.
            assert await alice.presence("user:b")
            assert [(await alice.receive()).data for _ in range(100)] == list(range(100))

    run(test())


def test_a_reconnect_waits_for_room_in_a_full_inbox(run):
    async def test():
        notices = Notices()
        bounds = {"inbox_bytes_pause": 1000, "inbox_bytes_max": 1000}
        async with peering() as port, to(port, on_notice=notices, **bounds) as alice:
            port.peer.say(*(delivery(n) for n in range(20)))
            while not alice._connection.deaf:
                await asyncio.sleep(0.001)
            alice._connection._attachment.lost(1006, "cut")
            await notices.wait(Disconnected)
            await asyncio.sleep(0.1)
            assert len(port.peers) == 1
            for _ in range(20):
                await alice.receive()
            await notices.wait(Reconnected)
            assert len(port.peers) == 2

    run(test())


def test_a_silent_hub_is_given_up_and_dialled_again(run):  # H4
    async def test():
        notices = Notices()
        async with (
            peering(heartbeat_s=0.02, beats=False) as port,
            to(port, on_notice=notices),
        ):
            assert (await notices.wait(Disconnected)).code == CloseCode.HEARTBEAT_LOST
            await notices.wait(Reconnected)
            await port.peers[0].gone

    run(test())


def test_an_idle_client_asks_for_signs_of_life(run):  # H4
    async def test():
        notices = Notices()
        async with peering(heartbeat_s=0.02) as port, to(port, on_notice=notices):
            # This peer says nothing but what it is asked for.
            await port.peer.pinged(10)
            assert not notices

    run(test())


def test_a_client_that_only_listens_is_heard_of_by_the_hub(run):  # H4
    async def test():
        async with peering(heartbeat_s=0.02) as port, to(port) as alice:
            while port.peer.pings < 5:
                port.peer.say(delivery(1))
                await alice.receive()

    run(test())


def test_unread_messages_do_not_cost_the_hub_what_was_posted_before_close(run):
    async def test():
        bounds = {"inbox_bytes_pause": 1000, "close_timeout_s": 20}
        async with peering() as port:
            alice = await to(port, **bounds)
            peer = port.peer
            peer.say(*(delivery(n, 10_000) for n in range(500)))
            while not alice._connection.deaf:
                await asyncio.sleep(0.001)
            peer.transport.pause_reading()
            for _ in range(7):
                alice.post("user:b", b"x" * 1_000_000)
            closing = asyncio.create_task(alice.close())
            await asyncio.sleep(0.01)
            peer.transport.resume_reading()
            await closing
            await peer.gone
            assert [len(op.data) for op in peer.ops] == [1_000_000] * 7

    run(test())


def test_a_hub_that_never_answers_hello_is_given_up_in_time(run):
    async def test():
        async with peering(greets=False) as port:
            with pytest.raises(ConnectionClosed, match="timed out"):
                await to(port, connect_timeout_s=0.05)
            await port.peer.gone

    run(test())


def test_cancelling_a_connect_leaves_no_connection(run):
    async def test():
        async with peering(greets=False) as port:

            async def open_() -> None:
                await to(port)

            opening = asyncio.create_task(open_())
            await port.connected(1)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await port.peer.gone

    run(test())


def test_a_dropped_notice_is_counted_and_told(run):
    async def test():
        notices = Notices()
        async with peering() as port, to(port, on_notice=notices) as alice:
            port.peer.say(ops.Dropped(n=3), ops.Dropped(n=4), delivery(1))
            await alice.receive()
            assert alice.dropped == 7
            assert (await notices.wait(Dropped)).n == 3

    run(test())


def test_a_slow_reader_learns_from_a_real_hub_what_it_lost(run, dial):
    async def test():
        options = HubOptions(outbox_bytes_max=200_000)
        async with (
            serving(options) as service,
            dial(service, "a", options={"inbox_bytes_pause": 1000}) as alice,
            dial(service, "b") as bob,
        ):
            await alice.subscribe("topic:t")
            count = 0
            while not service.hub.recorder.drops:
                await bob.publish("topic:t", [count, "x" * 50_000])
                count += 1
            await bob.publish("topic:t", ["last"])
            got = 0
            while (await alice.receive()).data != ["last"]:
                got += 1
            assert alice.dropped > 0
            assert got + alice.dropped == count

    run(test())


def test_what_cannot_be_read_is_told_and_harms_nothing(run):
    async def test():
        notices = Notices()
        async with peering() as port, to(port, on_notice=notices) as alice:
            port.peer.transport.write(b"\0\0\0\3\1\x91\x7f")
            assert (await notices.wait(Unreadable)).reason
            port.peer.say(delivery(5))
            assert (await alice.receive()).id == 5

    run(test())


def test_a_stream_that_is_no_longer_one_ends_the_client(run):
    async def test():
        async with peering() as port, to(port) as alice:
            port.peer.transport.write(b"\xff\xff\xff\xff\1")
            with pytest.raises(ConnectionClosed) as caught:
                await alice.receive()
            assert caught.value.code == CloseCode.MESSAGE_TOO_BIG

    run(test())


def test_a_cancelled_receive_loses_no_message(run):
    async def test():
        async with peering() as port, to(port) as alice:
            first = asyncio.create_task(alice.receive())
            second = asyncio.create_task(alice.receive())
            await asyncio.sleep(0)
            # The first reader is woken and cancelled before it runs again.
            message = Message(9, "user:b", "user:a", 1, b"1")
            alice._connection.inbox.put(message)
            first.cancel()
            assert await second == message

    run(test())


@pytest.mark.parametrize(
    "bad", [{"requests_max": 0}, {"form": "xml"}, {"inbox_bytes_max": 1}, {"backoff_first_s": -1}]
)
def test_options_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        ClientOptions(**bad)


@pytest.mark.parametrize(
    "url",
    [
        "http://h/ws",
        "ws://",
        "ws://h:99999/ws",
        "127.0.0.1:7400",
        "ws://u:secret@h/ws",
        "tcp://[::",
    ],
)
def test_urls_that_make_no_sense_are_refused_without_quoting_secrets(url):
    with pytest.raises(ConfigError, match="url") as caught:
        connect(url)
    assert "secret" not in str(caught.value)
