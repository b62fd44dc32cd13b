"""Rooms as sessions see them: joined, left, published to, and asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chappe.errors import CloseCode, Overload, Unreachable
from chappe.events.counting import CountingRecorder
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions, Quota
from chappe.message import Message
from chappe.rooms.lobby import Lobby
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import room_number
from chappe.rooms.pending import REQUESTS_MAX
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.ops import Delivery, Hello, Join, Leave, Members, Presence, Publish, Reply
from tests.hub.rig import Endpoint, Rig, publish
from tests.loop import on_loop
from tests.parameters import named

Tell = Callable[[int, list[str] | None], None]


class Gateway:
    """Confirms what it is told to, and keeps what it is told."""

    def __init__(self) -> None:
        self.on_confirmed: Callable[[str, str], None] = lambda app, room: None
        self.known: set[tuple[str, str]] = set()
        self.told: list[tuple[str, str, str]] = []
        self.asked: list[tuple[str, str, int, Tell]] = []
        self.full = False

    def joined(self, app: str, room: str, now: float) -> bool:
        self.told.append(("joined", app, room))
        return (app, room) in self.known

    def left(self, app: str, room: str, now: float) -> None:
        self.told.append(("left", app, room))

    def ask(self, app: str, room: str, limit: int, now: float, tell: Tell) -> None:
        if self.full:
            raise Overload("to: so many questions wait already")
        self.asked.append((app, room, limit, tell))

    def confirm(self, room: str, app: str = "default") -> None:
        self.known.add((app, room))
        self.on_confirmed(app, room)


class Publisher:
    """Keeps what is published, unless there is no proxy."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Message, int, bool]] = []
        self.away = False

    def publish(self, app: str, message: Message, number: int, reliable: bool, now: float) -> None:
        if self.away:
            raise Unreachable("no proxy answers")
        self.taken.append((app, message, number, reliable))


class Told(CountingRecorder):
    """Keeps what was published, and by which way."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[str, int, int, str]] = []

    def published(
        self, app: str, messages: Any, receivers: int, came_from: str = "", went_to: Any = ()
    ) -> None:
        self.runs.append((app, len(messages), receivers, came_from))
        super().published(app, messages, receivers, came_from, went_to)


class House(Rig):
    """A hub whose lobby is open, with the doubles behind it."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.lobby: Lobby = self.application.lobby
        self.gateway, self.publisher = Gateway(), Publisher()
        self.lobby.open(self.publisher, self.gateway)

    async def member(
        self, name: str, *rooms: str, encoding: Encoding = STREAM, app: str | None = None
    ) -> Endpoint:
        """A user that is in rooms."""
        endpoint = self.endpoint(name, encoding, app=app)
        for room in rooms:
            self.gateway.known.add((app or "default", room))
            endpoint.say(Join(id=1, to=f"room:{room}"))
            await self.tick()
            assert endpoint.reply().ok
        return endpoint


def message(id: int, room: str = "7", data: Any = None) -> Message:
    """A message as a broker brings it."""
    return Message(id, "user:far", f"room:{room}", 1, msgspec.json.encode(data or id))


@on_loop
async def test_a_join_is_answered_once_it_is_confirmed_and_not_before() -> None:
    house = House()
    alice, bob = house.endpoint("alice"), house.endpoint("bob")
    alice.say(Join(id=1, to="room:7"))
    bob.say(Join(id=2, to="room:7"))
    await house.tick()
    assert alice.heard() == bob.heard() == []
    house.gateway.confirm("8")
    await house.tick()
    assert alice.heard() == []
    house.gateway.confirm("7")
    await house.tick()
    assert (alice.reply().id, bob.reply().id) == (1, 2)
    assert house.gateway.told == [("joined", "default", "7")] * 2
    assert len(house.lobby._pending) == 0


@on_loop
async def test_a_room_that_is_confirmed_is_joined_at_once() -> None:
    house = House()
    await house.member("alice", "7")
    bob = house.endpoint("bob")
    bob.say(Join(id=3, to="room:7"))
    await house.tick()
    assert bob.reply().ok
    # R11: announced on every join.
    assert house.gateway.told == [("joined", "default", "7")] * 2
    assert house.lobby.count("default", "7") == 2


