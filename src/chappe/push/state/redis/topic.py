"""Topics, their subscribers and their notes in Redis.

    {p:topic}:topic:N:APP:TOPIC     hash: n, its number; last, its last position; of each server
                                    s..., how many subscribers are on it, and b..., in how many sets
    {p:topic}:on:NUMBER:SERVER:SET  set of clients, as numbers: see spreading.py
    {p:topic}:client:BUCKET         hash: client, packed -> its server, its topics and marks; what
                                    is longer than 64 bytes goes on in fields client + 1, 2, ...
    {p:topic}:log:NUMBER            sorted set of a topic's notes by position, and
        ids:NUMBER, same:NUMBER     hashes: note, and digest of a collapse -> position
    {p:topic}:name:NUMBER/100       hash: number -> name
    {p:topic}:list:APP              sorted set of names, all of one score: in the order of bytes

A client's topics are 11 bytes each, for number, position and how many are settled beyond it:

    +------------+-----------+--------------+---+-------------+
    | server + 1 | number,   | position,    | n | n positions |
    | 16 bits    | 32 bits   | 48 bits      |   | of 48 bits  | ...
    +------------+-----------+--------------+---+-------------+
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chappe.push.state.collapse import collapse_digest
from chappe.push.state.redis import topic_scripts as scripts
from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.packing import (
    TIME_BYTES,
    encoded,
    maybe_pack,
    pack,
    unpack,
)
from chappe.push.state.redis.spreading import END, TopicRecord, order, span, topic_record
from chappe.push.state.topic import Mark, Subscriber

_STAY = -2


class RedisTopics:
    """Topics, subscribers in small sets, and marks in small hashes."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def subscribe(
        self, app: str, client: str, topics: Sequence[str], server: int, now_ms: int, most: int
    ) -> bool:
        """Subscribe a client that is on a server, from the topics' last notes on."""
        raw = pack("c", client)
        words = [*self._who(raw), server, most, encoded(app), *map(encoded, topics)]
        (done,) = await self._line.run(scripts.SUBSCRIBE.call([self._client(raw)], words))
        return bool(done)

    async def unsubscribe(self, app: str, client: str, topics: Sequence[str]) -> None:
        """Unsubscribe a client."""
        await self._leave(app, client, topics, all_topics=False)

    async def topics_of(self, app: str, client: str) -> dict[str, Mark]:
        """The topics of a client, and how far it has got."""
        raw = maybe_pack("c", client)
        if raw is None:
            return {}
        call = scripts.MOVE.call([self._client(raw)], [*self._who(raw), _STAY])
        (found,) = await self._line.read(call)
        return _marks(app, found)

    async def subscribers(self, app: str, clients: Sequence[str]) -> list[Subscriber]:
        """What is known of several clients, in their order."""
        raws = [pack("c", client) for client in clients]
        calls = [scripts.MOVE.call([self._client(raw)], [*self._who(raw), _STAY]) for raw in raws]
        found = await self._line.read(*calls)
        return [Subscriber(_server(each), _marks(app, each)) for each in found]

    async def move(self, app: str, client: str, server: int) -> dict[str, Mark]:
        """A client is on another server now (-1: on none); its topics."""
        (topics,) = await self.move_all(app, [client], server)
        return topics

    async def move_all(
        self, app: str, clients: Sequence[str], server: int
    ) -> list[dict[str, Mark]]:
        """Several clients are on another server now; the topics of each, in their order."""
        raws = [pack("c", client) for client in clients]
        calls = [scripts.MOVE.call([self._client(raw)], [*self._who(raw), server]) for raw in raws]
        return [_marks(app, found) for found in await self._line.run(*calls)]

    async def leave(self, app: str, client: str, server: int) -> None:
        """A client left a server; one that is elsewhere by now stays there."""
        await self.leave_all(app, [client], server)

    async def leave_all(self, app: str, clients: Sequence[str], server: int) -> None:
        """Several clients left a server; those that are elsewhere by now stay there."""
        raws = [pack("c", client) for client in clients]
        await self._line.run(
            *(scripts.LEAVE.call([self._client(raw)], [*self._who(raw), server]) for raw in raws)
        )

    async def advance(self, app: str, marks: Mapping[tuple[str, str], Mark]) -> None:
        """Clients have got so far, and no less far than before: by (client, topic)."""
        calls = []
        for part in chunks(list(marks.items())):
            keys: list[str] = []
            words: list[str | bytes] = [self._line.base, encoded(app)]
            for (client, topic), mark in part:
                raw = pack("c", client)
                keys.append(self._client(raw))
                words += [raw, encoded(topic), _time(mark.position), _times(mark.beyond)]
            calls.append(scripts.ADVANCE.call(keys, words))
        await self._line.run(*calls)

    async def append(
        self,
        app: str,
        topic: str,
        id: str,
        now_ms: int,
        expires_ms: int,
        collapse: str | None,
        most: int,
    ) -> int:
        """Add a note to a topic, which keeps so many; its position."""
        same = collapse_digest(collapse)
        words: list[bytes | int] = [pack_note(id), now_ms, expires_ms, same, most]
        call = scripts.APPEND.call([self._topic(app, topic)], [*self._of(app, topic), *words])
        (position,) = await self._line.run(call)
        return int(position)

    async def take_out(self, app: str, topic: str, id: str) -> None:
        """Nobody is to get a topic's note any more."""
        words = [*self._of(app, topic), pack_note(id)]
        await self._line.run(scripts.TAKE_OUT.call([self._topic(app, topic)], words))

    async def since(
        self, app: str, topics: Mapping[str, int], now_ms: int, limit: int
    ) -> dict[str, list[tuple[int, str]]]:
        """Of each topic, the positions and ids of its first notes after a position."""
        calls = [
            scripts.SINCE.call([self._topic(app, one)], [*self._of(app, one), after, now_ms, limit])
            for one, after in topics.items()
        ]
        found = await self._line.read(*calls)
        return {topic: _notes(flat) for topic, flat in zip(topics, found, strict=True)}

    async def count(self, app: str, topic: str) -> int:
        """How many clients subscribe to a topic."""
        record = await self._record(app, topic)
        return 0 if record is None else sum(record.counts.values())

    async def servers(self, app: str, topic: str) -> list[int]:
        """The servers that subscribers of a topic are on."""
        record = await self._record(app, topic)
        return [] if record is None else sorted(at for at in record.counts if at >= 0)

    async def list_topics(self, app: str, after: str, limit: int) -> list[tuple[str, int]]:
        """An app's topics by name, from the one after that, and how many subscribe."""
        key, first = self._line.key("list", app), b"(" + encoded(after)
        (names,) = await self._line.read(("ZRANGEBYLEX", key, first, "+", "LIMIT", 0, limit))
        topics = [name.decode() for name in names]
        found = await self._line.read(*(("HGETALL", self._topic(app, one)) for one in topics))
        records = map(topic_record, found)
        return [
            (topic, sum(record.counts.values()))
            for topic, record in zip(topics, records, strict=True)
            if record is not None
        ]

    async def list_clients(self, app: str, topic: str, after: str, limit: int) -> list[str]:
        """Subscribers of a topic, from the one after that; in the order of their hashes."""
        place, last = _after(after)
        found: list[tuple[int, int]] = []
        record = await self._record(app, topic)
        while record is not None and place < END and len(found) < limit:
            spans = {server: span(place, sets) for server, sets in record.sets.items()}
            end = min((one.end for one in spans.values()), default=END)
            keys = (
                self._line.key("on", record.number, server, one.at) for server, one in spans.items()
            )
            reading = [("HGETALL", self._topic(app, topic)), *(("SMEMBERS", key) for key in keys)]
            fields, *members = await self._line.read(*reading, whole=True)
            now = topic_record(fields)
            if now is not None and now.sets == record.sets:
                here = {int(one) for some in members for one in some}
                ranked = ((order(member), member) for member in here)
                found += sorted(one for one in ranked if last < one and place <= one[0] < end)
                place = end
            record = now
        return [unpack("c", member.to_bytes(8, "big")) for _, member in found[:limit]]

    async def remove(self, app: str, client: str) -> None:
        """Forget a client."""
        await self._leave(app, client, (), all_topics=True)

    async def sweep(self) -> int:
        """Forget some topics that nobody subscribes to, and that have no notes any more."""
        (made,) = await self._line.read(("GET", self._line.key("number")))
        hundreds = int(made or 0) // 100 + 1
        gone = await self._line.sweep(
            lambda at: scripts.SWEEP.call(
                [self._line.key("name", at % hundreds)], [self._line.base, at % hundreds]
            )
        )
        return sum(gone)

    async def _leave(
        self, app: str, client: str, topics: Sequence[str], *, all_topics: bool
    ) -> None:
        raw = maybe_pack("c", client)
        if raw is None:
            return
        words = [*self._who(raw), encoded(app), int(all_topics), *map(encoded, topics)]
        await self._line.run(scripts.UNSUBSCRIBE.call([self._client(raw)], words))

    async def _record(self, app: str, topic: str) -> TopicRecord | None:
        (fields,) = await self._line.read(("HGETALL", self._topic(app, topic)))
        return topic_record(fields)

    def _client(self, packed: bytes) -> str:
        return self._line.key("client", self._line.buckets.of_id(packed))

    def _topic(self, app: str, topic: str) -> str:
        return self._line.key("topic", len(encoded(app)), app, topic)

    def _who(self, packed: bytes) -> list[Any]:
        """How scripts about a client begin: with it, packed and as a number."""
        return [self._line.base, packed, int.from_bytes(packed, "big")]

    def _of(self, app: str, topic: str) -> list[Any]:
        return [self._line.base, encoded(app), encoded(topic)]


