"""Outboxes: one write per session and tick, and what becomes of those who read too slowly."""

from __future__ import annotations

import pytest

from chappe.errors import CloseCode
from chappe.hub.options import HubOptions
from chappe.hub.outbox import RELEASE_BYTES
from chappe.wire.ops import Delivery, Dropped, Ping, Subscribe
from tests.hub.rig import Endpoint, Rig, payload_of, publish, send
from tests.loop import on_loop

BOUND = 10_000
# A message of about a thousand bytes: ten of them reach the bound.
FILLING = "x" * 950


def small(**more: object) -> HubOptions:
    return HubOptions(outbox_bytes_max=BOUND, **more)  # type: ignore[arg-type]


async def pair(options: HubOptions | None = None) -> tuple[Rig, Endpoint, Endpoint]:
    """A rig, one who sends, and one who is subscribed to topic:t and does not read."""
    rig = Rig(options=options)
    alice, slow = rig.endpoint("alice"), rig.endpoint("slow")
    slow.say(Subscribe(to="topic:t"))
    await rig.tick()
    rig.hub.pause(slow.session)
    return rig, alice, slow


def numbers(ops: list[object]) -> list[int]:
    return [payload_of(op)[0] for op in ops if isinstance(op, Delivery)]


@on_loop
async def test_a_session_is_written_to_once_per_tick() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(Subscribe(to="topic:t"), Subscribe(to="topic:u"))
    await rig.tick()
    for n in range(50):
        alice.say(send("user:bob", n, id=n))
        alice.say(publish("topic:t", n), publish("topic:u", n), send(["user:bob"], n))
        bob.say(Ping())
    await rig.tick()
    assert len(alice.sink.writes) == len(bob.sink.writes) == 1
    assert len(bob.got()) == 200


@on_loop
async def test_nothing_is_written_when_nothing_came() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(send("user:bob", 1))
    await rig.tick()
    assert (len(alice.sink.writes), len(bob.sink.writes)) == (0, 1)


@pytest.mark.parametrize("how", ["lost", "close"])
@on_loop
async def test_a_session_that_ends_within_a_tick_is_not_written_to_at_its_end(how: str) -> None:
    """Its transport may be gone; an error there would keep everybody else's bytes back."""
    rig = Rig()
    alice, bob, carol = (rig.endpoint(name) for name in ("alice", "bob", "carol"))
    alice.say(send("user:bob", 1), send("user:carol", 2))
    if how == "lost":
        rig.hub.lost(bob.session)
    else:
        rig.hub.close(bob.session, CloseCode.NORMAL, "")
    written = len(bob.sink.writes)
    await rig.tick()
    assert len(bob.sink.writes) == written
    assert carol.got() == [2]


@on_loop
async def test_a_session_gets_what_it_has_yet_to_get_before_it_is_closed() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(send("user:bob", 1), send("user:bob", 2))
    rig.hub.close(bob.session, CloseCode.REVOKED, "enough")
    assert bob.got() == [1, 2]
    assert bob.sink.closed == (CloseCode.REVOKED, "enough")
    assert not bob.sink.aborted


@on_loop
async def test_nothing_is_handed_to_a_paused_transport_and_all_comes_when_it_resumes() -> None:
    rig, alice, slow = await pair()
    for n in range(20):
        alice.say(send("user:slow", [n]), publish("topic:t", [n]), Ping())
        await rig.tick()
    assert slow.sink.writes == []
    rig.hub.resume(slow.session)
    assert numbers(slow.heard()) == [n for n in range(20) for _ in range(2)]
    assert rig.hub.outboxes.held_bytes == 0
    assert not rig.hub.outboxes.held
    alice.say(send("user:slow", [99]))
    await rig.tick()
    assert numbers(slow.heard()) == [99]


@on_loop
async def test_what_waited_is_released_in_steps_that_a_transport_takes() -> None:
    rig, alice, slow = await pair()
    for n in range(300):
        alice.say(send("user:slow", [n, FILLING]))
    await rig.tick()
    rig.hub.resume(slow.session)
    while rig.hub.ticking:
        await rig.tick()
    assert len(slow.sink.writes) > 3
    assert all(len(data) < RELEASE_BYTES + 2000 for data in slow.sink.writes)
    assert numbers(slow.heard()) == list(range(300))


