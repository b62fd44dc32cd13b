"""Fan-out: encoded once, joined once, in the order of the ops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from chappe.hub.fanout import RUN_BYTES_MAX, RUN_MESSAGES_MAX, runs_of
from chappe.hub.grant import EVERYTHING, NOTHING, Grant
from chappe.hub.options import HubOptions
from chappe.hub.outbox import FLUSH_SESSIONS
from chappe.message import Message
from chappe.wire.encoding import STREAM, Encoding
from chappe.wire.ops import PACKED, Hello, Op, Reply, Send, Subscribe, Unsubscribe
from tests.hub.rig import Rig, publish, send
from tests.loop import on_loop


class CountedEncoding(Encoding):
    """An encoding that keeps how many messages each call brought."""

    __slots__ = ("calls",)

    def __init__(self, encoding: Encoding) -> None:
        self.calls: list[int] = []

        def messages(run: Sequence[Message]) -> bytes:
            self.calls.append(len(run))
            return encoding.messages(run)

        super().__init__(
            "counted",
            encoding.op,
            messages,
            encoding.accepted,
            encoding.ok,
            encoding.message_id,
        )


@on_loop
async def test_a_run_is_encoded_once_per_encoding_however_many_receive_it() -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    encodings = [CountedEncoding(STREAM), CountedEncoding(STREAM)]
    readers = [rig.endpoint(f"r{n}", encodings[n % 2]) for n in range(40)]
    for reader in readers:
        reader.say(Subscribe(to="topic:t"))
    await rig.tick()
    alice.say(*(publish("topic:t", n) for n in range(10)))
    await rig.tick()
    assert [encoding.calls for encoding in encodings] == [[10], [10]]
    for reader in readers:
        assert len(reader.sink.writes) == 1
        assert reader.got() == list(range(10))
    # The bytes are shared, not copied.
    assert len({id(reader.sink.writes[0]) for reader in readers}) == 2


@on_loop
async def test_messages_of_several_senders_to_one_topic_make_one_run() -> None:
    rig = Rig()
    encoding = CountedEncoding(STREAM)
    reader = rig.endpoint("reader", encoding)
    reader.say(Subscribe(to="topic:t"))
    senders = [rig.endpoint(f"s{n}") for n in range(5)]
    for k in (1, 2):
        for n, sender in enumerate(senders):
            sender.say(publish("topic:t", [n, k]))
    await rig.tick()
    assert encoding.calls == [10]
    assert reader.got() == [[n, k] for k in (1, 2) for n in range(5)]


@on_loop
async def test_a_run_is_bounded() -> None:
    rig = Rig()
    encoding = CountedEncoding(STREAM)
    alice, reader = rig.endpoint("alice"), rig.endpoint("reader", encoding)
    reader.say(Subscribe(to="topic:t"))
    count = 3 * RUN_MESSAGES_MAX + 7
    for n in range(count):
        alice.say(publish("topic:t", n))
    await rig.tick()
    assert max(encoding.calls) <= RUN_MESSAGES_MAX
    assert reader.got() == list(range(count))


@on_loop
async def test_a_batch_of_thousands_arrives_whole_with_ids_that_rise() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(*(send("user:bob", n) for n in range(5000)))
    await rig.tick()
    ops = bob.heard()
    ids = [op.message for op in ops]
    assert len(set(ids)) == 5000
    assert ids == sorted(ids)


@on_loop
async def test_direct_and_topic_messages_to_one_session_keep_the_order_of_the_ops() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(Subscribe(to="topic:t"), Subscribe(to="topic:u"))
    await rig.tick()
    kinds = (
        lambda n: send("user:bob", n),
        lambda n: publish("topic:t", n),
        lambda n: publish("topic:u", n),
        lambda n: send(["user:bob"], n),
    )
    pattern = [0, 0, 1, 1, 1, 0, 2, 1, 2, 2, 3, 0, 3, 3, 1, 0, 0, 0]
    alice.say(*(kinds[kind](n) for n, kind in enumerate(pattern)))
    await rig.tick()
    assert bob.got() == list(range(len(pattern)))


@on_loop
async def test_a_reply_comes_before_what_later_ops_bring() -> None:
    rig = Rig()
    bob = rig.endpoint("bob")
    bob.say(Subscribe(id=1, to="topic:t"), publish("topic:t", 1), Unsubscribe(id=2, to="topic:t"))
    await rig.tick()
    kinds = [type(op).__name__ for op in bob.heard()]
    assert kinds == ["PackedReply", "PackedDelivery", "PackedReply"]


@on_loop
async def test_subscribing_and_leaving_within_a_run_take_effect_where_they_stand() -> None:
    rig = Rig()
    alice, bob, carol = (rig.endpoint(name) for name in ("alice", "bob", "carol"))
    bob.say(Subscribe(to="topic:t"))
    alice.say(publish("topic:t", 1), publish("topic:t", 2))
    carol.say(Subscribe(to="topic:t"))
    alice.say(publish("topic:t", 3))
    bob.say(Unsubscribe(to="topic:t"))
    alice.say(publish("topic:t", 4))
    await rig.tick()
    assert bob.got() == [1, 2, 3]
    assert carol.got() == [3, 4]


@pytest.mark.parametrize("kind", ["user", "topic"])
@on_loop
async def test_a_session_lost_within_a_run_takes_no_one_else_along(kind: str) -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    devices = [rig.endpoint("bob") for _ in range(3)]
    for device in devices:
        device.say(Subscribe(to="topic:t"))
    await rig.tick()
    op = (lambda n: send("user:bob", n)) if kind == "user" else (lambda n: publish("topic:t", n))
    alice.say(op(1))
    rig.hub.lost(devices[1].session)
    alice.say(op(2))
    await rig.tick()
    assert devices[0].got() == devices[2].got() == [1, 2]
    assert devices[1].got() == []


@on_loop
async def test_a_device_admitted_within_a_tick_gets_what_comes_after_it() -> None:  # H13
    rig = Rig()
    alice, first = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(send("user:bob", 1), send("user:bob", 2))
    second = rig.endpoint("bob")
    alice.say(send("user:bob", 3), send("user:bob", 4))
    await rig.tick()
    assert first.got() == [1, 2, 3, 4]
    assert second.got() == [3, 4]


@on_loop
async def test_a_device_paused_within_a_run_waits_for_what_was_promised() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(send("user:bob", 1, id=1))
    rig.hub.pause(bob.session)
    alice.say(send("user:bob", 2, id=2))
    await rig.tick()
    assert [op.ok for op in alice.heard()] == [True, True]
    assert bob.sink.writes == []
    rig.hub.resume(bob.session)
    await rig.tick()
    assert bob.got() == [1, 2]


@on_loop
async def test_a_bad_payload_within_a_run_is_refused_and_the_rest_goes_on() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(
        send("user:bob", 1),
        Send(to="user:bob", data64="?"),
        send("user:bob", 2),
        Send(to="user:bob"),
        send("user:bob", 3),
    )
    packed = PACKED[Send]
    alice.say(
        packed(to="user:bob", data=b"4"),
        packed(to="user:bob", data=b"}"),
        packed(to="user:bob", data=b"5"),
        packed(to="user:bob", data64=True),
        packed(to="user:bob", data=b"6"),
    )
    await rig.tick()
    assert bob.got() == [1, 2, 3, 4, 5, 6]
    assert rig.recorder.refusals == {"protocol": 4}


@on_loop
async def test_a_run_of_one_app_is_not_joined_by_another_app_of_the_same_names() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice", app="a"), rig.endpoint("bob", app="a")
    carol, other_bob = rig.endpoint("carol", app="b"), rig.endpoint("bob", app="b")
    alice.say(send("user:bob", "a1"))
    carol.say(send("user:bob", "b1"), send("user:bob", "b2"))
    alice.say(send("user:bob", "a2"))
    await rig.tick()
    assert (bob.got(), other_bob.got()) == (["a1", "a2"], ["b1", "b2"])


class OnlyAlice:
    """Lets everybody in and subscribe, and alice alone send and publish."""

    def authenticate(self, hello: Hello) -> Grant:
        scope = EVERYTHING if hello.as_ == "user:alice" else NOTHING
        return Grant(app="a", address=hello.as_, send=scope, publish=scope, subscribe=EVERYTHING)


@on_loop
async def test_nobody_joins_the_run_of_another_without_permission() -> None:
    rig = Rig(authenticator=OnlyAlice())
    alice, bob, mallory = (rig.endpoint(name) for name in ("alice", "bob", "mallory"))
    bob.say(Subscribe(to="topic:t"))
    await rig.tick()
    alice.say(publish("topic:t", "good"))
    mallory.say(publish("topic:t", "bad 1"), publish("topic:t", "bad 2"))
    alice.say(send("user:bob", "good"))
    mallory.say(send("user:bob", "bad 3"), send("user:bob", "bad 4"))
    await rig.tick()
    assert bob.got() == ["good", "good"]


@on_loop
async def test_a_fan_out_larger_than_a_slice_reaches_everybody() -> None:
    rig = Rig()
    readers = [rig.endpoint(f"r{n}") for n in range(3 * FLUSH_SESSIONS + 1)]
    for reader in readers:
        reader.say(Subscribe(to="topic:t"))
    alice = rig.endpoint("alice")
    alice.say(publish("topic:t", 1))
    for _ in range(10):
        await asyncio.sleep(0)
    assert [reader.got() for reader in readers] == [[1]] * len(readers)


@on_loop
async def test_what_was_promised_before_a_transport_paused_in_the_same_tick_is_kept() -> None:
    rig = Rig(options=HubOptions(outbox_bytes_max=10_000))
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    for n in range(9):
        alice.say(send("user:bob", [n, "x" * 1000], id=n))
    alice.say(send("user:bob", [9, "x" * 5000], id=9))
    rig.hub.pause(bob.session)
    await rig.tick()
    replies = [op for op in alice.heard() if isinstance(op, Reply)]
    assert all(reply.ok for reply in replies)
    rig.hub.resume(bob.session)
    await rig.tick()
    assert [n for n, _ in bob.got()] == list(range(10))


@on_loop
async def test_the_nodes_cap_reached_by_one_of_several_devices_disturbs_nobody() -> None:
    options = HubOptions(outboxes_bytes_max=20_000)
    rig = Rig(options=options)
    alice = rig.endpoint("alice")
    free = rig.endpoint("bob")
    stuck = [rig.endpoint("bob") for _ in range(12)]
    for device in stuck:
        rig.hub.pause(device.session)
    for n in range(10):
        alice.say(send("user:bob", [n, "x" * 1000], id=n))
    await rig.tick()
    assert [reply.ok for reply in alice.heard()] == [True] * 10
    assert [n for n, _ in free.got()] == list(range(10))
    assert any(device.session.closed for device in stuck)
    rig.hub.pause(free.session)
    for n in range(20):
        alice.say(send("user:bob", [n, "x" * 1000], id=n))
    await rig.tick()
    assert len(alice.heard()) == 20


@pytest.mark.parametrize("make", [send, publish])
@on_loop
async def test_a_run_that_ended_for_its_size_is_joined_by_nobody(make: Callable[..., Op]) -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(Subscribe(to="topic:bob"))
    await rig.tick()
    to = "user:bob" if make is send else "topic:bob"
    alice.say(make(to, "x" * RUN_BYTES_MAX), make("", 1), make(to, 2))
    alice.say(make(to, 3, id=1))
    await rig.tick()
    assert bob.got()[1:] == [2, 3]
    assert alice.reply().ok


def test_messages_are_divided_where_the_address_changes_or_a_run_is_full() -> None:
    def messages(to: str, count: int, payload: bytes = b"1") -> list[Message]:
        return [Message(n, "user:a", to, 1, payload) for n in range(count)]

    assert list(runs_of([])) == []
    several = [*messages("topic:a", 3), *messages("topic:b", 1), *messages("topic:a", 2)]
    assert list(runs_of(several)) == [several[:3], several[3:4], several[4:]]
    many = messages("topic:a", RUN_MESSAGES_MAX + 1)
    assert [len(run) for run in runs_of(many)] == [RUN_MESSAGES_MAX, 1]
    large = messages("topic:a", 3, b"x" * (RUN_BYTES_MAX // 2))
    assert [len(run) for run in runs_of(large)] == [2, 1]
