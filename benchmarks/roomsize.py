"""Many rooms: what each of them takes of memory, and whether a join costs more among many.

Rooms of five members over four gateways: as a session may be in a thousand rooms, it is in a
thousand, and each room has members at every gateway. Joins come a hundred at a time from each of
five sessions, and are answered when the broker knows of them.
"""

from __future__ import annotations

import select
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.bench import Bench
from benchmarks.figure import Promise, Table, figure, ratio
from benchmarks.load import LoadError
from benchmarks.roomservers import RoomLayout
from benchmarks.server import proportional_bytes

_ROOMS = 100_000
_ROOMS_QUICK = 2_000
MEMBERS = 5
_GATEWAYS = 4
_PARTS = 10
# Of one session; and of those how many are under way.
_SESSION_ROOMS = 1000
_CHUNK = 100
_TIMEOUT_S = 90.0
# Joins of few members are told again after 10 ms, and the store is written behind.
_REST_S = 2.0
# A machine that others use, too, may answer late: that is seen in the figures, and no failure.
_CONFIG = "[rooms]\njoin_timeout_s = 60\n"
# What is told anew by the clock would be counted as the cost of joins: not while these come.
_NOT_ANEW = "refresh_s = 3600\n"
# How long what that costs is looked at, by itself.
_REFRESH_S = 20.0
_HELLO, _JOIN, _PING, _REPLY = 1, 9, 2, 32
_PONG = b"\0\0\0\3\1\x91\3"

Spent = dict[str, float]


class Size(NamedTuple):
    """What was found: bytes before and after, and CPU seconds per join of each part of the rooms;
    and what each role takes of a second when nobody comes or goes."""

    rooms: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    joins: list[Spent]
    rest: Spent


class RoomSize:
    """Measures memory of rooms and members by role, and the cost of joins."""

    name = "rooms-size"

    def __init__(self, rooms: int = _ROOMS) -> None:
        self._rooms = rooms

    def steps(self, bench: Bench) -> int:
        return _PARTS if bench.quick else 2 * _PARTS

    def measure(self, bench: Bench) -> list[Table]:
        rooms = min(self._rooms, _ROOMS_QUICK) if bench.quick else self._rooms
        size = _measure(bench, rooms, _CONFIG + _NOT_ANEW)
        if not bench.quick:
            size = size._replace(rest=_measure(bench, rooms, _CONFIG).rest)
        return [_tabulate(size)]


class _Guest:
    """A session that joins rooms, in the packed form."""

    def __init__(self, port: int, number: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._rest = b""
        self.say([_HELLO, 1, f"user:m{number:06d}"])
        self.hear(1)

    def say(self, said: list[object]) -> None:
        """Say one op, or many at once."""
        body = b"\x01" + msgspec.msgpack.encode(said)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)

    def join(self, rooms: range) -> None:
        """Ask to be in all of these."""
        self.say([[_JOIN, room + 1, f"room:{room}"] for room in rooms])

    def hear(self, answers: int) -> None:
        """Wait for so many answers; raises LoadError for any that is not ok."""
        while answers > 0:
            answers -= self.take()

    def take(self) -> int:
        """Read what has come, and give a sign of life if that is asked for: how many answers."""
        answers = 0
        for op in self._ops():
            if op[0] == _PING:
                self.socket.sendall(_PONG)
            elif op[0] != _REPLY or op[2] is not True:
                raise LoadError(f"rooms: a join was answered {op}")
            else:
                answers += 1
        return answers

    def _ops(self) -> Iterator[list[object]]:
        data = self.socket.recv(1 << 18)
        if not data:
            raise LoadError("rooms: chappe closed a session")
        data, at = self._rest + data, 0
        while at + 4 <= len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            said = msgspec.msgpack.decode(data[at + 5 : end])
            yield from said if isinstance(said[0], list) else (said,)
            at = end
        self._rest = data[at:]