@on_loop
async def test_a_release_stops_when_the_transport_pauses_again() -> None:
    rig, alice, slow = await pair()
    for n in range(300):
        alice.say(send("user:slow", [n, FILLING]))
    await rig.tick()
    rig.hub.resume(slow.session)
    rig.hub.pause(slow.session)
    written = len(slow.sink.writes)
    await rig.tick()
    assert len(slow.sink.writes) == written == 1
    first = numbers(slow.heard())
    rig.hub.resume(slow.session)
    await rig.tick()
    assert first + numbers(slow.heard()) == list(range(300))


@on_loop
async def test_new_messages_queue_behind_what_waits() -> None:
    rig, alice, slow = await pair()
    for n in range(200):
        alice.say(send("user:slow", [n, FILLING]))
    await rig.tick()
    rig.hub.resume(slow.session)
    alice.say(send("user:slow", [200]), publish("topic:t", [201]))
    await rig.tick()
    assert numbers(slow.heard()) == list(range(202))


@pytest.mark.parametrize(
    ("policy", "kept"), [("drop_oldest", range(92, 100)), ("drop_newest", range(8))]
)
@on_loop
async def test_topic_messages_beyond_the_bound_are_dropped_and_told(
    policy: str, kept: range
) -> None:
    rig, alice, slow = await pair(small(topic_policy=policy))
    for n in range(100):
        alice.say(publish("topic:t", [n, FILLING]))
        await rig.tick()
        assert slow.session.backlog_bytes <= BOUND
    assert not slow.session.closed
    rig.hub.resume(slow.session)
    notice, *messages = slow.heard()
    assert isinstance(notice, Dropped)
    got = numbers(messages)
    assert notice.n == 100 - len(got)
    assert 5 <= len(got) <= 10
    if policy == "drop_oldest":
        assert got == list(range(100))[-len(got) :]
    else:
        # Room made by dropping the newest is filled by newer ones: the oldest stay.
        assert got == sorted(got)
        assert got[:5] == list(range(5))
    assert rig.recorder.drops == {"slow_consumer": notice.n}
    alice.say(publish("topic:t", [100]))
    await rig.tick()
    assert numbers(slow.heard()) == [100], "told once"


@on_loop
async def test_with_the_close_policy_a_slow_session_is_closed_and_aborted() -> None:
    rig, alice, slow = await pair(small(topic_policy="close"))
    for n in range(20):
        alice.say(publish("topic:t", [n, FILLING]))
        await rig.tick()
    assert slow.sink.closed is not None
    assert slow.sink.closed[0] == CloseCode.SLOW_CONSUMER
    assert slow.sink.aborted
    assert slow.sink.writes == []
    assert (rig.hub.outboxes.held_bytes, len(rig.hub.outboxes.held)) == (0, 0)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "close"])
@on_loop
async def test_what_was_answered_ok_is_never_dropped_and_the_rest_answers_overload(
    policy: str,
) -> None:  # H5
    rig, alice, slow = await pair(small(topic_policy=policy))
    accepted: list[int] = []
    for n in range(30):
        alice.say(send("user:slow", [n, FILLING], id=n))
        await rig.tick()
        reply = alice.reply()
        assert reply.ok or reply.error == "overload"
        if reply.ok:
            accepted.append(n)
    assert accepted == list(range(len(accepted)))
    assert 8 <= len(accepted) <= 10
    assert not slow.session.closed
    rig.hub.resume(slow.session)
    assert numbers(slow.heard()) == accepted


@on_loop
async def test_topic_messages_make_room_for_promises_and_never_the_other_way() -> None:
    rig, alice, slow = await pair(small())
    accepted = []
    for n in range(40):
        alice.say(publish("topic:t", [1000 + n, FILLING]), send("user:slow", [n, FILLING], id=n))
        await rig.tick()
        if alice.reply().ok:
            accepted.append(n)
    assert len(accepted) >= 8
    rig.hub.resume(slow.session)
    got = numbers(slow.heard())
    assert [n for n in got if n < 1000] == accepted


@on_loop
async def test_only_the_slow_session_of_a_user_misses_out() -> None:  # H13
    rig, alice, slow = await pair(small())
    quick = rig.endpoint("slow")
    for n in range(30):
        alice.say(send("user:slow", [n, FILLING], id=n))
        await rig.tick()
        assert alice.reply().ok
        assert numbers(quick.heard()) == [n]
    rig.hub.resume(slow.session)
    notice, *messages = slow.heard()
    first = numbers(messages)
    assert first == list(range(len(first)))
    assert isinstance(notice, Dropped)
    assert notice.n == 30 - len(first) > 0
    assert rig.recorder.drops == {"slow_device": notice.n}


