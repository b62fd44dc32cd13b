"""Apps, jobs, clicks, nonces and small records in Redis.

    {p:meta}:apps        hash: key -> app
    {p:meta}:called      hash: key -> name          {p:meta}:names   hash: name -> key
    {p:meta}:keys        sorted set of keys, all of one score: in the order of their bytes
    {p:meta}:job:ID      hash, with a time to live: the job, and what was counted
    {p:meta}:jobs:APP    sorted set: job -> when it was made
    {p:meta}:click:...   string, with a time to live: until when it is remembered; nonce:... alike
    {p:meta}:record:...  hash: the value, and until when it is kept (0: for good)
    {p:meta}:uses:...    hash, with a time to live: how often it was used, and when that begins anew

There are few of them, so nothing here is packed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from chappe.push.app import PushApp
from chappe.push.job import Job, Tally
from chappe.push.state.meta import JOB_MS
from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.packing import encoded
from chappe.store.redis_server import Script

_encode = msgspec.msgpack.Encoder().encode
_decode_app = msgspec.msgpack.Decoder(PushApp).decode
_decode_job = msgspec.msgpack.Decoder(Job).decode
_COUNTED = Tally.__struct_fields__

# KEYS: apps, names, keys, called. ARGV: key, name, app, whether it must be new.
_PUT_APP = Script(
    """
local key, name = ARGV[1], ARGV[2]
local has = redis.call('HGET', KEYS[2], name)
if has and has ~= key then return 0 end
local before = redis.call('HGET', KEYS[4], key)
if before and ARGV[4] == '1' then return 0 end
if before then redis.call('HDEL', KEYS[2], before) end
redis.call('HSET', KEYS[4], key, name)
redis.call('HSET', KEYS[1], key, ARGV[3])
redis.call('HSET', KEYS[2], name, key)
redis.call('ZADD', KEYS[3], 0, key)
return 1
"""
)
_REMOVE_APP = Script(
    """
local name = redis.call('HGET', KEYS[4], ARGV[1])
if not name then return 0 end
redis.call('HDEL', KEYS[2], name)
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
"""
)
_NAMED = Script(
    """
local key = redis.call('HGET', KEYS[2], ARGV[1])
return key and redis.call('HGET', KEYS[1], key)
"""
)
_LIST_APPS = Script(
    """
local keys = redis.call('ZRANGEBYLEX', KEYS[3], '(' .. ARGV[1], '+', 'LIMIT', 0, ARGV[2])
if #keys == 0 then return {} end
return redis.call('HMGET', KEYS[1], unpack(keys))
"""
)
# KEYS: the job, its app's jobs. ARGV: id, body, aimed, created, how long it is kept, the oldest.
PUT_JOB = Script(
    """
redis.call('HSET', KEYS[1], 'body', ARGV[2], 'aimed', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[6])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[5]) then
    redis.call('PEXPIRE', KEYS[2], ARGV[5])
end
"""
)
_LIST_JOBS = Script(
    """
local first = 0
if ARGV[2] == '1' then
    first = redis.call('ZREVRANK', KEYS[1], ARGV[1])
    if not first then return {} end
    first = first + 1
