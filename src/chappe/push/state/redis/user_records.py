"""Records of clients, tokens and bridges in Redis: see user.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from chappe.errors import StorageError
from chappe.push.state.record import Bridge, Owner, Record, Token
from chappe.push.state.redis import user_scripts as scripts
from chappe.push.state.redis.client import (
    APP_BYTES,
    TOKEN_BUCKETS_MAX,
    ClientRecord,
    unpack_client,
)
from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.packing import (
    ID_BYTES,
    TIME_BYTES,
    encoded,
    pack,
    short_digest,
    unpack,
)
from chappe.store.redis_server import Command

# Buckets in a page: a hundred entries each, or many fewer.
_PAGE = 50


class UserRecords:
    """The user state's."""

    names = frozenset(b"client device user token bridge apps counts".split())

    def __init__(self, line: Line) -> None:
        self._line = line

    async def dump(self) -> AsyncIterator[Sequence[Record]]:
        """Give all records, each once; tokens without those whose clients are gone."""
        (named,) = await self._line.read(("HGETALL", self._line.key("apps")))
        async for fields in self._buckets("client"):
            yield [_owner(raw, unpack_client(value), named) for raw, value in fields]
        async for fields in self._buckets("token"):
            holders = [value[:ID_BYTES] for _, value in fields]
            there = await self._line.read(*(("HEXISTS", self._client(raw), raw) for raw in holders))
            yield [_token(*each) for each, is_there in zip(fields, there, strict=True) if is_there]
        async for names in self._line.scan("bridge"):
            for part in chunks([bytes.fromhex(name.decode()) for name in names], _PAGE):
                found = await self._line.read(*(("HGETALL", self._bridge(raw)) for raw in part))
                yield [
                    Bridge(unpack("c", raw), way.decode(), value)
                    for raw, ways in zip(part, found, strict=True)
                    for way, value in ways.items()
                ]

    async def _buckets(self, kind: str) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        async for names in self._line.scan(kind):
            for part in chunks(names, _PAGE):
                calls = (("HGETALL", self._line.key(kind, name.decode())) for name in part)
                found = await self._line.read(*calls)
                yield [each for fields in found for each in fields.items()]

    async def restore(self, kind: type[Record], records: Sequence[Any]) -> None:
        """Write records as they were."""
        if kind is Owner:
            await self._line.run(*map(self._restored, records))
        elif kind is Token:
            await self._put_tokens(records)
        else:
            calls = (
                ("HSET", self._bridge(pack("c", one.client)), encoded(one.way), one.value)
                for one in records
            )
            await self._line.run(*calls)

    def _restored(self, owner: Owner) -> Command:
        spots, raw = self._line.buckets, pack("c", owner.id)
        device = spots.of_name(owner.app, owner.device)
        user = spots.of_name(owner.app, owner.user or "")
        keys = [
            self._line.key("device", device.bucket),
            self._client(raw),
            self._line.key("user", user.bucket),
            self._line.key("apps"),
            self._line.key("counts"),
        ]
        app = short_digest(owner.app, APP_BYTES)
        record = ClientRecord(app, owner.device, owner.user).pack()
        bound = user.field if owner.user is not None else b""
        words = [device.field, raw, record, app, encoded(owner.app), bound]
        return scripts.RESTORE.call(keys, words)

    async def _put_tokens(self, tokens: Sequence[Token]) -> None:
        """Write tokens, and with their clients which buckets these are in."""
        clients = {pack("c", token.client) for token in tokens}
        found = await self._line.read(*(("HGET", self._client(raw), raw) for raw in clients))
        buckets: dict[bytes, ClientRecord] = {}
        for raw, value in zip(clients, found, strict=True):
            if value is None:
                raise StorageError(f"{unpack('c', raw)}: has a token, and is not there")
            buckets[raw] = unpack_client(value)
        calls: list[Command] = []
        for token in tokens:
            raw, at = pack("c", token.client), self._line.buckets.of_digest(token.digest)
            if at not in buckets[raw].tokens:
                held = (*buckets[raw].tokens, at)
                if len(held) > TOKEN_BUCKETS_MAX:
                    raise StorageError(f"{token.client}: has too many tokens")
                buckets[raw] = buckets[raw]._replace(tokens=held)
            value = raw + token.expires_ms.to_bytes(TIME_BYTES, "big")
            calls.append(("HSET", self._line.key("token", at), token.digest, value))
        calls += [("HSET", self._client(raw), raw, one.pack()) for raw, one in buckets.items()]
        await self._line.run(*calls)

    def _bridge(self, packed: bytes) -> str:
        return self._line.key("bridge", packed.hex())

    def _client(self, packed: bytes) -> str:
        return self._line.key("client", self._line.buckets.of_id(packed))


def _owner(raw: bytes, client: ClientRecord, named: dict[bytes, bytes]) -> Owner:
    if client.app not in named:
        raise StorageError("a client's app is not known: the store lost some of it")
    return Owner(unpack("c", raw), named[client.app].decode(), client.device, client.user)


def _token(digest: bytes, value: bytes) -> Token:
    holder = unpack("c", value[:ID_BYTES])
    return Token(digest, holder, int.from_bytes(value[ID_BYTES:], "big"))
