"""Records of topics, their notes and their subscribers in Redis: see topic.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from chappe.push.state.record import Marked, Record, Subscriber, Topic, TopicNote
from chappe.push.state.redis import topic_scripts as scripts
from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.packing import ID_BYTES, TIME_BYTES, encoded, pack, unpack
from chappe.push.state.redis.topic import pack_note, unpack_note
from chappe.store.redis_server import Command

# Hundreds of topics in a page, topics with all their notes, and buckets of subscribers.
_PAGE_HUNDREDS = 10
_PAGE_LOGS = 5
_PAGE = 50
_ENTRY = ID_BYTES + TIME_BYTES
_NUMBER_BYTES = 4


class _Named(NamedTuple):
    number: int
    app: str
    topic: str


class _Stored(NamedTuple):
    """A topic of a client as it is stored."""

    number: int
    position: int
    beyond: tuple[int, ...]


class TopicRecords:
    """The topic state's."""

    names = frozenset(b"topic on client log ids same name list number".split())

    def __init__(self, line: Line, wall_ms: Callable[[], int]) -> None:
        self._line = line
        self._wall_ms = wall_ms

    async def dump(self) -> AsyncIterator[Sequence[Record]]:
        """Give all records, each once."""
        async for topics in self._topics():
            keys = (self._topic(one.app, one.topic) for one in topics)
            lasts = await self._line.read(*(("HGET", key, "last") for key in keys))
            pairs = zip(topics, lasts, strict=True)
            yield [Topic(one.app, one.topic, int(last)) for one, last in pairs]
        async for topics in self._topics():
            for part in chunks(topics, _PAGE_LOGS):
                yield await self._notes(part)
        async for names in self._line.scan("client"):
            for buckets in chunks(names, _PAGE):
                yield await self._subscribers([name.decode() for name in buckets])

    async def _topics(self) -> AsyncIterator[list[_Named]]:
        """Topics by number, some at a time."""
        (made,) = await self._line.read(("GET", self._line.key("number")))
        for part in chunks(range(int(made or 0) // 100 + 1), _PAGE_HUNDREDS):
            calls = (("HGETALL", self._line.key("name", hundred)) for hundred in part)
            found = await self._line.read(*calls)
            yield [_named(int(n), name) for names in found for n, name in names.items()]

    async def _notes(self, topics: Sequence[_Named]) -> list[Record]:
        logs = (self._line.key("log", one.number) for one in topics)
        found = await self._line.read(*(("ZRANGE", log, 0, -1, "WITHSCORES") for log in logs))
        return [
            _topic_note(one, entry, int(position))
            for one, entries in zip(topics, found, strict=True)
            for entry, position in zip(entries[::2], entries[1::2], strict=True)
        ]

    async def _subscribers(self, buckets: Sequence[str]) -> list[Record]:
        found = await self._line.read(
            *(("HGETALL", self._line.key("client", bucket)) for bucket in buckets)
        )
        clients = {
            raw: _stored(stored) for fields in found for raw, stored in _joined(fields).items()
        }
        names = await self._names({mark.number for marks in clients.values() for mark in marks})
        records: list[Record] = []
        for raw, marks in clients.items():
            apps: dict[str, list[Marked]] = defaultdict(list)
            for mark in marks:
                named = names[mark.number]
                apps[named.app].append(Marked(named.topic, mark.position, mark.beyond))
            client = unpack("c", raw)
            records += (Subscriber(app, client, _sorted(its)) for app, its in apps.items())
        return records

    async def _names(self, numbers: Iterable[int]) -> dict[int, _Named]:
        asked = list(numbers)
        calls = (("HGET", self._line.key("name", number // 100), number) for number in asked)
        found = await self._line.read(*calls)
        return {n: _named(n, name) for n, name in zip(asked, found, strict=True)}

    async def restore(self, kind: type[Record], records: Sequence[Any]) -> None:
        """Write records as they were; who subscribes is on no server."""
        calls: dict[type[Record], Callable[[Any], Command]]
        calls = {Topic: self._put, TopicNote: self._append, Subscriber: self._subscribe}
        await self._line.run(*map(calls[kind], records))

    def _put(self, record: Topic) -> Command:
        words = [*self._of(record), record.position]
        return scripts.RESTORE_TOPIC.call([self._topic(record.app, record.topic)], words)

    def _append(self, record: TopicNote) -> Command:
        life_ms = max(1, record.expires_ms - self._wall_ms())
        note = pack_note(record.note)
        words = [*self._of(record), note, record.position, record.expires_ms, record.collapse]
        key = self._topic(record.app, record.topic)
        return scripts.RESTORE_NOTE.call([key], [*words, life_ms])

    def _subscribe(self, record: Subscriber) -> Command:
        raw = pack("c", record.client)
        words: list[Any] = [self._line.base, raw, int.from_bytes(raw, "big"), encoded(record.app)]
        for mark in record.marks:
            words += [encoded(mark.topic), _time(mark.position), b"".join(map(_time, mark.beyond))]
        key = self._line.key("client", self._line.buckets.of_id(raw))
        return scripts.RESTORE_CLIENT.call([key], words)

    def _topic(self, app: str, topic: str) -> str:
        return self._line.key("topic", len(encoded(app)), app, topic)

    def _of(self, record: Topic | TopicNote) -> list[Any]:
        return [self._line.base, encoded(record.app), encoded(record.topic)]


def _named(number: int, name: bytes) -> _Named:
    size, _, rest = name.partition(b":")
    return _Named(number, rest[: int(size)].decode(), rest[int(size) + 1 :].decode())


def _topic_note(topic: _Named, entry: bytes, position: int) -> TopicNote:
    expires_ms = _read(entry[ID_BYTES:_ENTRY])
    note = unpack_note(entry[:ID_BYTES])
    return TopicNote(topic.app, topic.topic, position, note, expires_ms, entry[_ENTRY:])


def _joined(fields: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What is stored of clients, put together again: pieces have the client's name and a number."""
    pieces = sorted(fields.items())
    joined: dict[bytes, bytes] = defaultdict(bytes)
    for name, piece in pieces:
        joined[name[:ID_BYTES]] += piece
    return joined


def _stored(raw: bytes) -> list[_Stored]:
    """A client's topics; its server, in the first two bytes, is left out."""
    marks, at = [], 2
    while at < len(raw):
        position = at + _NUMBER_BYTES
        count = position + TIME_BYTES
        stop = count + 1 + TIME_BYTES * raw[count]
        beyond = (_read(raw[i : i + TIME_BYTES]) for i in range(count + 1, stop, TIME_BYTES))
        marks.append(_Stored(_read(raw[at:position]), _read(raw[position:count]), tuple(beyond)))
        at = stop
    return marks


def _sorted(marks: Iterable[Marked]) -> tuple[Marked, ...]:
    return tuple(sorted(marks, key=lambda mark: encoded(mark.topic)))


def _time(position: int) -> bytes:
    return position.to_bytes(TIME_BYTES, "big")


def _read(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