end
return redis.call('ZREVRANGE', KEYS[1], first, first + ARGV[3] - 1)
"""
)
_CANCEL = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
return redis.call('HSETNX', KEYS[1], 'cancelled', ARGV[1])
"""
)
# ARGV: of each job how many are counted, and what and how much.
_COUNT = Script(
    """
local at = 1
for i = 1, #KEYS do
    local last = at + 2 * tonumber(ARGV[at])
    if redis.call('EXISTS', KEYS[i]) == 1 then
        for one = at + 1, last, 2 do redis.call('HINCRBY', KEYS[i], ARGV[one], ARGV[one + 1]) end
    end
    at = last + 1
end
"""
)
# ARGV: the time, and until when it is remembered. A time to live alone would be the server's clock.
_FIRST = Script(
    """
local out = {}
for i = 1, #KEYS do
    local until_ms = redis.call('GET', KEYS[i])
    out[i] = 0
    if not until_ms or tonumber(until_ms) <= tonumber(ARGV[1]) then
        redis.call('SET', KEYS[i], ARGV[2], 'PX', math.max(1, ARGV[2] - ARGV[1]))
        out[i] = 1
    end
end
return out
"""
)
# ARGV: the time, until when it is kept, the value.
_KEEP = Script(
    """
local until_ms = redis.call('HGET', KEYS[1], 'until')
if until_ms and (until_ms == '0' or tonumber(until_ms) > tonumber(ARGV[1])) then
    return redis.call('HGET', KEYS[1], 'value')
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'value', ARGV[3], 'until', ARGV[2])
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], math.max(1, ARGV[2] - ARGV[1])) end
return ARGV[3]
"""
)
# ARGV: the time, when counts begin anew, how often each may be used.
_SPEND = Script(
    """
local out = {}
for i = 1, #KEYS do
    local before = redis.call('HMGET', KEYS[i], 'count', 'until')
    local count = tonumber(before[1] or 0)
    if before[2] and tonumber(before[2]) <= tonumber(ARGV[1]) then count = 0 end
    out[i] = 0
    if count < tonumber(ARGV[3]) then
        redis.call('HSET', KEYS[i], 'count', count + 1, 'until', ARGV[2])
        redis.call('PEXPIRE', KEYS[i], math.max(1, ARGV[2] - ARGV[1]))
        out[i] = 1
    end
end
return out
"""
)


