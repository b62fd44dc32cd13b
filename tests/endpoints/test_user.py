"""Users: messages to single receivers, lists of them, and whether they are online (H5, H8, H14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chappe.endpoints.cluster import Alone
from chappe.errors import Unreachable
from chappe.hub.answer import Answer
from chappe.hub.app import App
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.limits import Limits
from chappe.wire.ops import Avatar, Delivery, Hello, Presence, Reply, Send
from tests.hub.rig import Endpoint, Rig, payload_of, send
from tests.loop import on_loop

APP = "default"


class Far(Alone):
    """Another node, which keeps what it is sent and answers when a test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message, Answer]] = []
        self.asked: list[tuple[str, Callable[[bool], None]]] = []

    def send(self, app: App, user: str, message: Message, answer: Answer) -> None:
        self.sent.append((user, message, answer))

    def ask_online(self, app: App, user: str, tell: Callable[[bool], None]) -> None:
        self.asked.append((user, tell))


class Copies:
    """A node that takes copies of what is sent to those who are there as well as here."""

    name = "far"
    full = False

    def __init__(self) -> None:
        self.got: list[tuple[str, list[Message], bool]] = []

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        self.got.append((app, list(messages), promised))


class Place(Rig):
    """A hub, and what tests do on it."""

    async def ask(self, who: Endpoint, op: Any) -> Reply:
        who.say(op)
        await self.tick()
        return who.reply()

    async def add_avatar(self, avatar: str, user: str) -> None:
        op = Avatar(id=1, do="add", avatar=avatar, user=user)
        assert (await self.ask(self.endpoint("manager"), op)).ok

    def far(self) -> Far:
        far = Far()
        self.application.join(far)
        return far

    @property
    def app(self) -> App:
        return self.hub.app(APP)


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_message_reaches_every_device_and_is_ok_once_taken(encoding: Encoding) -> None:
    place = Place()
    alice = place.endpoint("alice", encoding)
    devices = [place.endpoint("bob", encoding) for _ in range(3)]
    reply = await place.ask(alice, send("user:bob", {"n": 1}, id=1))
    for device in devices:
        (message,) = device.heard()
        assert (message.message, message.from_, message.to) == (
            reply.message,
            "user:alice",
            "user:bob",
        )
    assert (await place.ask(alice, send("user:nobody", 1, id=2))).error == "unreachable"


@pytest.mark.parametrize(
    ("to", "named"),
    [
        ("topic:t", "publish to a topic"),
        ("service:s", "request"),
        ("room:r", "publish to a room"),
        ("key:k", "publish to a key"),
        ("nonsense", "not an address"),
        ("user:", "empty"),
        ([], "empty list"),
    ],
)
@on_loop
async def test_what_nothing_can_be_sent_to_is_refused_with_what_to_do(to: Any, named: str) -> None:
    place = Place()
    reply = await place.ask(place.endpoint("alice"), send(to, 1, id=1))
    assert reply.error == "protocol"
    assert named in (reply.reason or "")


@pytest.mark.parametrize(
    "extra",
    [
        {"key": "k"},
        {"headers": {}},
        {"tags": []},
        {"delay_ms": 0},
        {"producer": "p"},
        {"seq": 0},
        {"num": 0},
    ],
)
@pytest.mark.parametrize("to", ["user:bob", ["user:bob"]])
@on_loop
async def test_what_only_a_queue_does_is_not_ignored(to: Any, extra: dict[str, Any]) -> None:
    place = Place()
    alice, bob = place.endpoint("alice"), place.endpoint("bob")
    plain = send(to, 1, id=1)
    # Also behind one that began a run.
    alice.say(send("user:bob", 0), Send(id=1, to=to, data=plain.data, **extra))
    alice.say(Send(to=to, data=plain.data, **extra))
    await place.tick()
    reply = alice.reply()
    assert reply.error == "protocol"
    assert next(iter(extra)) in (reply.reason or "")
    assert bob.got() == [0]


class Narrow:
    """Lets users send to their friends, who are called alike."""

    def authenticate(self, hello: Hello) -> Grant:
        own = scope_of([f"{hello.as_[:6]}*", "queue:jobs"])
        return Grant(app=APP, address=hello.as_, send=own)


@on_loop
async def test_a_session_sends_within_its_scope_also_in_a_run_and_in_a_list() -> None:
    place = Place(authenticator=Narrow())
    alice, friend, bob = (place.endpoint(name) for name in ("alice", "anna", "bob"))
    bob.say(send("user:bob", 0))
    alice.say(send("user:bob", 1, id=1))
    alice.say(send(["user:anna", "user:bob"], 2, id=2), send("user:anna", 3, id=3))
    await place.tick()
    replies = {reply.id: reply.error for reply in alice.heard()}
    assert replies == {1: "forbidden", 2: "forbidden", 3: None}
    assert friend.got() == [3]
    assert bob.got() == [0]