@on_loop
async def test_a_join_that_is_not_confirmed_in_time_is_refused_and_none() -> None:
    house = House(rooms=RoomsOptions(join_timeout_s=0.01))
    alice = house.endpoint("alice")
    alice.say(Join(id=1, to="room:7"))
    await asyncio.sleep(0.03)
    await house.tick()
    reply = alice.reply()
    assert (reply.ok, reply.error) == (False, "unreachable")
    assert "room:7" in (reply.reason or "")
    assert house.gateway.told[-1] == ("left", "default", "7")
    house.lobby.deliver("default", message(1), "")
    house.gateway.confirm("7")
    await house.tick()
    assert alice.heard() == []
    assert alice.session.rooms == ()
    assert (house.lobby.rooms, house.lobby.members) == (0, 0)


@on_loop
async def test_a_join_that_was_confirmed_is_not_refused_later() -> None:
    house = House(rooms=RoomsOptions(join_timeout_s=0.01))
    alice = house.endpoint("alice")
    alice.say(Join(id=1, to="room:7"))
    house.gateway.confirm("7")
    await asyncio.sleep(0.03)
    assert alice.reply().ok
    assert house.lobby.count("default", "7") == 1


@on_loop
async def test_joining_twice_is_one_membership_and_who_asks_again_waits_along() -> None:
    house = House()
    alice = house.endpoint("alice")
    alice.say(Join(id=1, to="room:7"), Join(id=2, to="room:7"), Join(to="room:7"))
    await house.tick()
    assert alice.heard() == []
    house.gateway.confirm("7")
    alice.say(Join(id=3, to="room:7"))
    await house.tick()
    assert [(r.id, r.ok) for r in alice.heard()] == [(1, True), (2, True), (3, True)]
    house.lobby.deliver("default", message(5), "")
    await house.tick()
    assert alice.got() == [5]
    assert house.gateway.told == [("joined", "default", "7")]


@on_loop
async def test_so_many_joins_of_one_session_wait_along_and_the_next_is_refused() -> None:
    house = House()
    alice, bob = house.endpoint("alice"), house.endpoint("bob")
    alice.say(*[Join(id=n, to="room:7") for n in range(REQUESTS_MAX + 2)])
    bob.say(Join(id=99, to="room:7"))
    await house.tick()
    refused = alice.heard()
    assert [r.id for r in refused] == [REQUESTS_MAX, REQUESTS_MAX + 1]
    assert {r.error for r in refused} == {"overload"}
    assert f"{REQUESTS_MAX} joins of this session wait" in refused[0].reason
    # Another room is none of it.
    alice.say(Join(id=50, to="room:8"))
    for room in ("7", "8"):
        house.gateway.confirm(room)
    await house.tick()
    assert [r.id for r in alice.heard() if r.ok] == [*range(REQUESTS_MAX), 50]
    assert bob.reply().ok
    assert len(house.lobby._pending) == 0


@on_loop
async def test_all_that_wait_along_are_refused_when_nobody_confirms_it_in_time() -> None:
    house = House(rooms=RoomsOptions(join_timeout_s=0.01))
    alice = house.endpoint("alice")
    alice.say(Join(id=1, to="room:7"), Join(id=2, to="room:7"))
    await asyncio.sleep(0.03)
    await house.tick()
    assert [(r.id, r.error) for r in alice.heard()] == [(1, "unreachable"), (2, "unreachable")]
    assert house.gateway.told == [("joined", "default", "7"), ("left", "default", "7")]


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS], ids=lambda e: e.name)
@on_loop
async def test_what_comes_for_a_room_reaches_its_members_in_order(encoding: Encoding) -> None:
    house = House()
    members = [await house.member(f"m{n}", "7", encoding=encoding) for n in range(12)]
    other = await house.member("other", "8")
    for n in range(1, 6):
        house.lobby.deliver("default", message(n), "node-b")
    await house.tick()
    for member in members:
        deliveries = [op for op in member.heard() if isinstance(op, Delivery)]
        assert [int(d.message) for d in deliveries] == [1, 2, 3, 4, 5]
        assert (deliveries[0].from_, deliveries[0].to) == ("user:far", "room:7")
    assert other.got() == []


