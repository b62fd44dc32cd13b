"""H4: who is not heard of in time is offline, and anything heard counts."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import CloseCode
from chappe.hub.heartbeat import Heartbeat
from chappe.hub.options import HubOptions
from chappe.hub.session import Session
from chappe.wire.encoding import STREAM
from chappe.wire.ops import Malformed, Ping, Pong, Presence, Reply
from tests.hub.rig import KeptSink, Rig
from tests.loop import on_loop


def beat(rig: Rig, times: int = 1) -> None:
    """Look at every session once per time, as a whole interval does."""
    for _ in range(times):
        rig.clock.now_s += rig.hub.options.heartbeat_s
        for session in list(rig.hub.sessions.values()):
            rig.hub._beat(session)


@on_loop
async def test_three_missed_beats_and_a_session_is_offline() -> None:  # H4
    rig = Rig()
    bob, alice = rig.endpoint("bob"), rig.endpoint("alice")
    for _ in range(3):
        alice.say(Pong())
        beat(rig)
        assert not bob.session.closed
    alice.say(Pong())
    beat(rig)
    assert bob.sink.closed == (CloseCode.HEARTBEAT_LOST, "not heard of in time")
    assert not alice.session.closed
    alice.say(Presence(id=1, to="user:bob"))
    await rig.tick()
    reply = alice.heard()[-1]
    assert isinstance(reply, Reply)
    assert reply.online is False


@pytest.mark.parametrize("op", [Ping(), Pong(), Presence(to="user:x"), Malformed("bad")], ids=repr)
@on_loop
async def test_any_frame_counts_as_a_beat(op: Ping) -> None:  # H4
    rig = Rig()
    bob = rig.endpoint("bob")
    for _ in range(2):
        beat(rig, 3)
        bob.say(op)
        assert not bob.session.closed
    beat(rig, 3)
    assert not bob.session.closed
    beat(rig)
    assert bob.session.closed


@on_loop
async def test_a_silent_session_is_asked_for_a_sign_of_life_and_a_lively_one_is_not() -> None:
    rig = Rig()
    bob, alice = rig.endpoint("bob"), rig.endpoint("alice")
    for _ in range(3):
        alice.say(Pong())
        beat(rig)
    assert bob.sink.pings == 2
    assert alice.sink.pings == 0


@on_loop
async def test_a_longer_lease_misses_more_beats() -> None:  # H4
    rig = Rig()
    sink = KeptSink()
    poll = rig.hub.open("poll", STREAM, sink, "here", lease_s=60.0)
    assert poll.beats_max == 12
    short = rig.hub.open("poll", STREAM, KeptSink(), "here", lease_s=0.1)
    assert short.beats_max == 1


@on_loop
async def test_who_does_not_say_hello_in_time_is_closed() -> None:
    rig = Rig(options=HubOptions(hello_timeout_s=10.0))
    stranger = rig.stranger()
    beat(rig)
    assert stranger.sink.closed is None
    stranger.say(Ping())  # being heard of is not enough
    beat(rig)
    assert stranger.sink.closed == (CloseCode.HELLO_TIMEOUT, "no hello in time")


@on_loop
async def test_every_session_is_looked_at_once_per_interval_in_slices() -> None:
    loop = asyncio.get_running_loop()
    sessions = [Session(str(n), "rig", STREAM, KeptSink(), "") for n in range(120)]
    looks: list[str] = []
    heartbeat = Heartbeat(loop, 0.2, lambda session: looks.append(session.id))
    for session in sessions:
        heartbeat.add(session)
    sessions[7].closed = True
    largest = 0
    heartbeat.start()
    while len(looks) < 3 * 119:
        before = len(looks)
        await asyncio.sleep(0)
        largest = max(largest, len(looks) - before)
    heartbeat.stop()
    assert largest <= 3 * 2  # 120 in 50 slices is 3 each; two steps may fall into one turn
    assert sorted(looks[:119], key=int) == [str(n) for n in range(120) if n != 7]
    # Others that come and go do not move a session within the interval.
    assert looks[119:238] == looks[:119]
    count = len(looks)
    await asyncio.sleep(0.02)
    assert len(looks) == count


@on_loop
async def test_the_hub_beats_by_itself_from_start_to_stop() -> None:
    rig = Rig(options=HubOptions(heartbeat_s=0.05))
    bob = rig.endpoint("bob")
    rig.hub.start()
    async with asyncio.timeout(10):
        while not bob.session.closed:
            await asyncio.sleep(0.01)
    assert bob.sink.closed is not None
    assert bob.sink.closed[0] == CloseCode.HEARTBEAT_LOST
    rig.hub.stop()