class RedisMeta:
    """Apps in a hash, jobs and what is remembered by keys."""

    def __init__(self, line: Line, wall_ms: Callable[[], int]) -> None:
        self._line = line
        self._wall_ms = wall_ms
        self._apps = [line.key(name) for name in ("apps", "names", "keys", "called")]

    async def put_app(self, app: PushApp, *, new: bool) -> bool:
        """Write an app; with `new`, only if its key is not there yet. False if not, or if another
        app has its name."""
        words: list[bytes | int] = [encoded(app.key), encoded(app.name), _encode(app), int(new)]
        (done,) = await self._line.run(_PUT_APP.call(self._apps, words))
        return bool(done)

    async def apps(self, keys: Sequence[str]) -> dict[str, PushApp]:
        """Those of these apps that are there."""
        if not keys:
            return {}
        (found,) = await self._line.read(("HMGET", self._apps[0], *map(encoded, keys)))
        apps = (_decode_app(body) for body in found if body is not None)
        return {app.key: app for app in apps}

    async def app_named(self, name: str) -> PushApp | None:
        """The app of a name."""
        (body,) = await self._line.read(_NAMED.call(self._apps, [encoded(name)]))
        return None if body is None else _decode_app(body)

    async def list_apps(self, after: str, limit: int) -> list[PushApp]:
        """Apps by key, from the one after that."""
        (found,) = await self._line.read(_LIST_APPS.call(self._apps, [encoded(after), limit]))
        return [_decode_app(body) for body in found]

    async def remove_app(self, key: str) -> bool:
        """Forget an app; whether it was there."""
        (done,) = await self._line.run(_REMOVE_APP.call(self._apps, [encoded(key)]))
        return bool(done)

    async def put_job(self, job: Job, aimed: int) -> None:
        """Write a job, and how many it is aimed at. It is forgotten 30 days after it was made."""
        now_ms = self._wall_ms()
        life_ms = job.created_ms + JOB_MS - now_ms
        if life_ms > 0:
            keys = [self._job(job.id), self._line.key("jobs", job.app)]
            words: list[str | bytes | int]
            words = [job.id, _encode(job), aimed, job.created_ms, life_ms, now_ms - JOB_MS]
            await self._line.run(PUT_JOB.call(keys, words))

    async def jobs(self, ids: Sequence[str]) -> dict[str, tuple[Job, Tally]]:
        """Those of these jobs that are there, each with its tally."""
        found = await self._line.read(*(("HGETALL", self._job(one)) for one in ids))
        oldest_ms = self._wall_ms() - JOB_MS
        jobs = (job_of(fields) for fields in found if fields)
        return {job.id: (job, tally) for job, tally in jobs if job.created_ms > oldest_ms}

    async def list_jobs(self, app: str, before: str | None, limit: int) -> list[tuple[Job, Tally]]:
        """An app's jobs, the newest first, from the one before that."""
        words: list[str | int] = [before or "", int(before is not None), limit]
        (ids,) = await self._line.read(_LIST_JOBS.call([self._line.key("jobs", app)], words))
        found = await self.jobs([one.decode() for one in ids])
        return list(found.values())

    async def cancel_job(self, id: str, now_ms: int) -> bool:
        """Note that a job was cancelled; False if it was before, or is not there."""
        if id not in await self.jobs([id]):
            return False
        (done,) = await self._line.run(_CANCEL.call([self._job(id)], [now_ms]))
        return bool(done)

    async def count(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add to tallies: by job, by the name of what is counted."""
        calls = []
        for part in chunks(list(counts.items())):
            words: list[str | int] = []
            for _, counted in part:
                assert set(counted) <= set(_COUNTED), counted
                words += [len(counted), *(word for pair in counted.items() for word in pair)]
            calls.append(_COUNT.call([self._job(job) for job, _ in part], words))
        await self._line.run(*calls)

    async def click(self, clicks: Sequence[tuple[str, str]]) -> list[bool]:
        """Note that clients clicked notes, (client, note) each; whether for the first time."""
        now_ms = self._wall_ms()
        calls = [
            _FIRST.call(
                [self._line.key("click", *click) for click in part], [now_ms, now_ms + JOB_MS]
            )
            for part in chunks(clicks)
        ]
        return [bool(first) for answer in await self._line.run(*calls) for first in answer]

    async def claim(self, nonce: str, until_ms: int) -> bool:
        """Whether a signed request was not seen before; it is remembered until then (P10)."""
        words = [self._wall_ms(), until_ms]
        ((first,),) = await self._line.run(_FIRST.call([self._line.key("nonce", nonce)], words))
        return bool(first)

    async def keep(self, name: str, value: bytes, until_ms: int) -> bytes:
        """Write a small record unless one of that name is there; which is there now."""
        words: list[bytes | int] = [self._wall_ms(), until_ms, value]
        (there,) = await self._line.run(_KEEP.call([self._line.key("record", name)], words))
        return bytes(there)

    async def kept(self, name: str) -> bytes | None:
        """The record of a name, unless it is to be forgotten by now."""
        key = self._line.key("record", name)
        ((value, until_ms),) = await self._line.read(("HMGET", key, "value", "until"))
        if value is None or 0 < int(until_ms) <= self._wall_ms():
            return None
        return bytes(value)

    async def spend(self, names: Sequence[str], most: int, until_ms: int) -> list[bool]:
        """Use each of these once more; whether it was not used so often before."""
        words = [self._wall_ms(), until_ms, most]
        calls = [
            _SPEND.call([self._line.key("uses", name) for name in part], words)
            for part in chunks(names)
        ]
        return [bool(within) for answer in await self._line.run(*calls) for within in answer]

    def _job(self, id: str) -> str:
        return self._line.key("job", id)


def job_of(fields: Mapping[bytes, Any]) -> tuple[Job, Tally]:
    named = {name.decode(): value for name, value in fields.items()}
    job = _decode_job(named.pop("body"))
    cancelled_ms = int(named.pop("cancelled", job.cancelled_ms))
    tally = Tally(**{name: int(value) for name, value in named.items()})
    return msgspec.structs.replace(job, cancelled_ms=cancelled_ms), tally