@on_loop
async def test_a_run_is_written_once_and_told_with_the_node_it_came_from() -> None:
    told = Told()
    house = House(recorder=told)
    alice = await house.member("alice", "7", "8")
    written = len(alice.sink.writes)
    for n in range(1, 4):
        house.lobby.deliver("default", message(n), "node-b")
    house.lobby.deliver("default", message(4), "")
    house.lobby.deliver("default", message(5, "8"), "node-b")
    await house.tick()
    assert len(alice.sink.writes) == written + 1
    assert alice.got() == [1, 2, 3, 4, 5]
    assert told.runs == [
        ("default", 3, 1, "node-b"),
        ("default", 1, 1, ""),
        ("default", 1, 1, "node-b"),
    ]
    assert house.hub.fanout.origin == ""


@on_loop
async def test_two_sessions_of_a_user_are_two_members_and_one_may_go() -> None:
    house = House()
    phone, laptop = await house.member("alice", "7"), await house.member("alice", "7")
    assert house.lobby.who("default", "7", 10) == ["user:alice", "user:alice"]
    house.lobby.deliver("default", message(1), "")
    await house.tick()
    assert phone.got() == laptop.got() == [1]
    house.hub.lost(phone.session)
    house.lobby.deliver("default", message(2), "")
    await house.tick()
    assert laptop.got() == [2]
    assert house.lobby.count("default", "7") == 1


@on_loop
async def test_who_left_hears_nothing_any_more_and_leaving_twice_is_well() -> None:
    house = House()
    alice, bob = await house.member("alice", "7"), await house.member("bob", "7")
    house.lobby.deliver("default", message(1), "")
    alice.say(Leave(id=4, to="room:7"), Leave(id=5, to="room:7"))
    house.lobby.deliver("default", message(2), "")
    await house.tick()
    heard = alice.heard()
    assert [op.id for op in heard if isinstance(op, Reply)] == [4, 5]
    assert [op.message for op in heard if isinstance(op, Delivery)] == [1]
    assert bob.got() == [1, 2]
    assert house.gateway.told.count(("left", "default", "7")) == 1


@on_loop
async def test_who_joins_in_the_middle_of_a_run_gets_what_comes_after() -> None:
    house = House()
    members = [await house.member(f"m{n}", "7") for n in range(10)]
    late = house.endpoint("late")
    house.lobby.deliver("default", message(1), "")
    late.say(Join(to="room:7"))
    house.lobby.deliver("default", message(2), "")
    await house.tick()
    assert late.got() == [2]
    assert members[0].got() == [1, 2]


@on_loop
async def test_leaving_a_room_that_is_about_to_be_joined_ends_the_join() -> None:
    house = House()
    alice = house.endpoint("alice")
    alice.say(Join(id=1, to="room:7"), Join(id=2, to="room:7"), Leave(id=3, to="room:7"))
    await house.tick()
    told = [(op.id, op.error) for op in alice.heard()]
    assert told == [(1, "unreachable"), (2, "unreachable"), (3, None)]
    house.gateway.confirm("7")
    await house.tick()
    assert alice.heard() == []
    assert len(house.lobby._pending) == 0


@on_loop
async def test_a_session_that_ends_leaves_its_rooms_and_waits_for_none() -> None:
    house = House()
    rooms = [str(n) for n in range(20)]
    alice = await house.member("alice", *rooms)
    alice.say(Join(id=1, to="room:waiting"))
    assert (house.lobby.rooms, house.lobby.members) == (21, 21)
    house.hub.close(alice.session, CloseCode.NORMAL, "")
    assert (house.lobby.rooms, house.lobby.members) == (0, 0)
    assert len(house.lobby._pending) == 0
    left = [room for what, _, room in house.gateway.told if what == "left"]
    assert sorted(left) == sorted([*rooms, "waiting"])
    assert not house.hub.apps
    house.gateway.confirm("waiting")
    house.lobby.deliver("default", message(1), "")


