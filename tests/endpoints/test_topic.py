"""Topics on one node: who receives, what is kept, and what is refused (H16)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.endpoints import topic as module
from chappe.endpoints.history import TopicOptions
from chappe.hub.fanout import RUN_MESSAGES_MAX
from chappe.hub.grant import EVERYTHING, Grant, scope_of
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire.ops import (
    Avatar,
    Delivery,
    Hello,
    Position,
    Presence,
    Publish,
    Reply,
    Subscribe,
    Unsubscribe,
)
from tests.endpoints.test_user import Copies
from tests.hub.rig import Endpoint, Rig, payload_of, publish, send
from tests.loop import on_loop

APP = "default"
NEWS = "topic:news"


class Square(Rig):
    """A hub with topics that keep something."""

    def define(self, topic: str = NEWS, **options: Any) -> None:
        self.application.topics.define(APP, topic, TopicOptions(**options))

    async def ask(self, who: Endpoint, op: Any) -> Reply:
        who.say(op)
        await self.tick()
        return who.reply()

    async def publish(self, who: Endpoint, *values: Any, to: str = NEWS) -> None:
        who.say(*(publish(to, value) for value in values))
        await self.tick()


def summary(who: Endpoint) -> list[Any]:
    """Messages as (payload, offset), replies by id, positions by offset."""
    words: list[Any] = []
    for op in who.heard():
        if isinstance(op, Delivery):
            words.append((payload_of(op), op.offset))
        elif isinstance(op, Reply):
            words.append(("reply", op.id))
        elif isinstance(op, Position):
            words.append(("position", op.offset))
    return words


@on_loop
async def test_a_publish_says_how_many_nodes_took_it_also_within_a_run() -> None:
    square = Square()
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    alice.say(*(publish(NEWS, n, id=n) for n in range(3)))
    await square.tick()
    assert [reply.nodes for reply in alice.heard()] == [0, 0, 0]
    await square.ask(bob, Subscribe(id=1, to=NEWS))
    alice.say(*(publish(NEWS, n, id=n) for n in range(3)))
    await square.tick()
    replies = alice.heard()
    assert [reply.nodes for reply in replies] == [1, 1, 1]
    got = [op for op in bob.heard() if isinstance(op, Delivery)]
    assert [op.message for op in got] == [reply.message for reply in replies]


@pytest.mark.parametrize(
    ("op", "error", "named"),
    [
        (publish("user:bob", 1, id=1), "protocol", "to: a topic, a key or a room is meant here"),
        (publish("nonsense", 1, id=1), "protocol", "to:"),
        (Publish(id=1, to=NEWS, data64="AA==", reliable=True), "protocol", "reliable"),
        (Subscribe(id=1, to="user:bob"), "protocol", "to: a topic or a key is meant"),
        (Subscribe(id=1, to="topic:a*"), "protocol", "wildcard"),
        (Unsubscribe(id=1, to="user:bob"), "protocol", "to: a topic or a key is meant"),
        (Subscribe(id=1, to=NEWS, as_="user:other"), "protocol", "as:"),
        (Subscribe(id=1, to=NEWS, as_="avatar:stranger"), "forbidden", "as:"),
        (Subscribe(id=1, to=NEWS, as_="bogus"), "protocol", "as:"),
    ],
)
@on_loop
async def test_what_is_wrong_is_refused_by_name(op: Any, error: str, named: str) -> None:
    square = Square()
    reply = await square.ask(square.endpoint("alice"), op)
    assert reply.error == error
    assert named in (reply.reason or "")
    assert NEWS not in square.hub.app(APP).topics


class Narrow:
    """Lets users publish to and subscribe to what is theirs."""

    def authenticate(self, hello: Hello) -> Grant:
        own = scope_of([f"topic:{hello.as_.partition(':')[2]}-*"])
        return Grant(app=APP, address=hello.as_, publish=own, subscribe=own, send=EVERYTHING)


@on_loop
async def test_a_session_publishes_and_subscribes_within_its_scope_also_in_a_run() -> None:
    square = Square(authenticator=Narrow())
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    assert (await square.ask(bob, Subscribe(id=1, to="topic:bob-x"))).ok
    assert (await square.ask(bob, Subscribe(id=2, to="topic:alice-x"))).error == "forbidden"
    # Bob's run is under way: alice does not slip into it.
    bob.say(publish("topic:bob-x", 1))
    alice.say(publish("topic:bob-x", 2, id=1), publish("topic:bob-x", 3))
    await square.tick()
    assert alice.reply().error == "forbidden"
    assert bob.got() == [1]


@on_loop
async def test_a_session_has_so_many_topics_and_one_it_has_is_no_more() -> None:
    square = Square(options=HubOptions(subscriptions_max=2))
    bob = square.endpoint("bob")
    for topic, ok in (("topic:a", True), ("topic:b", True), ("topic:c", False), ("topic:a", True)):
        assert (await square.ask(bob, Subscribe(id=1, to=topic))).ok is ok
    await square.ask(bob, Unsubscribe(id=1, to="topic:a"))
    assert (await square.ask(bob, Subscribe(id=1, to="topic:c"))).ok


@on_loop
async def test_a_history_is_delivered_before_the_reply_and_what_follows_behind_it() -> None:
    square = Square()
    square.define(history=3)
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    start = await square.ask(bob, Subscribe(id=1, to=NEWS))
    assert (start.offset, start.recovered) == (0, None)
    assert start.epoch
    await square.publish(alice, "a", "b")
    assert summary(bob) == [("a", 1), ("b", 2)]
    late = square.endpoint("late")
    # In one tick: a message, a late comer, a message.
    alice.say(publish(NEWS, "c"))
    late.say(Subscribe(id=5, to=NEWS, epoch=start.epoch, offset=1))
    alice.say(publish(NEWS, "d"))
    await square.tick()
    assert summary(late) == [("b", 2), ("c", 3), ("reply", 5), ("d", 4)]
    assert summary(bob) == [("c", 3), ("d", 4)]
    # Subscribed already, it is told where the topic is and gets nothing twice.
    late.say(Subscribe(id=6, to=NEWS, epoch=start.epoch, offset=1))
    await square.tick()
    (again,) = late.heard()
    assert (again.recovered, again.offset) == (True, 4)
    gone = square.endpoint("gone")
    gone.say(Subscribe(id=7, to=NEWS, epoch=start.epoch, offset=0))
    await square.tick()
    *missed, reply = gone.heard()
    assert [payload_of(op) for op in missed] == ["b", "c", "d"]
    assert (reply.recovered, reply.offset, reply.epoch) == (False, 4, start.epoch)


@on_loop
async def test_what_is_recovered_fits_the_outbox_or_is_not_said_to_be_all() -> None:
    square = Square(options=HubOptions(outbox_bytes_max=20_000))
    topics = [f"topic:{n}" for n in range(3)]
    alice = square.endpoint("alice")
    epochs = []
    for topic in topics:
        square.define(topic, history=100)
        epochs.append((await square.ask(alice, Subscribe(id=1, to=topic))).epoch)
        await square.ask(alice, Unsubscribe(id=2, to=topic))
        await square.publish(alice, *([n, "x" * 1000] for n in range(14)), to=topic)
    bob = square.endpoint("bob")
    bob.say(Subscribe(id=3, to=topics[0], epoch=epochs[0], offset=0))
    await square.tick()
    *missed, reply = bob.heard()
    newest = [payload_of(op)[0] for op in missed]
    assert newest == list(range(14 - len(newest), 14))
    assert 0 < len(newest) < 10
    assert (reply.recovered, reply.offset) == (False, 14)
    # Several at once: each of them fits, all together do not.
    eve = square.endpoint("eve")
    for n, topic in enumerate(topics):
        eve.say(Subscribe(id=n, to=topic, epoch=epochs[n], offset=7))
    await square.tick()
    heard = eve.heard()
    replies = [op for op in heard if isinstance(op, Reply)]
    assert [reply.recovered for reply in replies] == [True, True, False]
    assert len(heard) - len(replies) < 21
    assert square.recorder.drops == {}


@on_loop
async def test_without_a_history_nothing_is_recovered_and_no_place_is_told() -> None:
    square = Square()
    reply = await square.ask(square.endpoint("bob"), Subscribe(id=1, to=NEWS, epoch="e", offset=3))
    assert (reply.recovered, reply.epoch, reply.offset) == (False, None, None)
    reply = await square.ask(square.endpoint("eve"), Subscribe(id=1, to=NEWS))
    assert reply.recovered is None
    square.define("topic:off", history=10, history_s=0)
    reply = await square.ask(square.endpoint("joe"), Subscribe(id=1, to="topic:off"))
    assert reply.epoch is None


@on_loop
async def test_what_is_too_old_is_not_recovered() -> None:
    square = Square()
    square.define(history=10, history_s=60)
    alice = square.endpoint("alice")
    start = await square.ask(alice, Subscribe(id=1, to=NEWS))
    await square.publish(alice, "old")
    square.clock.now_s += 30
    await square.publish(alice, "new")
    square.clock.now_s += 31
    bob = square.endpoint("bob")
    bob.say(Subscribe(id=2, to=NEWS, epoch=start.epoch, offset=0))
    await square.tick()
    message, reply = bob.heard()
    assert payload_of(message) == "new"
    assert reply.recovered is False


@on_loop
async def test_each_message_of_a_defined_topic_is_numbered_and_anonymous_also_in_a_run() -> None:
    square = Square()
    square.define(history=100, anonymous=True)
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    await square.ask(bob, Subscribe(id=1, to=NEWS))
    alice.say(*(publish(NEWS, n) for n in range(5)))
    bob.say(publish(NEWS, 5, id=9))
    await square.tick()
    got = [op for op in bob.heard() if isinstance(op, Delivery)]
    assert [(op.offset, op.from_) for op in got] == [(n, "") for n in range(1, 7)]
    # Defined while a run is under way, it counts from there on; as it does undefined.
    alice.say(publish("topic:x", 1))
    square.define("topic:x", anonymous=True)
    bob.say(Subscribe(to="topic:x"))
    alice.say(publish("topic:x", 2), publish("topic:x", 3))
    square.application.topics.define(APP, "topic:x", None)
    alice.say(publish("topic:x", 4))
    await square.tick()
    got = [op for op in bob.heard() if isinstance(op, Delivery)]
    assert [(payload_of(op), op.from_) for op in got] == [
        (2, ""),
        (3, ""),
        (4, "user:alice"),
    ]


@on_loop
async def test_a_history_made_anew_has_another_epoch_and_subscribers_are_told() -> None:
    square = Square()
    square.define(history=5)
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    before = await square.ask(bob, Subscribe(id=1, to=NEWS))
    await square.publish(alice, 1)
    assert summary(bob) == [(1, 1)]
    square.define(history=50)
    await square.publish(alice, 2)
    assert summary(bob) == [("position", 0), (2, 1)]
    late = await square.ask(
        square.endpoint("late"), Subscribe(id=2, to=NEWS, epoch=before.epoch, offset=1)
    )
    assert late.recovered is False
    assert late.epoch != before.epoch


@on_loop
async def test_all_histories_together_are_bounded_and_the_idlest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HISTORIES_BYTES_MAX", 10_000)
    square = Square()
    topics = square.application.topics
    names = [f"topic:{n}" for n in range(4)]
    for name in names:
        square.define(name, history=100)
    alice = square.endpoint("alice")
    await square.publish(alice, "x" * 2800, to=names[0])
    await square.publish(alice, "x" * 2800, to=names[1])
    await square.publish(alice, "x" * 100, to=names[0])
    await square.publish(alice, "x" * 2800, to=names[2])
    assert set(topics.histories()) == {(APP, name) for name in names[:3]}
    await square.publish(alice, "x" * 2800, to=names[3])
    # The second was published to longest ago.
    assert set(topics.histories()) == {(APP, names[n]) for n in (0, 2, 3)}
    assert 0 < topics.histories_bytes <= 10_000
    # The last one stays, whatever its size.
    await square.publish(alice, *["x" * 2800] * 5, to=names[3])
    assert list(topics.histories()) == [(APP, names[3])]
    history = topics.history(APP, names[3])
    assert history is not None
    assert history.offset == 6
    topics.define(APP, names[3], None)
    assert topics.histories_bytes == 0
    assert list(topics.histories()) == []


@on_loop
async def test_what_a_home_elsewhere_sent_is_handed_on_and_own_messages_do_not_join_it() -> None:
    square = Square()
    topics, app = square.application.topics, square.hub.app(APP)
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    await square.ask(bob, Subscribe(id=1, to=NEWS))
    sent = [Message(n, "user:far", NEWS, 1, str(n).encode(), offset=n) for n in range(3)]
    square.hub.ensure_tick()
    topics.fan_out_here(app, sent)
    assert square.hub.fanout.foreign
    copies = Copies()
    app.watchers[NEWS] = (copies,)
    alice.say(publish(NEWS, "own", id=1))
    await square.tick()
    assert [payload_of(op) for op in bob.heard()] == [0, 1, 2, "own"]
    assert alice.reply().nodes == 2
    # Other nodes get what was published here, not what came from elsewhere.
    assert [[message.payload for message in run] for _, run, _ in copies.got] == [[b'"own"']]
    # More than a run holds comes whole; of a topic that nobody has here, nothing does.
    many = [Message(n, "user:far", NEWS, 1, b"1") for n in range(2 * RUN_MESSAGES_MAX + 3)]
    square.hub.ensure_tick()
    topics.fan_out_here(app, many)
    topics.fan_out_here(app, [Message(1, "user:far", "topic:nobody", 1, b"1")])
    await square.tick()
    assert len(bob.got()) == len(many)


@on_loop
async def test_nothing_is_published_to_a_user_that_is_being_sent_to() -> None:
    square = Square()
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    alice.say(send("user:bob", 1))
    alice.say(publish("user:bob", 2, id=1), publish("user:bob", 3))
    await square.tick()
    assert alice.reply().error == "protocol"
    assert bob.got() == [1]


@on_loop
async def test_in_a_crowd_who_comes_and_goes_gets_what_was_published_meanwhile_once() -> None:
    square = Square()
    square.define(history=10)
    alice = square.endpoint("alice")
    crowd = [square.endpoint(f"r{n}") for n in range(20)]
    for reader in crowd:
        await square.ask(reader, Subscribe(id=1, to=NEWS))
    start = await square.ask(crowd[0], Subscribe(id=1, to=NEWS))
    late = square.endpoint("late")
    alice.say(publish(NEWS, 1))
    late.say(Subscribe(to=NEWS, epoch=start.epoch, offset=0))
    crowd[0].say(Unsubscribe(to=NEWS))
    alice.say(publish(NEWS, 2))
    crowd[1].say(Unsubscribe(to=NEWS))
    await square.tick()
    assert [reader.got() for reader in (late, *crowd[:3])] == [[1, 2], [1], [1, 2], [1, 2]]


@on_loop
async def test_who_subscribed_by_two_names_leaves_with_the_last_of_them() -> None:  # H14, H16
    square = Square()
    bob, alice = square.endpoint("bob"), square.endpoint("alice")
    assert (await square.ask(alice, Avatar(id=1, do="add", avatar="avatar:b", user="user:bob"))).ok
    for name in (None, "avatar:b", "user:bob"):
        assert (await square.ask(bob, Subscribe(id=1, to=NEWS, as_=name))).ok
    await square.publish(alice, 1)
    assert bob.got() == [1]
    bob.say(Unsubscribe(to=NEWS))
    await square.publish(alice, 2)
    assert bob.got() == [2]
    # Twice is no harm; the avatar's removal ends it, after what was published before.
    bob.say(Unsubscribe(id=3, to=NEWS))
    alice.say(publish(NEWS, 3))
    alice.say(Avatar(do="remove", avatar="avatar:b"))
    alice.say(publish(NEWS, 4))
    await square.tick()
    assert summary(bob) == [("reply", 3), (3, 0)]
    assert NEWS not in square.hub.app(APP).topics


@on_loop
async def test_a_topic_is_there_while_somebody_subscribes() -> None:  # H8
    square = Square()
    alice, bob = square.endpoint("alice"), square.endpoint("bob")
    assert (await square.ask(alice, Presence(id=1, to=NEWS))).online is False
    await square.ask(bob, Subscribe(id=1, to=NEWS))
    assert (await square.ask(alice, Presence(id=2, to=NEWS))).online is True
    square.hub.lost(bob.session)
    assert (await square.ask(alice, Presence(id=3, to=NEWS))).online is False
    alice.say(Presence(to=NEWS))
    await square.tick()
    assert alice.heard() == []
