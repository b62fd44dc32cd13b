"""The desk of users on a clock that is moved by hand, and a store that fails when it is told to."""

from __future__ import annotations

from collections import deque

import pytest

from chappe.errors import StorageError
from chappe.events.pushrecorder import PushRecorder
from chappe.push.app import PushApp
from chappe.push.comet.bodies import FETCH_MAX
from chappe.push.note import Note
from chappe.push.users.desk import UserDesk
from chappe.push.users.hands import BYTES_MAX
from chappe.wire.pushlink import Withdraw
from tests.loop import on_loop
from tests.push.comet.rig import APP, Rig

SERVER = 9
AGAIN_S = 1800


class Hall:
    """Users of a hub, and what they were handed."""

    def __init__(self) -> None:
        self.here: set[str] = set()
        self.full = False
        self.got: deque[tuple[str, str]] = deque()
        self.taken_back: list[tuple[str, str]] = []
        # By sessions, and what the one of an id was not told.
        self.sessions: dict[str, list[str]] = {}
        self.spared: list[tuple[str, str]] = []

    def hand(self, app: str, user: str, note: Note, *, only: str | None = None) -> bool:
        if user not in self.here or self.full:
            return False
        if only is not None:
            self.sessions.setdefault(only, []).append(note.id)
        else:
            self.got.append((user, note.id))
        return True

    def retract(self, app: str, user: str, note_id: str, *, besides: str | None = None) -> None:
        if besides is not None:
            self.spared.append((besides, note_id))
        else:
            self.taken_back.append((user, note_id))

    def online(self, app: str, user: str) -> bool:
        return user in self.here

    def handed(self) -> list[str]:
        """Ids that were handed since this was asked last."""
        ids = [note_id for _, note_id in self.got]
        self.got.clear()
        return ids


