"""Records of apps, jobs, clicks, nonces, small records and uses in Redis: see meta.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from chappe.errors import StorageError
from chappe.push.state.meta import JOB_MS
from chappe.push.state.record import App, Click, JobDone, Named, Nonce, Record, Use
from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.meta import PUT_JOB, RedisMeta, job_of
from chappe.store.redis_server import Command

_encode = msgspec.msgpack.Encoder().encode
_PAGE = 500


class MetaRecords:
    """The meta state's."""

    names = frozenset(b"apps called names keys job jobs click nonce record uses".split())

    def __init__(self, line: Line, wall_ms: Callable[[], int]) -> None:
        self._line = line
        self._wall_ms = wall_ms
        self._meta = RedisMeta(line, wall_ms)

    async def dump(self) -> AsyncIterator[Sequence[Record]]:
        """Give all records, each once."""
        after = ""
        while apps := await self._meta.list_apps(after, _PAGE):
            yield [App(app) for app in apps]
            after = apps[-1].key
        async for page in self._read("job", "HGETALL"):
            yield [JobDone(*job_of(fields)) for _, fields in page if fields]
        async for page in self._read("click", "GET"):
            yield [_click(name, until_ms) for name, until_ms in page if until_ms is not None]
        async for page in self._read("nonce", "GET"):
            yield [Nonce(name, int(until_ms)) for name, until_ms in page if until_ms is not None]
        async for page in self._read("record", "HMGET", "value", "until"):
            yield [Named(name, value, int(at)) for name, (value, at) in page if at is not None]
        async for page in self._read("uses", "HMGET", "count", "until"):
            yield [Use(name, int(count), int(at)) for name, (count, at) in page if at is not None]

    async def _read(self, kind: str, *command: str) -> AsyncIterator[list[tuple[str, Any]]]:
        """Names of a kind, and what a command says of each: nothing, if it has expired since."""
        verb, *words = command
        async for found in self._line.scan(kind):
            for part in chunks([name.decode() for name in found], _PAGE):
                calls = ((verb, self._line.key(kind, name), *words) for name in part)
                yield list(zip(part, await self._line.read(*calls), strict=True))

    async def restore(self, kind: type[Record], records: Sequence[Any]) -> None:
        """Write records as they were."""
        now_ms = self._wall_ms()
        if kind is App:
            for record in records:
                if not await self._meta.put_app(record.app, new=False):
                    raise StorageError(f"another app is called {record.app.name!r} already")
            return
        calls: list[Command] = []
        for record in records:
            life_ms = record.until_ms - now_ms
            if record.until_ms == 0 or life_ms > 0:
                calls += self._written(record, life_ms)
        await self._line.run(*calls)

    def _written(self, record: Any, life_ms: int) -> list[Command]:
        key = self._line.key
        match record:
            case JobDone():
                return self._job(record, life_ms)
            case Click():
                name = key("click", record.client, record.note)
                return [("SET", name, record.expires_ms, "PX", life_ms)]
            case Nonce():
                return [("SET", key("nonce", record.nonce), record.expires_ms, "PX", life_ms)]
            case Named():
                name = key("record", record.name)
                return _lasting(name, life_ms, "value", record.value, "until", record.expires_ms)
        name = key("uses", record.name)
        return _lasting(name, life_ms, "count", record.count, "until", record.expires_ms)

    def _job(self, record: JobDone, life_ms: int) -> list[Command]:
        job, tally = record.job, msgspec.structs.asdict(record.tally)
        keys = [self._line.key("job", job.id), self._line.key("jobs", job.app)]
        oldest_ms = self._wall_ms() - JOB_MS
        words: list[Any] = [
            job.id,
            _encode(job),
            tally["aimed"],
            job.created_ms,
            life_ms,
            oldest_ms,
        ]
        counted: list[Any] = [word for pair in tally.items() for word in pair]
        if job.cancelled_ms:
            counted += ["cancelled", job.cancelled_ms]
        return [PUT_JOB.call(keys, words), ("HSET", keys[0], *counted)]


def _click(name: str, until_ms: bytes) -> Click:
    client, _, note = name.partition(":")
    return Click(client, note, int(until_ms))


def _lasting(name: str, life_ms: int, *fields: str | bytes | int) -> list[Command]:
    """A hash, forgotten then; one that is kept for good has no time any more."""
    expiring: Command = ("PEXPIRE", name, life_ms) if life_ms > 0 else ("PERSIST", name)
    return [("HSET", name, *fields), expiring]
