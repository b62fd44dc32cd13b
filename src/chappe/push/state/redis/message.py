"""Bodies of notes, and what waits for whom, in Redis.

    {p:message}:note:ID              string, with a time to live: the body
    {p:message}:wait:BUCKET          hash: client, packed -> what waits for it, oldest first
    {p:message}:wait:BUCKET:CLIENT   string, with a time to live: the same, where it is too long for
                                     a small hash

What waits is, note by note:

    +---+----------+---------------+------------------------------------+
    | c | id, 63   | expires, 32   | if c: digest of its collapse, 64   |
    |   | bits     | bits, seconds | bits                               |
    +---+----------+---------------+------------------------------------+
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chappe.push.note import Note
from chappe.push.state.collapse import collapse_digest
from chappe.push.state.record import Wait
from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.packing import maybe_pack, pack, split, unpack
from chappe.push.state.redis.waits import pack_wait
from chappe.store.redis_server import Command, Script

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Note).decode

# Bytes that a small hash takes.
SMALL = 64
# KEYS are pairs, of a client's bucket and of its own key; ARGV[1] is the time in seconds.
_WAITING = (
    f"local SMALL = {SMALL}"
    + """
local now = tonumber(ARGV[1])
local function plain(id)
    return string.char(string.byte(id) % 128) .. string.sub(id, 2)
end
local function parsed(raw)
    local notes, at, gone = {}, 1, 0
    while at <= #raw do
        local size = string.byte(raw, at) >= 128 and 20 or 12
        local expires = struct.unpack('>I4', raw, at + 8)
        if expires > now then
            local note = string.sub(raw, at, at + size - 1)
            notes[#notes + 1] = {id = plain(string.sub(note, 1, 8)), raw = note, expires = expires,
                same = string.sub(note, 13)}
        else
            gone = gone + 1
        end
        at = at + size
    end
    return notes, gone
end
local function load(i, client)
    local raw = redis.call('HGET', KEYS[2 * i - 1], client)
    return parsed(raw or redis.call('GET', KEYS[2 * i]) or '')
end
local function save(i, client, notes)
    local parts, last = {}, now
    for at, note in ipairs(notes) do
        parts[at] = note.raw
        last = math.max(last, note.expires)
    end
    local raw = table.concat(parts)
    if #raw > 0 and #raw <= SMALL then
        redis.call('HSET', KEYS[2 * i - 1], client, raw)
    else
        redis.call('HDEL', KEYS[2 * i - 1], client)
    end
    if #raw > SMALL then
        redis.call('SET', KEYS[2 * i], raw, 'EX', string.format('%.0f', last - now))
    else
        redis.call('DEL', KEYS[2 * i])
    end
end
"""
)
# ARGV: the time, the note's id, its entry, its collapse's digest, how many may wait; clients.
_ADD = Script(
    _WAITING,
    """