@on_loop
async def test_a_room_of_the_same_name_in_another_app_is_another_room() -> None:
    house = House()
    here, there = await house.member("a", "7"), await house.member("b", "7", app="shop")
    house.lobby.deliver("shop", message(1), "")
    house.lobby.deliver("nowhere", message(2), "")
    await house.tick()
    assert (here.got(), there.got()) == ([], [1])
    for n, app in enumerate(("default", "shop", "default", "shop"), 3):
        house.lobby.deliver(app, message(n), "")
    await house.tick()
    assert (here.got(), there.got()) == ([3, 5], [4, 6])
    assert house.lobby.who("shop", "7", 5) == ["user:b"]
    here.say(Leave(to="room:7"))
    assert house.lobby.count("shop", "7") == 1


@on_loop
async def test_publish_goes_to_the_publisher_and_is_answered_with_its_id() -> None:
    house = House()
    alice = house.endpoint("alice")
    alice.say(publish("room:42", {"n": 1}, id=3))
    await house.tick()
    ((app, sent, number, reliable),) = house.publisher.taken
    reply = alice.reply()
    assert (reply.ok, reply.id, reply.message) == (True, 3, sent.id)
    assert (app, sent.sender, sent.to, number, reliable) == (
        "default",
        "user:alice",
        "room:42",
        42,
        False,
    )
    assert sent.data == {"n": 1}
    assert sent.ts_ms == house.clock.wall_ms()


@on_loop
async def test_what_is_published_in_one_read_goes_out_in_order_and_reliable_as_asked() -> None:
    house = House()
    alice = house.endpoint("alice")
    ops = [publish("room:lobby", n) for n in range(20)]
    for op in ops[::3]:
        op.reliable = True
    alice.say(*ops, publish("topic:t", 0), publish("room:9", "last"))
    taken = house.publisher.taken
    assert [m.data for _, m, _, _ in taken] == [*range(20), "last"]
    assert [r for _, _, _, r in taken] == [n % 3 == 0 for n in range(20)] + [False]
    ids = [m.id for _, m, _, _ in taken]
    assert ids == sorted(set(ids))
    assert {number for _, _, number, _ in taken[:20]} == {room_number("lobby")}


@on_loop
async def test_publishing_into_a_run_that_is_under_way_goes_by_the_publisher_all_the_same() -> None:
    """What comes from a broker and what a session says are two things, whoever is in the room."""
    house = House()
    alice = await house.member("alice", "7")
    house.lobby.deliver("default", message(1), "")
    alice.say(publish("room:7", "mine"), publish("room:7", "mine too"))
    house.lobby.deliver("default", message(2), "")
    await house.tick()
    assert alice.got() == [1, 2]
    assert [m.data for _, m, _, _ in house.publisher.taken] == ["mine", "mine too"]


@on_loop
async def test_without_a_proxy_a_publish_is_unreachable() -> None:
    house = House()
    house.publisher.away = True
    alice = house.endpoint("alice")
    alice.say(publish("room:7", 1, id=1), publish("room:7", 1))
    await house.tick()
    assert alice.reply().error == "unreachable"
    assert house.recorder.refusals == {"unreachable": 2}