@on_loop
async def test_a_reader_that_never_reads_replies_is_closed_at_the_bound() -> None:
    rig, _, slow = await pair(small())
    for n in range(3000):
        slow.say(Ping(id=n))
        await rig.tick()
        assert slow.session.backlog_bytes <= 2 * BOUND
        if slow.session.closed:
            break
    assert slow.sink.closed is not None
    assert slow.sink.closed[0] == CloseCode.SLOW_CONSUMER


@on_loop
async def test_a_tick_that_brings_more_than_the_bound_is_answered_overload_and_keeps_its_word() -> (
    None
):
    rig = Rig(options=small())
    senders = [rig.endpoint(f"s{n}") for n in range(100)]
    bob = rig.endpoint("bob")
    for n, sender in enumerate(senders):
        # Two receivers in turn, so that each message is a run of its own.
        sender.say(send("user:bob", [n, FILLING], id=1))
        sender.say(send("user:s0", 0))
    # The transport takes the first part and pauses; bob's own pings are answered on top.
    keep = bob.session.write

    def pausing(data: bytes) -> None:
        keep(data)
        rig.hub.pause(bob.session)

    bob.session.write = pausing
    await rig.tick()
    bob.say(Ping())
    await rig.tick()
    answers = {n: s.reply() for n, s in enumerate(senders)}
    accepted = [n for n, reply in answers.items() if reply.ok]
    assert 0 < len(accepted) < 100
    assert all(reply.ok or reply.error == "overload" for reply in answers.values())
    assert not bob.session.closed
    bob.session.write = keep
    rig.hub.resume(bob.session)
    await rig.tick()
    assert numbers(bob.heard()) == accepted


@on_loop
async def test_the_nodes_cap_evicts_the_largest_outbox_first() -> None:
    rig = Rig(options=HubOptions(outboxes_bytes_max=30_000))
    alice = rig.endpoint("alice")
    readers = [rig.endpoint(f"r{n}") for n in range(3)]
    for reader in readers:
        rig.hub.pause(reader.session)
    for reader, count in zip(readers, (5, 15, 8), strict=True):
        for n in range(count):
            alice.say(send(f"user:{reader.session.address[5:]}", [n, FILLING]))
    await rig.tick()
    assert [reader.session.closed for reader in readers] == [False, False, False]
    for n in range(3):
        alice.say(send("user:r2", [n, FILLING]))
    await rig.tick()
    assert [reader.session.closed for reader in readers] == [False, True, False]
    closed = readers[1].sink.closed
    assert closed is not None
    assert closed[0] == CloseCode.OUTBOX_EVICTED
    assert rig.hub.outboxes.held_bytes < 30_000
    rig.hub.resume(readers[0].session)
    assert numbers(readers[0].heard()) == list(range(5))


@on_loop
async def test_the_nodes_cap_holds_for_topic_messages_too() -> None:
    rig = Rig(options=HubOptions(outboxes_bytes_max=30_000))
    alice = rig.endpoint("alice")
    readers = [rig.endpoint(f"r{n}") for n in range(4)]
    for reader in readers:
        reader.say(Subscribe(to="topic:t"))
    await rig.tick()
    for reader in readers:
        rig.hub.pause(reader.session)
    for n in range(20):
        alice.say(publish("topic:t", [n, FILLING]))
        await rig.tick()
        assert rig.hub.outboxes.held_bytes <= 30_000
    assert not alice.session.closed


@on_loop
async def test_a_last_write_that_pauses_the_transport_does_not_cut_a_healthy_reader() -> None:
    rig = Rig()
    bob = rig.endpoint("bob")
    keep = bob.session.write

    def pausing(data: bytes) -> None:
        keep(data)
        rig.hub.pause(bob.session)

    bob.session.write = pausing
    rig.endpoint("alice").say(send("user:bob", 1))
    rig.hub.close(bob.session, CloseCode.SERVICE_RESTART, "going")
    assert bob.got() == [1]
    assert bob.sink.closed == (CloseCode.SERVICE_RESTART, "going")
    assert not bob.sink.aborted
