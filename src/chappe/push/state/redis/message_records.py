"""Records of bodies, and of what waits for whom, in Redis: see message.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from chappe.push.note import Note
from chappe.push.state.record import Body, Record, Waiting
from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.message import SMALL
from chappe.push.state.redis.packing import pack, unpack
from chappe.push.state.redis.waits import pack_waits, unpack_waits
from chappe.store.redis_server import Command

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Note).decode
# Bodies in a page, and buckets.
_PAGE_BODIES = 200
_PAGE = 50


class MessageRecords:
    """The message state's."""

    names = frozenset(b"note wait".split())

    def __init__(self, line: Line, wall_ms: Callable[[], int]) -> None:
        self._line = line
        self._wall_ms = wall_ms

    async def dump(self) -> AsyncIterator[Sequence[Record]]:
        """Give all records, each once."""
        async for names in self._line.scan("note"):
            for part in chunks(names, _PAGE_BODIES):
                (found,) = await self._line.read(("MGET", *map(self._body, part)))
                yield [Body(_decode(body)) for body in found if body is not None]
        async for names in self._line.scan("wait"):
            for part in chunks(names, _PAGE):
                yield await self._waiting([name.decode() for name in part])

    async def _waiting(self, names: Sequence[str]) -> list[Record]:
        """What is in buckets, and what is too long for one: there the name has the client."""
        found = await self._line.read(
            *(("GET" if ":" in name else "HGETALL", self._line.key("wait", name)) for name in names)
        )
        records: list[Record] = []
        for name, value in zip(names, found, strict=True):
            if isinstance(value, dict):
                records += (Waiting(unpack("c", k), unpack_waits(v)) for k, v in value.items())
            elif value is not None:
                records.append(Waiting(name.partition(":")[2], unpack_waits(value)))
        return records

    async def restore(self, kind: type[Record], records: Sequence[Any]) -> None:
        """Write records as they were."""
        written = self._put if kind is Body else self._wait
        await self._line.run(*(call for record in records for call in written(record)))

    def _put(self, record: Body) -> list[Command]:
        life_ms = record.note.expires_ms - self._wall_ms()
        body = self._body(record.note.id.encode())
        return [("SET", body, _encode(record.note), "PX", life_ms)] if life_ms > 0 else []

    def _wait(self, record: Waiting) -> list[Command]:
        raw, notes = pack("c", record.client), pack_waits(record.notes)
        bucket = self._line.key("wait", self._line.buckets.of_id(raw))
        alone = f"{bucket}:{record.client}"
        life_s = max(note.expires_s for note in record.notes) - self._wall_ms() // 1000
        if life_s <= 0:
            return []
        if len(notes) <= SMALL:
            return [("HSET", bucket, raw, notes), ("DEL", alone)]
        return [("HDEL", bucket, raw), ("SET", alone, notes, "EX", life_s)]

    def _body(self, id: bytes) -> str:
        return self._line.key("note", id.decode())