@on_loop
async def test_a_payload_above_the_bound_is_refused_by_its_name() -> None:
    house = House(rooms=RoomsOptions(message_bytes_max=100))
    alice = house.endpoint("alice")
    alice.say(publish("room:7", "x" * 98, id=1), publish("room:7", "x" * 99, id=2))
    await house.tick()
    first, second = alice.heard()
    assert (first.ok, second.error) == (True, "protocol")
    assert (second.reason or "").startswith("data: 101 bytes, 100 are allowed")
    assert "rooms.message_bytes_max" in (second.reason or "")
    assert len(house.publisher.taken) == 1


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Join(to="topic:t"), "to"),
        (Join(to="room:"), "to"),
        (Join(to="room:a*"), "to"),
        (Join(), "to"),
        (Leave(to="user:a"), "to"),
        (Members(to="user:a"), "to"),
        (Members(to="room:1", n=-1), "n"),
        (Members(to="room:1", n=201), "n"),
        (publish("room:", 1), "to"),
        (publish("room:a b", 1), "to"),
        (Publish(to="room:1"), "data"),
    ],
    ids=named,
)
@on_loop
async def test_what_is_wrong_is_refused_by_the_name_of_the_field(op: Any, field: str) -> None:
    house = House()
    alice = house.endpoint("alice")
    op.id = 1
    alice.say(op)
    await house.tick()
    reply = alice.reply()
    assert (reply.ok, reply.error) == (False, "protocol")
    assert (reply.reason or "").startswith(f"{field}:")
    assert not house.gateway.told
    assert not house.publisher.taken


class Narrow:
    """Lets one join some rooms and publish to others."""

    def authenticate(self, hello: Hello) -> Grant:
        return Grant(
            app="default",
            address=hello.as_,
            subscribe=scope_of(["room:in.*"]),
            publish=scope_of(["room:out.*", "topic:*"]),
        )


@on_loop
async def test_joining_needs_one_scope_and_publishing_another() -> None:
    house = House(authenticator=Narrow())
    alice = house.endpoint("alice")
    for op in (
        Join(to="room:out.a"),
        Members(to="room:out.a"),
        publish("room:in.a", 1),
        publish("room:other", 1),
    ):
        op.id = 1
        alice.say(op)
        await house.tick()
        assert alice.reply().error == "forbidden"
    assert not house.gateway.told
    assert not house.publisher.taken
    house.gateway.known.add(("default", "in.a"))
    alice.say(Join(id=2, to="room:in.a"), publish("room:out.a", 1, id=3))
    await house.tick()
    assert [op.ok for op in alice.heard()] == [True, True]


@on_loop
async def test_a_session_is_in_so_many_rooms_and_a_node_has_so_many() -> None:
    house = House(rooms=RoomsOptions(joins_max=2, rooms_max=3))
    alice, bob = await house.member("alice", "1", "2"), await house.member("bob", "3")
    alice.say(Join(id=1, to="room:3"))
    bob.say(Join(id=2, to="room:4"))
    await house.tick()
    assert alice.reply().error == bob.reply().error == "overload"
    # A room that is there already is no new one.
    bob.say(Join(id=3, to="room:1"))
    house.hub.lost(alice.session)
    await house.tick()
    assert bob.reply().ok
    assert house.lobby.rooms == 2


@on_loop
async def test_what_is_said_of_rooms_counts_against_a_quota() -> None:
    house = House(options=HubOptions(quota=Quota(messages_per_s=4)))
    alice = house.endpoint("alice")
    house.gateway.known.add(("default", "7"))
    alice.say(
        Join(id=1, to="room:7"),
        publish("room:7", 1, id=2),
        Members(to="room:7"),
        Presence(to="room:8"),
        publish("room:7", 2, id=5),
        Join(id=6, to="room:8"),
        Leave(id=7, to="room:7"),
    )
    await house.tick()
    assert {op.id: op.error for op in alice.heard()} == {
        1: None,
        2: None,
        5: "overload",
        6: "overload",
        7: None,
    }


@pytest.mark.parametrize(
    ("n", "told", "count", "names"),
    [
        (0, (3, ["user:a"]), 3, None),
        (5, (2, ["user:a", "user:b"]), 2, ["user:a", "user:b"]),
        (5, (1000, None), 1000, None),
        (5, (0, []), 0, []),
    ],
)
@on_loop
async def test_members_are_counted_everywhere_and_few_are_named(
    n: int, told: tuple[int, list[str] | None], count: int, names: list[str] | None
) -> None:
    house = House()
    alice = house.endpoint("alice")
    alice.say(Members(id=1, to="room:7", n=n))
    await house.tick()
    assert alice.heard() == []
    ((app, room, limit, tell),) = house.gateway.asked
    assert (app, room, limit) == ("default", "7", n)
    tell(*told)
    await house.tick()
    reply = alice.reply()
    assert (reply.ok, reply.n, reply.members) == (True, count, names)


