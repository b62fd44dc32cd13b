"""What push remembers in Redis: bytes of each kind of record, and what 100 million users take.

A share of the users is written, through the states that a node writes through, into a share of the
buckets, so that each is as full as it would be. What Redis has in use after each kind of record
(`used_memory`, with nobody connected but who asks) is divided by how many there are.
"""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.figure import Promise, Table, figure
from benchmarks.server import Server, start_redis
from chappe.ids import PrefixedIds
from chappe.push.note import Note
from chappe.push.state.redis.place import BUCKETS
from chappe.push.state.states import States
from chappe.push.state.url import open_states
from chappe.push.state.user import TokenHolder

_USERS = 200_000
_USERS_QUICK = 2_000
ALL_USERS = 100_000_000
_PARTS = 10
_UNDER_WAY = 500
# What is assumed of the users.
ONLINE = 10  # one in so many
COMETS = 100
WAITING = 2
BODIES = 10  # one user in so many has a note of its own today
BODY_BYTES = 200
TOPICS = 5  # as a mean: from one to nine
SUBSCRIBERS = 50_000  # of each topic
_NOTE_CLIENTS = 1000
_NOW_MS = 1_790_000_000_000
_DAY_MS = 24 * 3600 * 1000
# Of the documents that push is built after, for 100 million users.
DOCUMENT_GB = {"message": 30, "topic": 80, "user": 50, "route": 10}


class Kind(NamedTuple):
    """A kind of record: whose it is, how many a user has, and how some users are written."""

    state: str
    name: str
    each: float
    write: Callable[[States, list[int]], Iterator[Awaitable[object]]]


