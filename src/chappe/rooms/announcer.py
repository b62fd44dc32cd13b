"""The announcer: tells routers which rooms a gateway has, until all brokers know (R11).

    a member comes, or the last goes   told in this tick; below three members again after 10 ms
    not confirmed                      told again after 50 ms, then after twice as long, up to 2 s
    a member goes, others stay         told within a second: only the count is another
    nothing                            told anew once in a refresh's time, and to another router

Each thing that is told has a sequence, larger than all before; the same thing told again has the
same one. All rooms lie in the order in which they were told of, so that those to be refreshed are
the first ones: neither a join nor a leave looks at any room but its own.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from chappe.rooms.bundle import bundles
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import room_number
from chappe.rooms.repeats import Repeats
from chappe.rooms.rerouting import Rerouting
from chappe.rooms.role import Post
from chappe.rooms.routes import NOWHERE, Route, Routes, Stop
from chappe.wire.rooms import Announce, Card, Entry

# With fewer members than that, few will come after whose joins would tell of the room again.
FEW = 3
# After how long it is told again: first in any case if members are few, then if not confirmed.
AGAIN_S = (0.010, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)
ANYWAY, UNCONFIRMED = 0, 1
# How long the count of members may be wrong.
COUNT_S = 1.0
# What is told in one go besides what is new, and how soon the next go is. Several gateways that
# have lost a router tell the next one of all their rooms: more than it can take, and it answers
# nobody in time, is taken to be lost as well, and so on.
SLICE_ROOMS = 200
SLICE_S = 0.01
# How often rooms are refreshed, some of them.
REFRESH_S = 0.05
# Rooms without members that routers are still told of.
LEAVING_MAX = 65_536
# Sequences whose confirmation is waited for, besides one for each room.
OUTSTANDING_MAX = 65_536

Key = tuple[str, str]


class Room:
    """A room that has members here, or had."""

    __slots__ = (
        "app",
        "confirmed",
        "members",
        "name",
        "number",
        "place",
        "route",
        "seq",
        "settled",
        "since",
    )

    def __init__(self, app: str, name: str) -> None:
        self.app = app
        self.name = name
        self.number = room_number(name)
        # What was told last; before anything was, seq is 0.
        self.members = 0
        self.seq = 0
        self.route: Route = NOWHERE
        # Whether that is confirmed.
        self.settled = False
        # The first sequence since it has members, and whether one since then is confirmed.
        self.since = 0
        self.confirmed = False
        # Among all rooms of a gateway.
        self.place = 0


class Announcer:
    """Tells of rooms, and keeps in mind which of it is confirmed."""

    def __init__(
        self,
        *,
        options: RoomsOptions,
        post: Post,
        card: Card,
        routes: Routes,
        count: Callable[[str, str], int],
        on_confirmed: Callable[[str, str], None],
    ) -> None:
        self._options = options
        self._post = post
        self._card = card
        self._routes = routes
        self._count = count
        self._on_confirmed = on_confirmed
        self._seq = 0
        self._rooms: OrderedDict[Key, Room] = OrderedDict()
        # To be told in this tick; soon, as their counts have changed; and again.
        self._news: dict[Key, None] = {}
        self._news_at = math.inf
        self._counts: Repeats[Key] = Repeats((COUNT_S,))
        self._again: Repeats[Key] = Repeats(AGAIN_S)
        # When the last member went.
        self._leaving: OrderedDict[Key, float] = OrderedDict()
        self._outstanding: OrderedDict[int, Room] = OrderedDict()
        # Rooms whose routers may be others now.
        self._rerouting: Rerouting[Room] = Rerouting()
        self._reroute_at = math.inf
        self._slice_at = -math.inf
        # When rooms were refreshed last, how many more could have been, and when it is time again.
        self._refreshed = 0.0
        self._share = 0.0
        self._refresh_at = math.inf
        self._entries: dict[Stop, list[Entry]] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    @property
    def waiting(self) -> int:
        """How many rooms are told of again, mostly as they are not confirmed."""
        return len(self._again)

    @property
    def due(self) -> float:
        """When to tick next."""
        paced = min(self._counts.due, self._again.due, self._reroute_at, self._refresh_at)
        return min(self._news_at, max(paced, self._slice_at))

    def confirmed(self, app: str, name: str) -> bool:
        """Whether all brokers that have to know that a room has members here."""
        room = self._rooms.get((app, name))
        return room is not None and room.confirmed

    def joined(self, app: str, name: str, now: float) -> bool:
        """A member came; whether the room was confirmed before."""
        key = (app, name)
        room = self._rooms.get(key)
        if room is None:
            room = self._open(key, now)
        self._hasten(key, now)
        return room.confirmed

    def left(self, app: str, name: str, now: float) -> None:
        """A member went."""
        key = (app, name)
        if key not in self._rooms:
            return
        if not self._count(app, name):
            self._hasten(key, now)
        elif key not in self._news and key not in self._counts:
            self._counts.put(key, 0, now)

    def deny(self, app: str, name: str, now: float) -> bool:
        """Somebody believes that a room has members here, and it has none; whether that is told,
        as it was not known."""
        key = (app, name)
        if key in self._rooms:
            return False
        # Told of as by somebody who has forgotten it.
        self._open(key, now).members = 1
        self._hasten(key, now)
        return True

    def rerouted(self, now: float) -> None:
        """Routers have come or gone: tell those that rooms go to now.

        First of rooms that somebody waits for: brokers know of the others.
        """
        self._rerouting.begin()
        self._reroute_at = now

    def confirm(self, seqs: list[int]) -> None:
        """All brokers that have to know of what was told with these sequences."""
        for seq in seqs:
            room = self._outstanding.pop(seq, None)
            if room is None or self._rooms.get((room.app, room.name)) is not room:
                continue
            if seq == room.seq:
                self._settle(room)
            if room.members and seq >= room.since and not room.confirmed:
                room.confirmed = True
                self._rerouting.known(room)
                self._on_confirmed(room.app, room.name)

    def tick(self, now: float) -> None:
        """Tell what is new, and some of what is to be told again."""
        if self._news:
            self._tell_news(now)
        if now >= self._slice_at:
            self._tell_more(now)
        self._send()

    def _open(self, key: Key, now: float) -> Room:
        if not self._rooms:
            self._refreshed, self._share = now, 0.0
        room = self._rooms[key] = Room(*key)
        self._rerouting.add(room)
        if self._refresh_at == math.inf:
            self._refresh_at = now + REFRESH_S
        return room

    def _hasten(self, key: Key, now: float) -> None:
        self._counts.remove(key)
        self._news[key] = None
        self._news_at = min(self._news_at, now)

    def _tell_news(self, now: float) -> None:
        news, self._news, self._news_at = self._news, {}, math.inf
        for key in news:
            room = self._rooms.get(key)
            if room is not None:
                self._renew(key, room, now)

    def _tell_more(self, now: float) -> None:
        """Tell a bounded share of what is not new."""
        left = SLICE_ROOMS
        for key, _ in self._counts.take(now, left):
            left -= 1
            if key in self._rooms:
                self._renew(key, self._rooms[key], now)
        for key, step in self._again.take(now, left):
            left -= 1
            self._repeat(key, self._rooms[key], step, now)
        left = self._reroute(now, left)
        if now >= self._refresh_at:
            left = self._refresh(now, left)
        if left <= 0:
            self._slice_at = now + SLICE_S

    def _renew(self, key: Key, room: Room, now: float, *, anyway: bool = True) -> None:
        """Tell how many members a room has now, as something new."""
        members = self._count(room.app, room.name)
        if not members and not room.members:
            if not room.seq:
                self._forget(key)
            return
        self._seq += 1
        if members and not room.members:
            room.since = self._seq
        if not members:
            room.confirmed = False
            self._rerouting.await_(room)
            self._leave(key, now)
        else:
            self._leaving.pop(key, None)
        room.seq, room.members, room.settled = self._seq, members, False
        self._rooms.move_to_end(key)
        self._tell(key, room, ANYWAY if anyway and members < FEW else UNCONFIRMED, now)

    def _repeat(self, key: Key, room: Room, step: int, now: float) -> None:
        """Tell the same again."""
        if not room.members and now - self._leaving[key] > self._options.expire_s:
            # Brokers have forgotten it by themselves.
            self._forget(key)
            return
        self._tell(key, room, step + 1, now)
        if room.settled:
            self._settle(room)

    def _tell(self, key: Key, room: Room, step: int, now: float) -> None:
        room.route = self._routes.of(room.number)
        entry = Entry(room.app, room.name, room.number, room.seq, room.members)
        for stop in room.route:
            self._entries.setdefault(stop, []).append(entry)
        if room.route:
            self._again.put(key, step, now)
        else:
            # When there is a router, it is told.
            self._again.remove(key)
        self._expect(room)

    def _expect(self, room: Room) -> None:
        outstanding = self._outstanding
        outstanding[room.seq] = room
        outstanding.move_to_end(room.seq)
        if len(outstanding) > len(self._rooms) + OUTSTANDING_MAX:
            outstanding.popitem(last=False)

    def _settle(self, room: Room) -> None:
        """What was told last is known: it is not told again, but for the once in any case."""
        key = (room.app, room.name)
        room.settled = True
        if self._again.step(key) != ANYWAY:
            self._again.remove(key)
            if not room.members and key not in self._news:
                self._forget(key)

    def _leave(self, key: Key, now: float) -> None:
        self._leaving.setdefault(key, now)
        if len(self._leaving) > LEAVING_MAX:
            self._forget(next(iter(self._leaving)))

    def _forget(self, key: Key) -> None:
        room = self._rooms.pop(key)
        self._rerouting.remove(room)
        self._outstanding.pop(room.seq, None)
        self._leaving.pop(key, None)
        self._again.remove(key)
        self._counts.remove(key)

    def _reroute(self, now: float, left: int) -> int:
        """Tell other routers of rooms that go to them now."""
        if now < self._reroute_at or left <= 0:
            return left
        while left > 0:
            room = self._rerouting.maybe_next()
            if room is None:
                self._reroute_at = math.inf
                break
            left -= 1
            if room.seq and self._routes.of(room.number) != room.route:
                self._retell((room.app, room.name), room, now)
        return left

    def _retell(self, key: Key, room: Room, now: float) -> None:
        if room.members:
            self._renew(key, room, now, anyway=False)
        else:
            self._tell(key, room, UNCONFIRMED, now)

    def _refresh(self, now: float, left: int) -> int:
        """Tell anew as many rooms as is their share of the time that has passed."""
        refresh_s, rooms = self._options.refresh_s, self._rooms
        share = self._share + len(rooms) * (now - self._refreshed) / refresh_s
        count = min(int(share), max(left, 0), len(rooms))
        self._refreshed, self._share = now, min(share - count, len(rooms))
        for key in list(islice(rooms, count)):
            room = rooms[key]
            if room.members and room.settled:
                self._renew(key, room, now, anyway=False)
            else:
                # It is being told of anyway.
                rooms.move_to_end(key)
        if not rooms:
            self._refresh_at = math.inf
        else:
            missing_s = (1.0 - self._share) * refresh_s / len(rooms)
            self._refresh_at = now + max(missing_s, REFRESH_S)
        return left - count

    def _send(self) -> None:
        """Let routers have what there is to tell, in as few pieces as can be."""
        if not self._entries:
            return
        told, self._entries = self._entries, {}
        for stop, entries in told.items():
            for bundle in bundles(self._card, entries, self._options.datagram_bytes):
                if self._post.send(stop.endpoint, Announce(self._card, bundle)):
                    self._routes.sent(stop)