@on_loop
async def test_a_list_is_answered_with_each_verdict_and_each_gets_it_once() -> None:
    place = Place()
    alice, bob, carol = (place.endpoint(name) for name in ("alice", "bob", "carol"))
    to = ["user:bob", "user:ghost", "topic:t", "user:carol", "user:bob", "avatar:nobody"]
    reply = await place.ask(alice, send(to, 7, id=1))
    assert reply.verdicts == {
        "user:bob": "ok",
        "user:ghost": "unreachable",
        "topic:t": "protocol",
        "user:carol": "ok",
        "avatar:nobody": "unreachable",
    }
    assert (reply.ok, reply.error) == (False, "unreachable")
    for who in (bob, carol):
        (message,) = who.heard()
        assert message.message == reply.message
    alice.say(send(["user:bob", "user:carol"], 8))
    await place.tick()
    assert bob.got() == carol.got() == [8]
    assert alice.heard() == []


@on_loop
async def test_a_user_and_its_avatars_in_one_list_are_one_receiver() -> None:  # H14
    place = Place()
    alice, bob = place.endpoint("alice"), place.endpoint("bob")
    for avatar in ("avatar:b1", "avatar:b2"):
        await place.add_avatar(avatar, "user:bob")
    to = ["avatar:b2", "user:ghost", "user:bob", "avatar:b1"]
    reply = await place.ask(alice, send(to, 1, id=1))
    assert reply.verdicts == {
        "avatar:b2": "ok",
        "user:ghost": "unreachable",
        "user:bob": "ok",
        "avatar:b1": "ok",
    }
    (message,) = bob.heard()
    # By the name that came first.
    assert message.to == "avatar:b2"


@on_loop
async def test_avatars_of_somebody_elsewhere_share_the_verdict_that_comes_late() -> None:  # H14
    place = Place()
    alice = place.endpoint("alice")
    await place.add_avatar("avatar:b", "user:bob")
    far = place.far()
    alice.say(send(["user:bob", "avatar:b"], 1, id=1))
    await place.tick()
    assert alice.heard() == []
    ((user, message, answer),) = far.sent
    assert (user, message.to) == ("user:bob", "user:bob")
    answer.fail(Unreachable("gone"))
    await place.tick()
    assert alice.reply().verdicts == {"user:bob": "unreachable", "avatar:b": "unreachable"}


@on_loop
async def test_a_list_is_bounded() -> None:
    place = Place(limits=Limits(receivers_max=2))
    alice, bob = place.endpoint("alice"), place.endpoint("bob")
    assert (await place.ask(alice, send(["user:bob"] * 5 + ["user:x"], 1, id=1))).verdicts
    reply = await place.ask(alice, send(["user:bob", "user:x", "user:y"], 1, id=2))
    assert reply.error == "protocol"
    assert bob.got() == [1]


@on_loop
async def test_a_full_outbox_refuses_one_that_is_alone_and_is_missed_by_one_of_several() -> None:
    place = Place(options=HubOptions(outbox_bytes_max=1000))
    recorder: Any = place.recorder
    alice, slow = place.endpoint("alice"), place.endpoint("bob")
    place.hub.pause(slow.session)
    big = "x" * 600
    assert (await place.ask(alice, send("user:bob", big, id=1))).ok
    for to in ("user:bob", ["user:bob"]):
        reply = await place.ask(alice, send(to, big, id=2))
        assert (reply.ok, reply.error, reply.outcome) == (False, "overload", None)
    other = place.endpoint("bob")
    place.hub.pause(other.session)
    assert (await place.ask(alice, send("user:bob", big, id=3))).ok
    assert recorder.drops["slow_device"] == 1
    place.hub.resume(other.session)
    await place.tick()
    assert other.got() == [big]


@on_loop
async def test_no_room_here_is_no_refusal_for_who_is_elsewhere_too() -> None:  # H13
    place = Place(options=HubOptions(outbox_bytes_max=1000))
    alice, slow = place.endpoint("alice"), place.endpoint("bob")
    far, copies = place.far(), Copies()
    place.hub.pause(slow.session)
    place.app.routes["user:bob"] = (copies,)
    big = "x" * 600
    assert (await place.ask(alice, send("user:bob", big, id=1))).ok
    assert [(app, len(run), promised) for app, run, promised in copies.got] == [(APP, 1, True)]
    alice.say(send("user:bob", big, id=2), send(["user:bob"], big, id=3))
    await place.tick()
    assert alice.heard() == []
    assert [user for user, _, _ in far.sent] == ["user:bob"] * 2
    for _, _, answer in far.sent:
        answer.ok()
    await place.tick()
    assert [reply.ok for reply in alice.heard()] == [True, True]