@dataclass
class Crowd:
    """Users: their clients, devices and tokens."""

    count: int
    _random: Random = field(default_factory=lambda: Random(7))

    def __post_init__(self) -> None:
        # A thousand come in a second.
        ticks = iter(range(1 << 62))
        self._ids = PrefixedIds(12, lambda: _NOW_MS + next(ticks))
        self._clients = [self._ids.next("c") for _ in range(self.count)]
        self._topics = max(2 * TOPICS, self.count * TOPICS // SUBSCRIBERS)

    def kinds(self) -> list[Kind]:
        """In the order in which they are written."""
        return [
            Kind("user", "client, and its device", 1, self._claim),
            Kind("user", "token", 1, self._token),
            Kind("user", "user, and its client", 1, self._bind),
            Kind("route", "route", 1 / ONLINE, self._move),
            Kind("message", "note that waits", WAITING, self._add),
            Kind("message", f"body, of {BODY_BYTES} bytes", 1 / BODIES, self._put),
            Kind("topic", "subscription, and its mark", TOPICS, self._subscribe),
        ]

    def _device(self, user: int) -> str:
        return str(uuid.UUID(int=Random(user).getrandbits(128), version=4))

    def _note(self) -> Note:
        content = self._random.randbytes(BODY_BYTES)
        given = (self._ids.next("p"), self._ids.next("j"), "app-1", 1)
        return Note(*given, _NOW_MS, _NOW_MS + _DAY_MS, content)

    def _claim(self, states: States, users: list[int]) -> Iterator[Awaitable[object]]:
        for user in users:
            device = self._device(user)
            yield states.user.claim_client("app-1", device, self._clients[user])

    def _token(self, states: States, users: list[int]) -> Iterator[Awaitable[object]]:
        for user in users:
            digest = sha256(b"%d" % user).digest()[:16]
            holder = TokenHolder(self._clients[user], _NOW_MS + 7 * _DAY_MS)
            yield states.user.put_token(digest, holder)

    def _bind(self, states: States, users: list[int]) -> Iterator[Awaitable[object]]:
        for user in users:
            yield states.user.bind("app-1", f"user-{user:09d}", self._clients[user])

    def _server(self, user: int) -> int:
        """Where a user is; -1: nowhere."""
        return user // ONLINE % COMETS if user % ONLINE == 0 else -1

    def _move(self, states: States, users: list[int]) -> Iterator[Awaitable[object]]:
        online = {self._clients[user]: at for user in users if (at := self._server(user)) >= 0}
        yield states.route.move(online)

    def _add(self, states: States, users: list[int]) -> Iterator[Awaitable[object]]:
        for start in range(0, len(users), _NOTE_CLIENTS):
            clients = [self._clients[user] for user in users[start : start + _NOTE_CLIENTS]]
            for _ in range(WAITING):
                yield states.message.add(self._note(), clients, 1000)

    def _put(self, states: States, users: list[int]) -> Iterator[Awaitable[object]]:
        for _ in users[::BODIES]:
            yield states.message.put(self._note())

    def _subscribe(self, states: States, users: list[int]) -> Iterator[Awaitable[object]]:
        for user in users:
            count = self._random.randint(1, 2 * TOPICS - 1)
            topics = [f"topic {at}" for at in self._random.sample(range(self._topics), count)]
            server = self._server(user)
            yield states.topic.subscribe("app-1", self._clients[user], topics, server, 0, 100)


class PushBytes:
    """Measures what push takes of Redis's memory."""

    name = "push-bytes"

    def __init__(self, users: int = _USERS) -> None:
        self._users = users

    def steps(self, bench: Bench) -> int:
        return _PARTS * len(Crowd(0).kinds())

    def measure(self, bench: Bench) -> list[Table]:
        users = min(self._users, _USERS_QUICK) if bench.quick else self._users
        server = start_redis()
        try:
            return [_tabulate(users, asyncio.run(_measure(bench, server, Crowd(users))))]
        finally:
            server.stop()


async def _measure(bench: Bench, server: Server, crowd: Crowd) -> dict[Kind, float]:
    """Write all kinds, one after the other: bytes of a record of each."""
    found: dict[Kind, float] = {}
    port = int(server.ports["redis"])
    buckets = max(1, BUCKETS * crowd.count // ALL_USERS)
    url = f"redis://127.0.0.1:{port}/?buckets={buckets}"
    part = -(-crowd.count // _PARTS)
    # Scripts, and what Redis makes when it is first spoken to, are no users'.
    with tempfile.TemporaryDirectory() as folder:
        before = _used_bytes(port)
        for kind in crowd.kinds():
            states = open_states(url, Path(folder), lambda: _NOW_MS)
            for first in range(0, crowd.count, part):
                bench.advance(f"push: {kind.name}: {first:,} of {crowd.count:,}")
                users = list(range(first, min(first + part, crowd.count)))
                await _all(kind.write(states, users))
            await states.close()
            after = _used_bytes(port)
            found[kind] = (after - before) / (crowd.count * kind.each)
            before = after
    return found


async def _all(calls: Iterator[Awaitable[object]]) -> None:
    """Make all calls, some of them at once."""

    async def work() -> None:
        for call in calls:
            await call

    await asyncio.gather(*(work() for _ in range(_UNDER_WAY)))


def _used_bytes(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"INFO memory\r\n")
        said = connection.recv(1 << 16)
    found = re.search(rb"used_memory:(\d+)", said)
    assert found is not None, said
    return int(found[1])


def _tabulate(users: int, found: dict[Kind, float]) -> Table:
    table = Table(
        f"Push: what {ALL_USERS // 1_000_000} million users take of Redis",
        f"{users:,} users, written as nodes write them, into as many buckets for each as there "
        "would be; bytes are what Redis has in use more (`used_memory`), divided by records. "
        f"Assumed: a device, a token and a user's name each; one in {ONLINE} connected, to "
        f"{COMETS} comets; {WAITING} notes that wait for each; one in {BODIES} has a note of its "
        f"own today, of {BODY_BYTES} bytes; {TOPICS} topics each, as a mean of 1 to "
        f"{2 * TOPICS - 1}, of {SUBSCRIBERS:,} subscribers. "
        "GB are 10^9 bytes; the document's are for all that a state holds.",
        ["state", "record", "bytes each", "millions of them", "GB", "the document's GB"],
    )
    sums: dict[str, float] = {}
    for kind, size in found.items():
        count = ALL_USERS * kind.each
        sums[kind.state] = sums.get(kind.state, 0.0) + size * count / 1e9
        row = [f"{size:,.1f}", f"{count / 1e6:,.0f}", f"{size * count / 1e9:,.1f}", ""]
        table.rows.append([kind.state, kind.name, *row])
    for state, size in sums.items():
        table.rows.append([state, "all", "", "", f"{size:,.1f}", str(DOCUMENT_GB[state])])
        promise = Promise(f"GB of {state} for 100 million users", DOCUMENT_GB[state], at_most=True)
        table.verdicts.append(promise.judge(figure([size])))
    return table