class Users:
    """A desk, its hall, and the states that it shares with comets."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.hall = Hall()
        self.desk = UserDesk(
            server=SERVER,
            states=self.rig.states,
            comets=self.rig,
            hall=self.hall,
            ids=self.rig.ids,
            clock=self.rig.clock,
            recorder=PushRecorder(self.rig.recorder),
        )

    async def come(self, user: str) -> str | None:
        """A user says hello; its client, if it got one."""
        app = PushApp(key=APP, name=APP, open=True, sealed_secret=b"", created_ms=0)
        if not self.rig.states.meta.away:
            await self.rig.states.meta.put_app(app, new=True)
        self.hall.here.add(user)
        self.desk.came(APP, user)
        await self.desk.idle()
        return self.client(user)

    def client(self, user: str) -> str | None:
        seat = self.desk.seats.of_user(APP, user)
        return None if seat is None else seat.client

    def leave(self, user: str) -> None:
        self.hall.here.discard(user)
        self.desk.left(APP, user)

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.rig.clock.now_s += 1
            self.desk.beat()
        await self.desk.idle()

    async def join(self, user: str, session: str) -> list[str]:
        """A user says hello in another session; what that one is handed by itself."""
        self.desk.joined(APP, user, session)
        await self.desk.idle()
        return self.hall.sessions.pop(session, [])

    async def show(self, user: str, *ids: str, session: str = "s1") -> None:
        self.desk.shown(APP, user, ids, session)
        await self.desk.idle()

    async def send(self, *clients: str, content: bytes = b"hi", live: bool = False) -> str:
        note = self.rig.note(content)
        await self.rig.send(note, *clients, hand=False)
        if live:
            self.desk.deliver(note, list(clients))
        return note.id

    async def route(self, client: str) -> int | None:
        return (await self.rig.states.route.find([client])).get(client)


@on_loop
@pytest.mark.parametrize("away", ["meta", "user", "route", "message"])
async def test_a_user_that_comes_while_the_store_is_away_is_seated_when_it_is_back(away: str):
    users = Users()
    client = await users.come("bob")
    users.leave("bob")
    await users.desk.idle()
    note = await users.send(client)
    users.rig.clock.now_s += 60  # what is known of the app is forgotten
    users.rig.away(True, away)
    await users.come("bob")
    await users.pass_s(5)
    assert not users.hall.handed()
    users.rig.away(False)
    await users.pass_s(1)
    assert users.hall.handed() == [note]
    assert await users.route(client) == SERVER


@on_loop
async def test_whoever_leaves_before_the_store_is_back_is_not_waited_for():
    users = Users()
    users.rig.away(True)
    await users.come("bob")
    users.leave("bob")
    await users.desk.idle()
    users.rig.away(False)
    await users.pass_s(2)
    assert (len(users.desk.seats), len(users.desk._arrivals)) == (0, 0)
    assert users.rig.states.user.asked["claim_client"] == 0


@on_loop
async def test_one_user_that_cannot_be_seated_does_not_hold_up_the_others():
    users = Users()
    await users.come("amy")
    claim = users.rig.states.user._state.claim_client

    async def claim_client(app: str, device: str, new: str):
        if device == "user bad":
            users.rig.states.user.failing.add("claim_client")
            await users.rig.states.user.claim_client(app, device, new)
        return await claim(app, device, new)

    users.rig.states.user._state.claim_client = claim_client
    users.hall.here |= {"bad", "bob"}
    users.desk.came(APP, "bad")
    users.desk.came(APP, "bob")
    await users.desk.idle()
    users.rig.states.user.failing.clear()
    await users.pass_s(1)
    assert users.client("bob") is not None
    assert users.client("bad") is None


@on_loop
async def test_what_is_not_shown_comes_again_after_half_an_hour_until_it_is():
    users = Users()
    client = await users.come("bob")
    live = await users.send(client, live=True)
    assert users.hall.handed() == [live]
    await users.pass_s(60)
    waited = await users.send(client)
    users.desk.look()
    await users.desk.idle()
    assert users.hall.handed() == [waited]
    await users.pass_s(AGAIN_S - 61)
    assert users.hall.handed() == []
    await users.pass_s(1)
    assert users.hall.handed() == [live]
    await users.pass_s(60)
    assert users.hall.handed() == [waited]
    await users.show("bob", live)
    await users.pass_s(AGAIN_S)
    assert users.hall.handed() == [waited]
    await users.show("bob", waited)
    await users.pass_s(2 * AGAIN_S)
    assert users.hall.handed() == []


@on_loop
async def test_what_comes_again_is_counted_once():
    users = Users()
    client = await users.come("bob")
    note = users.rig.note()
    await users.rig.send(note, client, hand=False)
    users.desk.look()
    await users.desk.idle()
    for _ in range(2):
        await users.pass_s(AGAIN_S)
    assert users.hall.handed() == [note.id] * 3
    assert (await users.rig.tally(note)).sent == 1


@on_loop
async def test_what_a_user_has_no_room_for_is_tried_again_soon():
    users = Users()
    client = await users.come("bob")
    users.hall.full = True
    live = await users.send(client, live=True)
    waits = await users.send(client)
    users.desk.look()
    await users.desk.idle()
    users.hall.full = False
    await users.pass_s(10)
    assert users.hall.handed() == [live, waits]


@on_loop
async def test_what_was_shown_while_the_store_was_away_is_settled_when_it_is_back():
    users = Users()
    client = await users.come("bob")
    note = users.rig.note()
    await users.rig.send(note, client, hand=False)
    users.desk.look()
    await users.desk.idle()
    assert users.hall.handed() == [note.id]
    users.rig.away(True)
    await users.show("bob", note.id)
    users.leave("bob")
    users.rig.away(False, "user", "route", "meta")
    users.rig.states.message.failing.add("settle")
    users.rig.away(False, "message")
    # What it has shown does not come again, though the store says that it waits.
    await users.come("bob")
    await users.pass_s(1)
    assert users.hall.handed() == []
    users.rig.states.message.failing.clear()
    await users.pass_s(1)
    assert await users.rig.waiting(client) == []
    assert (await users.rig.tally(note)).arrived == 1


@on_loop
async def test_what_a_store_has_settled_without_saying_so_is_counted_and_taken_back_elsewhere():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    phone = await users.rig.live(await users.rig.client("bob"))
    note = users.rig.note(user="bob", once=True)
    await users.rig.send(note, client, phone.client, hand=False)
    await users.rig.deliver(1, note, [phone.client])
    users.desk.deliver(note, [client])
    settle = users.rig.states.message._state.settle

    async def settle_in_silence(settled):
        await settle(settled)
        users.rig.states.message._state.settle = settle
        raise StorageError("settle: no answer")

    users.rig.states.message._state.settle = settle_in_silence
    await users.show("bob", note.id)
    assert (await users.rig.tally(note)).arrived == 0
    await users.pass_s(1)
    assert (await users.rig.tally(note)).arrived == 1
    assert await users.rig.waiting(phone.client) == []
    await users.pass_s(1)
    assert (await users.rig.tally(note)).arrived == 1
    assert not users.desk._receipts._tried


@on_loop
async def test_one_user_cannot_fill_the_room_of_others_with_what_it_says_to_have_shown():
    users = Users()
    client, other = await users.come("bob"), await users.come("amy")
    note = await users.send(other, live=True)
    users.rig.away(True, "message")
    for start in range(0, 3000, 1000):
        ids = [f"p07{number:013x}" for number in range(start, start + 1000)]
        users.desk.shown(APP, "bob", [*ids, "p-nonsense"], "s1")
    await users.show("amy", note)
    assert users.desk._receipts.holds(other, note)
    assert len(users.desk._receipts) == 1001
    users.rig.away(False, "message")
    await users.pass_s(1)
    assert len(users.desk._receipts) == 0
    assert not users.desk._receipts._counts
    assert await users.rig.waiting(other) == []
    assert client is not None


@on_loop
async def test_a_backlog_is_read_in_turns_and_handed_over_as_it_is_shown():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    size = 40_000
    ids = [await users.send(client, content=bytes(size)) for _ in range(40)]
    asked: list[int] = []
    bodies = users.rig.states.message._state.bodies

    async def counted(ids: list[str]):
        asked.append(len(ids))
        return await bodies(ids)

    users.rig.states.message._state.bodies = counted
    users.leave("bob")
    await users.come("bob")
    first = users.hall.handed()
    assert first == ids[: len(first)]
    assert BYTES_MAX <= len(first) * (size + 1000) < 2 * BYTES_MAX
    got = list(first)
    for _ in range(40):
        await users.show("bob", *got)
        got += users.hall.handed()
    assert got == ids
    assert await users.rig.waiting(client) == []
    assert max(asked) <= FETCH_MAX


@on_loop
async def test_small_notes_are_fetched_in_turns_and_all_handed_over():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    ids = [await users.send(client) for _ in range(3 * FETCH_MAX)]
    asked: list[int] = []
    bodies = users.rig.states.message._state.bodies

    async def counted(ids: list[str]):
        asked.append(len(ids))
        return await bodies(ids)

    users.rig.states.message._state.bodies = counted
    users.desk.look()
    await users.desk.idle()
    assert users.hall.handed() == ids
    assert asked == [FETCH_MAX] * 3


@on_loop
async def test_who_shows_nothing_gets_what_it_never_had_before_what_it_had():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    ids = [await users.send(client, content=bytes(BYTES_MAX // 4)) for _ in range(8)]
    users.desk.look()
    await users.desk.idle()
    assert users.hall.handed() == ids[:4]
    await users.pass_s(AGAIN_S)
    assert users.hall.handed() == ids[4:]
    await users.pass_s(AGAIN_S)
    assert users.hall.handed() == ids[:4]


@on_loop
async def test_ending_leaves_no_route_behind_and_settles_what_was_shown():
    users = Users()
    clients = [await users.come(name) for name in ("bob", "amy")]
    note = await users.send(clients[0], live=True)
    users.desk.shown(APP, "bob", [note], "s1")
    assert [await users.route(client) for client in clients] == [SERVER, SERVER]
    await users.desk.drain()
    assert [await users.route(client) for client in clients] == [None, None]
    assert await users.rig.waiting(clients[0]) == []


@on_loop
async def test_who_leaves_and_comes_while_its_route_is_written_has_one():
    users = Users()
    await users.come("amy")
    move = users.rig.states.route._state.move
    moved: list[str] = []

    async def move_slowly(routes: dict[str, int]):
        if not moved:
            moved.extend(routes)
            users.leave("bob")
            users.hall.here.add("bob")
            users.desk.came(APP, "bob")
        return await move(routes)

    users.rig.states.route._state.move = move_slowly
    client = await users.come("bob")
    assert client is not None
    await users.pass_s(1)
    assert users.client("bob") == client
    assert await users.route(client) == SERVER


@on_loop
async def test_what_is_taken_back_does_not_come_again():
    users = Users()
    client = await users.come("bob")
    note = await users.send(client, live=True)
    users.desk.withdraw(Withdraw(APP, note, [client], None))
    assert users.hall.taken_back == [("bob", note)]
    await users.rig.states.message.cancel(note)
    users.hall.handed()
    await users.pass_s(AGAIN_S + 1)
    assert users.hall.handed() == []


@on_loop
async def test_another_session_is_handed_what_was_not_shown_and_no_other_gets_it_twice():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    live = [await users.send(client, live=True) for _ in range(3)]
    await users.show("bob", live[0])
    users.hall.handed()
    assert await users.join("bob", "s2") == live[1:]
    assert await users.join("bob", "s3") == live[1:]
    assert users.hall.handed() == []
    await users.show("bob", *live)
    assert await users.join("bob", "s4") == []


@on_loop
async def test_another_session_that_comes_while_the_store_is_away_is_handed_it_later():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    live = await users.send(client, live=True)
    users.rig.away(True, "message")
    assert await users.join("bob", "s2") == []
    users.rig.away(False)
    await users.pass_s(1)
    assert users.hall.sessions["s2"] == [live]


@on_loop
async def test_what_another_session_has_no_room_for_comes_when_some_was_shown():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    ids = [await users.send(client, content=bytes(40_000), live=True) for _ in range(20)]
    users.hall.handed()
    first = await users.join("bob", "s2")
    assert first == ids[: len(first)]
    assert BYTES_MAX <= len(first) * 41_000 < 2 * BYTES_MAX
    assert users.hall.handed() == []
    await users.show("bob", *first)
    assert users.hall.handed() == ids[len(first) :]


@on_loop
async def test_a_session_of_a_user_whose_app_came_to_push_later_has_a_seat():
    users = Users()
    users.hall.here.add("bob")
    users.desk.came(APP, "bob")
    await users.desk.idle()
    users.rig.clock.now_s += 60
    app = PushApp(key=APP, name=APP, open=True, sealed_secret=b"", created_ms=0)
    await users.rig.states.meta.put_app(app, new=True)
    await users.join("bob", "s2")
    assert users.client("bob") is not None


@on_loop
async def test_once_shown_in_a_session_it_is_taken_back_from_the_users_others():
    users = Users()
    client = await users.come("bob")
    assert client is not None
    notes = [users.rig.note(user="bob", once=once) for once in (True, False)]
    for note in notes:
        await users.rig.send(note, client, hand=False)
        users.desk.deliver(note, [client])
    await users.show("bob", *[note.id for note in notes], session="s2")
    assert users.hall.spared == [("s2", notes[0].id)]
    # The first to show it keeps it.
    await users.show("bob", notes[0].id, session="s3")
    assert users.hall.spared == [("s2", notes[0].id)]
    assert users.hall.taken_back == []