def _measure(bench: Bench, rooms: int, config: str) -> Size:
    """Let all members join, a part of the rooms after the other, and stay for a while."""
    part = rooms // _PARTS
    joins: list[Spent] = []
    guests: list[_Guest] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-rooms-"))
        file = Path(folder, "chappe.toml")
        file.write_text(config)
        layout = RoomLayout(bench.chappe, _GATEWAYS, more=f"--config {file}")
        stack.callback(layout.stop)
        stack.callback(_leave, guests)
        before = _bytes(layout)
        for first in range(0, rooms, part):
            bench.advance(f"rooms: {first:,} of {rooms:,}")
            spent = _cpu_s(layout)
            for start in range(first, first + part, _SESSION_ROOMS):
                _join(layout, guests, range(start, min(start + _SESSION_ROOMS, first + part)))
                _live(guests)
            bench.rest(_REST_S / 20 if bench.quick else _REST_S)
            joins.append(_since(layout, spent, part * MEMBERS))
        after, spent, begun = _bytes(layout), _cpu_s(layout), time.monotonic()
        while time.monotonic() < begun + (0.1 if bench.quick else _REFRESH_S):
            bench.rest(0.1 if bench.quick else 1.0)
            _live(guests)
        rest = _since(layout, spent, time.monotonic() - begun)
        return Size(rooms, before, after, joins, rest)


def _leave(guests: list[_Guest]) -> None:
    for guest in guests:
        guest.socket.close()


def _since(layout: RoomLayout, spent: Spent, count: float) -> Spent:
    now = _cpu_s(layout)
    return {role: (now[role] - spent[role]) / count for role in now}


def _join(layout: RoomLayout, guests: list[_Guest], rooms: range) -> None:
    """Let five sessions more be in these rooms, at gateways one after the other."""
    five = []
    for _ in range(MEMBERS):
        five.append(_Guest(layout.tcp_ports[len(guests) % _GATEWAYS], len(guests)))
        guests.append(five[-1])
    for start in range(rooms.start, rooms.stop, _CHUNK):
        some = range(start, min(start + _CHUNK, rooms.stop))
        for guest in five:
            guest.join(some)
        for guest in five:
            guest.hear(len(some))


def _live(guests: list[_Guest]) -> None:
    """Let those who are asked give a sign of life: who gives none is taken to have left."""
    poll = select.poll()
    for guest in guests:
        poll.register(guest.socket, select.POLLIN)
    asked = {descriptor for descriptor, _ in poll.poll(0)}
    for guest in guests:
        if guest.socket.fileno() in asked:
            guest.take()


def _bytes(layout: RoomLayout) -> dict[str, int]:
    return {role: sum(map(proportional_bytes, pids)) for role, pids in layout.roles().items()}


def _cpu_s(layout: RoomLayout) -> Spent:
    """CPU seconds by role, see clock_getcpuclockid(3)."""
    return {
        role: sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)
        for role, pids in layout.roles().items()
    }


def _tabulate(size: Size) -> Table:
    rooms, part = size.rooms, size.rooms // _PARTS
    table = Table(
        f"Rooms: {rooms:,} rooms of {MEMBERS} members",
        f"{rooms * MEMBERS:,} joins at {_GATEWAYS} gateways, so that each room is at all of them; "
        "one proxy, broker and router. Bytes are growth of resident memory (proportional set size) "
        "of all processes of a role, divided by rooms and by members. CPU time of a join is that "
        f"of a role's processes, for the first {part:,} rooms and for the last. At rest, gateways "
        "tell of all rooms anew every 20 s: milliseconds of CPU time in a second. Others keep the "
        "registry and the store, which has the rows of all rooms, and watch over processes.",
        [
            *("role", "MB before", "MB after", "bytes per room", "bytes per member"),
            *("CPU us per join, first", "last", "ratio", "at rest, ms"),
        ],
    )
    shown = {role: (role,) for role in size.before} | {"all": tuple(size.before)}
    for label, roles in shown.items():
        before, after = (sum(which[role] for role in roles) for which in (size.before, size.after))
        first, last = (figure([_sum(size.joins[at], roles) * 1e6]) for at in (0, -1))
        grown = after - before
        table.rows.append(
            [
                *(label, f"{before / 1024**2:.1f}", f"{after / 1024**2:.1f}"),
                *(f"{grown / rooms:,.0f}", f"{grown / rooms / MEMBERS:,.0f}"),
                *(first.show(1), last.show(1)),
                ratio(last, first).show() if first.median > 1 else "",
                f"{_sum(size.rest, roles) * 1e3:.1f}",
            ]
        )
    what = f"CPU per join, the last {part:,} rooms divided by the first,"
    table.verdicts.append(Promise(what, 1.25, at_most=True).judge(ratio(last, first)))
    return table


def _sum(spent: Spent, roles: tuple[str, ...]) -> float:
    return sum(spent[role] for role in roles)