local id, entry, same, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local out = {}
for i = 1, #KEYS / 2 do
    local client = ARGV[5 + i]
    local notes = load(i, client)
    local kept, has, replaced = {}, false, ''
    for _, note in ipairs(notes) do
        if note.id == id then has = true end
        if same ~= '' and note.same == same and note.id ~= id then
            if replaced == '' then replaced = note.id end
        else
            kept[#kept + 1] = note
        end
    end
    if not has then
        while #kept >= most do
            local oldest = table.remove(kept, 1)
            if replaced == '' then replaced = oldest.id end
        end
        kept[#kept + 1] = parsed(entry)[1]
        save(i, client, kept)
    else
        replaced = ''
    end
    out[i] = replaced
end
return out
""",
)
_READ = Script(
    _WAITING,
    """
local out = {}
for i = 1, #KEYS / 2 do
    local ids = {}
    for at, note in ipairs((load(i, ARGV[1 + i]))) do ids[at] = note.id end
    out[i] = table.concat(ids)
end
return out
""",
)
# ARGV: the time; of each client, itself and the ids that it acknowledged.
_SETTLE = Script(
    _WAITING,
    """
local out = {}
for i = 1, #KEYS / 2 do
    local client, settled = ARGV[2 * i], ARGV[2 * i + 1]
    local notes, kept, waits, did = load(i, client), {}, {}, {}
    for _, note in ipairs(notes) do waits[note.id] = true end
    for at = 1, #settled, 8 do
        local id = string.sub(settled, at, at + 7)
        if waits[id] then
            waits[id] = nil
            did[#did + 1] = id
        end
    end
    if #did > 0 then
        for _, note in ipairs(notes) do
            if waits[note.id] then kept[#kept + 1] = note end
        end
        save(i, client, kept)
    end
    out[i] = table.concat(did)
end
return out
""",
)
_SWEEP = Script(
    _WAITING,
    """
local gone, all = 0, redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
    local notes, expired = parsed(all[at + 1])
    if expired > 0 then
        gone = gone + expired
        local parts = {}
        for i, note in ipairs(notes) do parts[i] = note.raw end
        if #parts > 0 then
            redis.call('HSET', KEYS[1], all[at], table.concat(parts))
        else
            redis.call('HDEL', KEYS[1], all[at])
        end
    end
end
return gone
""",
)


class RedisMessages:
    """Bodies by id, and what waits in small hashes."""

    def __init__(self, line: Line, wall_ms: Callable[[], int]) -> None:
        self._line = line
        self._wall_ms = wall_ms

    async def put(self, note: Note) -> None:
        """Write a body."""
        life_ms = note.expires_ms - self._wall_ms()
        if life_ms > 0:
            await self._line.run(("SET", self._body(note.id), _encode(note), "PX", life_ms))

    async def bodies(self, ids: Sequence[str]) -> dict[str, Note]:
        """Those of these notes that are there: not expired, not cancelled."""
        found: list[Any] = []
        calls = [("MGET", *map(self._body, part)) for part in chunks(ids, 500)]
        for answer in await self._line.read(*calls):
            found += [_decode(body) for body in answer if body is not None]
        now_ms = self._wall_ms()
        return {note.id: note for note in found if note.expires_ms > now_ms}

    async def cancel(self, id: str) -> Note | None:
        """Forget a body, so that nobody gets it any more; what it was."""
        (body,) = await self._line.run(("GETDEL", self._body(id)))
        note = None if body is None else _decode(body)
        return note if note is not None and note.expires_ms > self._wall_ms() else None

    async def add(self, note: Note, clients: Sequence[str], most: int) -> Mapping[str, str]:
        """Let a note wait for clients; which other it took the place of, by client."""
        packed, same = pack("p", note.id), collapse_digest(note.collapse)
        now_s, expires_s = self._now_s(), -(-note.expires_ms // 1000)
        if expires_s <= now_s:
            return {}
        entry = pack_wait(Wait(note.id, expires_s, same))
        each = [(client, pack("c", client)) for client in dict.fromkeys(clients)]
        calls = [
            _ADD.call(
                self._keys(part), [now_s, packed, entry, same, most, *(raw for _, raw in part)]
            )
            for part in chunks(each)
        ]
        replaced = [one for answer in await self._line.run(*calls) for one in answer]
        return {
            client: unpack("p", other)
            for (client, _), other in zip(each, replaced, strict=True)
            if other
        }

    async def waiting(self, clients: Sequence[str]) -> dict[str, list[str]]:
        """The ids that wait for each of the clients, oldest first."""
        found: dict[str, list[str]] = {client: [] for client in clients}
        packed = _known((client, maybe_pack("c", client)) for client in found)
        calls: list[Command] = [
            _READ.call(self._keys(part), [self._now_s(), *(raw for _, raw in part)])
            for part in chunks(packed)
        ]
        answers = [one for answer in await self._line.read(*calls) for one in answer]
        for (client, _), ids in zip(packed, answers, strict=True):
            found[client] = [unpack("p", one) for one in split(ids)]
        return found

    async def settle(self, settled: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Clients have acknowledged notes: they wait no more. Which did until now, by client."""
        packed = _known((client, maybe_pack("c", client)) for client in settled)
        calls = []
        for part in chunks(packed):
            words: list[int | bytes] = [self._now_s()]
            for client, raw in part:
                ids = (maybe_pack("p", one) for one in settled[client])
                words += [raw, b"".join(one for one in ids if one is not None)]
            calls.append(_SETTLE.call(self._keys(part), words))
        answers = [one for answer in await self._line.run(*calls) for one in answer]
        return {
            client: [unpack("p", one) for one in split(did)]
            for (client, _), did in zip(packed, answers, strict=True)
            if did
        }

    async def holders(self, id: str, clients: Sequence[str]) -> list[str]:
        """Those of these clients that a note waits for."""
        waiting = await self.waiting(clients)
        return [client for client in clients if id in waiting[client]]

    async def sweep(self) -> int:
        """Forget some of what expired."""
        now_s = self._now_s()
        calls = await self._line.sweep(
            lambda at: _SWEEP.call([self._line.key("wait", at)], [now_s])
        )
        return sum(calls)

    def _now_s(self) -> int:
        return self._wall_ms() // 1000

    def _body(self, id: str) -> str:
        return self._line.key("note", id)

    def _keys(self, clients: Sequence[tuple[str, bytes]]) -> list[str]:
        keys = []
        for client, raw in clients:
            bucket = self._line.key("wait", self._line.buckets.of_id(raw))
            keys += [bucket, f"{bucket}:{client}"]
        return keys


def _known(packed: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes]]:
    return [(client, raw) for client, raw in packed if raw is not None]