@on_loop
async def test_when_no_broker_answers_nobody_knows_who_is_there() -> None:
    house = House()
    alice = house.endpoint("alice")
    alice.say(Members(id=1, to="room:7"), Presence(id=2, to="room:7"))
    for *_, tell in house.gateway.asked:
        tell(-1, None)
    await house.tick()
    assert [op.error for op in alice.heard()] == ["unreachable"] * 2


@on_loop
async def test_who_cannot_ask_now_is_told_why() -> None:
    house = House()
    house.gateway.full = True
    alice = house.endpoint("alice")
    alice.say(Members(id=1, to="room:7"), Presence(id=2, to="room:7"))
    await house.tick()
    told = [(op.id, op.error, op.reason) for op in alice.heard()]
    reason = "to: so many questions wait already"
    assert told == [(1, "overload", reason), (2, "overload", reason)]


@on_loop
async def test_presence_of_a_room_counts_against_a_quota_whoever_knows_it() -> None:
    house = House(options=HubOptions(quota=Quota(messages_per_s=4)))
    alice = await house.member("alice", "7")
    # One was the join; 7 is known here, 8 is asked for.
    alice.say(*[Presence(id=n, to=f"room:{7 + n % 2}") for n in range(1, 6)])
    for *_, tell in house.gateway.asked:
        tell(0, None)
    await house.tick()
    assert {op.id: op.error for op in alice.heard()} == {
        1: None,
        2: None,
        3: None,
        4: "overload",
        5: "overload",
    }


@on_loop
async def test_a_room_is_present_while_somebody_is_in_it_anywhere() -> None:
    house = House()
    alice = await house.member("alice", "7")
    alice.say(Presence(id=1, to="room:7"))
    await house.tick()
    assert alice.reply().online is True
    assert not house.gateway.asked
    for members in (0, 2):
        alice.say(Presence(id=1, to="room:8"))
        _, room, limit, tell = house.gateway.asked.pop()
        assert (room, limit) == ("8", 0)
        tell(members, None)
        await house.tick()
        assert alice.reply().online is (members > 0)


@on_loop
async def test_without_a_gateway_one_may_publish_and_not_join() -> None:
    house = House()
    house.lobby.open(house.publisher, None)
    alice = house.endpoint("alice")
    alice.say(publish("room:7", 1, id=1), Join(id=2, to="room:7"), Members(id=3, to="room:7"))
    await house.tick()
    first, *others = alice.heard()
    assert first.ok
    assert [op.error for op in others] == ["unreachable"] * 2
    assert "no gateway" in others[0].reason


@on_loop
async def test_a_lobby_that_is_not_open_says_why() -> None:
    rig = Rig()
    rig.application.lobby.refusal = "this node serves no rooms: not with that registry"
    alice = rig.endpoint("alice")
    alice.say(publish("room:7", 1, id=1))
    await rig.tick()
    assert (alice.reply().reason or "").endswith("not with that registry")


@on_loop
async def test_a_lobby_that_is_closed_serves_nothing_and_tells_who_waits() -> None:
    house = House()
    alice = await house.member("alice", "7")
    alice.say(Join(id=1, to="room:8"))
    house.lobby.close()
    await house.tick()
    assert alice.reply().error == "unreachable"
    for op in (
        Join(to="room:9"),
        Members(to="room:7"),
        Presence(to="room:9"),
        publish("room:7", 1),
    ):
        op.id = 2
        alice.say(op)
        await house.tick()
        assert alice.reply().error == "unreachable"
    alice.say(Leave(id=3, to="room:7"))
    await house.tick()
    assert alice.reply().ok
    assert house.lobby.members == 0