def pack_note(id: str) -> bytes:
    """A note of a topic, packed; the top bit tells the two kinds of notes apart."""
    private = maybe_pack("p", id)
    if private is not None:
        return bytes([private[0] | 0x80]) + private[1:]
    return pack("m", id)


def unpack_note(packed: bytes) -> str:
    """The note that was packed."""
    return unpack("p" if packed[0] & 0x80 else "m", packed)


def _marks(app: str, found: Sequence[Any]) -> dict[str, Mark]:
    """What is stored of a client, and the names of its topics."""
    if not found[0]:
        return {}
    raw, marks, at = found[0], {}, 2
    told = encoded(app)
    own = b"%d:%b:" % (len(told), told)
    for name in found[1:]:
        count, first = raw[at + 10], at + 11
        stop = first + TIME_BYTES * count
        if name.startswith(own):
            beyond = tuple(_read(raw[i : i + TIME_BYTES]) for i in range(first, stop, TIME_BYTES))
            marks[name[len(own) :].decode()] = Mark(_read(raw[at + 4 : at + 10]), beyond)
        at = stop
    return marks


def _server(found: Sequence[Any]) -> int:
    """The server that a client is on with its topics."""
    return _read(found[0][:2]) - 1 if found[0] else -1


def _notes(flat: Sequence[bytes]) -> list[tuple[int, str]]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [(int(at), unpack_note(note)) for at, note in pairs]


def _after(client: str) -> tuple[int, tuple[int, int]]:
    """Where a list goes on after a client: the place, and what is behind already."""
    raw = maybe_pack("c", client)
    if raw is None:
        return 0, (-1, -1)
    member = int.from_bytes(raw, "big")
    return order(member), (order(member), member)


def _time(position: int) -> bytes:
    return max(0, position).to_bytes(TIME_BYTES, "big")


def _times(positions: Sequence[int]) -> bytes:
    return b"".join(map(_time, positions))


def _read(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