@on_loop
async def test_a_run_to_who_is_here_and_there_goes_to_both_in_order() -> None:
    place = Place()
    alice, bob, copies = place.endpoint("alice"), place.endpoint("bob"), Copies()
    place.app.routes["user:bob"] = (copies,)
    alice.say(*(send("user:bob", n) for n in range(5)))
    await place.tick()
    assert bob.got() == list(range(5))
    ((_, run, promised),) = copies.got
    assert [int(message.payload) for message in run] == list(range(5))
    assert promised


@on_loop
async def test_what_a_node_forwarded_is_delivered_here_only_and_own_messages_do_not_join() -> None:
    place = Place()
    alice, bob, copies = place.endpoint("alice"), place.endpoint("bob"), Copies()
    place.app.routes["user:bob"] = (copies,)
    users = place.application.users
    place.hub.ensure_tick()
    for n in range(3):
        users.deliver_here(place.app, Message(n, "user:far", "user:bob", 1, str(n).encode()))
    alice.say(send("user:bob", "own", id=1))
    users.deliver_here(place.app, Message(9, "user:far", "user:bob", 1, b"9"))
    await place.tick()
    assert bob.got() == [0, 1, 2, "own", 9]
    assert alice.reply().ok
    # What was forwarded does not go on to others; what is sent here does.
    assert [[message.payload for message in run] for _, run, _ in copies.got] == [[b'"own"']]
    with pytest.raises(Unreachable):
        users.deliver_here(place.app, Message(9, "user:far", "user:ghost", 1, b"9"))


@on_loop
async def test_an_avatar_that_is_removed_while_a_run_is_gathered_gets_no_more() -> None:  # H15
    place = Place()
    alice, bob = place.endpoint("alice"), place.endpoint("bob")
    await place.add_avatar("avatar:b", "user:bob")
    alice.say(send("avatar:b", 1))
    alice.say(Avatar(id=2, do="remove", avatar="avatar:b"))
    alice.say(send("avatar:b", 3, id=3), send("avatar:b", 4))
    await place.tick()
    assert [(reply.id, reply.error) for reply in alice.heard()] == [(2, None), (3, "unreachable")]
    assert bob.got() == [1]
    # Given to another in the same tick, it is the other's.
    carol = place.endpoint("carol")
    await place.add_avatar("avatar:b", "user:bob")
    alice.say(send("avatar:b", 5))
    alice.say(Avatar(do="remove", avatar="avatar:b"))
    alice.say(Avatar(do="add", avatar="avatar:b", user="user:carol"))
    alice.say(send("avatar:b", 6))
    await place.tick()
    assert (bob.got(), carol.got()) == ([5], [6])


@on_loop
async def test_presence_is_true_here_and_by_route_and_asked_elsewhere_otherwise() -> None:  # H8
    place = Place()
    alice = place.endpoint("alice")
    place.endpoint("bob")
    await place.add_avatar("avatar:b", "user:bob")
    await place.add_avatar("avatar:f", "user:far")
    assert (await place.ask(alice, Presence(id=1, to="user:bob"))).online is True
    assert (await place.ask(alice, Presence(id=1, to="avatar:b"))).online is True
    assert (await place.ask(alice, Presence(id=1, to="avatar:nobody"))).online is False
    assert (await place.ask(alice, Presence(id=1, to="user:ghost"))).online is False
    far = place.far()
    place.app.routes["user:routed"] = (Copies(),)
    assert (await place.ask(alice, Presence(id=2, to="user:routed"))).online is True
    alice.say(Presence(id=3, to="avatar:f"), Presence(to="user:far"))
    await place.tick()
    assert alice.heard() == []
    ((user, tell),) = far.asked
    assert user == "user:far"
    tell(True)
    await place.tick()
    assert alice.reply().online is True
    reply = await place.ask(alice, Presence(id=4, to="key:k"))
    assert reply.online is False


@on_loop
async def test_messages_in_one_read_are_in_order_whoever_they_are_for() -> None:
    place = Place()
    alice, bob, carol = (place.endpoint(name) for name in ("alice", "bob", "carol"))
    await place.add_avatar("avatar:b", "user:bob")
    names = ["user:bob", "user:carol", "avatar:b", "user:bob"]
    alice.say(*(send(names[n % 4], n) for n in range(40)))
    await place.tick()
    assert bob.got() == [n for n in range(40) if n % 4 != 1]
    got = [op for op in carol.heard() if isinstance(op, Delivery)]
    assert [payload_of(op) for op in got] == [n for n in range(40) if n % 4 == 1]
