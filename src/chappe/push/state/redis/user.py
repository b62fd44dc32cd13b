"""Clients, devices, users, tokens and bridges in Redis.

    {p:user}:client:BUCKET   hash: client, packed -> app, device, user: see client.py
    {p:user}:device:BUCKET   hash: digest of app and device -> client
    {p:user}:user:BUCKET     hash: digest of app and user -> its clients, one behind the other
    {p:user}:token:BUCKET    hash: digest of a token -> client, and 6 bytes for when it expires
    {p:user}:bridge:CLIENT   hash: kind -> how the client is reached while it is not connected
    {p:user}:apps            hash: digest of an app -> its key
    {p:user}:counts          hash: digest of an app -> how many clients it has

A change of what is known of a client is made by whoever read it, if it is still that: the script
compares. So all names that a script touches are known before it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chappe.errors import Overload, StorageError
from chappe.push.state.redis import user_scripts as scripts
from chappe.push.state.redis.client import (
    APP_BYTES,
    BUCKET_BYTES,
    ClientRecord,
    unpack_client,
)
from chappe.push.state.redis.line import Line
from chappe.push.state.redis.packing import (
    ID_BYTES,
    TIME_BYTES,
    Spot,
    encoded,
    maybe_pack,
    pack,
    short_digest,
    split,
    unpack,
)
from chappe.push.state.user import (
    CLIENTS_PER_USER_MAX,
    TOKENS_PER_CLIENT_MAX,
    Client,
    TokenHolder,
)
from chappe.store.redis_server import Command

# How often a change is tried that others come before; nobody changes one client that often.
ATTEMPTS = 20
# Apps whose keys are remembered here.
APPS_KEPT = 10_000
# From so many buckets on, a client's tokens are looked through when it gets another: not for most.
TOKEN_BUCKETS_TIDY = 2
_OTHER = -2


class RedisUsers:
    """Clients and what leads to them, in small hashes."""

    def __init__(self, line: Line, wall_ms: Callable[[], int]) -> None:
        self._line = line
        self._wall_ms = wall_ms
        # What a digest stands for never changes.
        self._apps: dict[bytes, str] = {}

    async def claim_client(self, app: str, device: str, new: str, most: int = 0) -> Client:
        """The client of a device, made with that id if there is none; raises Overload if the app
        has `most` clients already (0: however many)."""
        raw, name = pack("c", new), short_digest(app, APP_BYTES)
        spot = self._line.buckets.of_name(app, device)
        keys = [self._key("device", spot), self._client(raw), *self._shared]
        record = ClientRecord(name, device).pack()
        words: list[bytes | int] = [spot.field, raw, record, name, encoded(app), most]
        for _ in range(ATTEMPTS):
            (has,) = await self._line.run(scripts.CLAIM.call(keys, words))
            if not has:
                raise Overload(f"app: it has {most} clients")
            if has == raw:
                return Client(new, app, device)
            found = await self.clients([unpack("c", has)])
            if found:
                return next(iter(found.values()))
        raise StorageError(f"{device[:40]!r}: removed again and again")

    async def clients(self, ids: Sequence[str]) -> dict[str, Client]:
        """Those of these clients that are there."""
        packed = [(one, raw) for one in ids if (raw := maybe_pack("c", one)) is not None]
        found = await self._line.read(*(("HGET", self._client(raw), raw) for _, raw in packed))
        records = {
            one: unpack_client(raw)
            for (one, _), raw in zip(packed, found, strict=True)
            if raw is not None
        }
        await self._know({record.app for record in records.values()})
        return {
            one: Client(one, self._apps[record.app], record.device, record.user)
            for one, record in records.items()
        }

    async def clients_of_devices(self, app: str, devices: Sequence[str]) -> dict[str, str]:
        """The clients of those devices that have one."""
        found = await self._line.read(*(self._named("device", app, one) for one in devices))
        pairs = zip(devices, found, strict=True)
        return {device: unpack("c", raw) for device, raw in pairs if raw is not None}

    async def remove_client(self, id: str) -> Client | None:
        """Forget a client, its tokens, bridges and user; what it was."""
        raw = maybe_pack("c", id)
        if raw is None:
            return None

        async def remove(was: bytes, record: ClientRecord, client: Client) -> Any:
            device = self._line.buckets.of_name(client.app, record.device)
            user = self._line.buckets.of_name(client.app, record.user or "")
            keys = [self._client(raw), self._key("device", device), self._key("user", user)]
            keys += [*self._shared, self._bridges(raw), *self._tokens(record.tokens)]
            bound = user.field if record.user is not None else b""
            return scripts.REMOVE.call(keys, [raw, was, device.field, bound, record.app])

        return (await self._changed(id, remove))[0]

    async def count_clients(self, app: str) -> int:
        """How many clients an app has."""
        name = short_digest(app, APP_BYTES)
        (count,) = await self._line.read(("HGET", self._line.key("counts"), name))
        return int(count or 0)

    async def put_token(self, digest: bytes, holder: TokenHolder) -> None:
        """Write a token of a client that is there; it is forgotten when it expires, or when the
        client has too many."""
        raw = pack("c", holder.client)
        at = self._line.buckets.of_digest(digest)
        value = raw + holder.expires_ms.to_bytes(TIME_BYTES, "big")

        async def put(was: bytes, record: ClientRecord, client: Client) -> Any:
            if at not in record.tokens and len(record.tokens) < TOKEN_BUCKETS_TIDY:
                now = record._replace(tokens=(*record.tokens, at)).pack()
                keys = [self._client(raw), self._line.key("token", at)]
                return scripts.PUT_TOKEN.call(keys, [raw, was, now, digest, value])
            buckets = list(dict.fromkeys((at, *record.tokens)))
            words: list[bytes | int] = [raw, was, digest, value, TOKENS_PER_CLIENT_MAX]
            words += [one.to_bytes(BUCKET_BYTES, "big") for one in buckets]
            keys = [self._client(raw), *self._tokens(buckets)]
            return scripts.PUT_TOKEN_OF_MANY.call(keys, words)

        await self._changed(holder.client, put)

    async def tokens(self, digests: Sequence[bytes], now_ms: int) -> list[TokenHolder | None]:
        """Whose tokens these are; None: nobody's, or expired."""
        found = await self._line.read(
            *(("HGET", self._token(digest), digest) for digest in digests)
        )
        holders = [None if raw is None else _holder(raw) for raw in found]
        return [one if one is not None and one.expires_ms > now_ms else None for one in holders]

    async def revoke(self, digest: bytes) -> TokenHolder | None:
        """Forget a token; whose it was."""
        (raw,) = await self._line.run(scripts.REVOKE.call([self._token(digest)], [digest]))
        return None if raw is None else _holder(raw)

    async def revoke_client(self, client: str) -> int:
        """Forget all tokens of a client; how many there were."""
        raw = maybe_pack("c", client)
        if raw is None:
            return 0

        async def revoke(was: bytes, record: ClientRecord, _: Client) -> Any:
            keys = [self._client(raw), *self._tokens(record.tokens)]
            now = record._replace(tokens=()).pack()
            return scripts.REVOKE_CLIENT.call(keys, [raw, was, now])

        return int((await self._changed(client, revoke))[1])

    async def bind(self, app: str, user: str, client: str) -> bool:
        """Let a client belong to a user, and to no other; False if the user has too many, or the
        app has no such client."""
        return await self._bound(app, user, client) is not None

    async def unbind(self, app: str, client: str) -> str | None:
        """Let a client belong to nobody; whose it was."""
        was = await self._bound(app, None, client)
        return None if was is None else was.user

    async def clients_of_users(self, app: str, users: Sequence[str]) -> Mapping[str, list[str]]:
        """The clients of each of those users that has any."""
        found = await self._line.read(*(self._named("user", app, one) for one in users))
        pairs = zip(users, found, strict=True)
        return {user: [unpack("c", one) for one in split(raw)] for user, raw in pairs if raw}

    async def put_bridge(self, client: str, kind: str, value: bytes) -> bool:
        """Write how a client is reached while it is not connected; False if there is no such."""
        raw = maybe_pack("c", client)
        if raw is None:
            return False
        keys = [self._client(raw), self._bridges(raw)]
        (put,) = await self._line.run(scripts.PUT_BRIDGE.call(keys, [raw, kind, value]))
        return bool(put)

    async def bridges(self, clients: Sequence[str], kind: str) -> dict[str, bytes]:
        """How those of these clients are reached that have a bridge of a kind."""
        packed = [(one, raw) for one in clients if (raw := maybe_pack("c", one)) is not None]
        found = await self._line.read(*(("HGET", self._bridges(raw), kind) for _, raw in packed))
        pairs = zip(packed, found, strict=True)
        return {one: value for (one, _), value in pairs if value is not None}

    async def remove_bridge(self, client: str, kind: str, value: bytes | None = None) -> bool:
        """Forget a bridge; with a value, only if it is that one. Whether it was there."""
        raw = maybe_pack("c", client)
        if raw is None:
            return False
        words: list[str | bytes] = [kind] if value is None else [kind, value]
        (gone,) = await self._line.run(scripts.REMOVE_BRIDGE.call([self._bridges(raw)], words))
        return bool(gone)

    async def sweep(self) -> int:
        """Forget some of the tokens that expired."""
        now = self._wall_ms().to_bytes(TIME_BYTES, "big")
        gone = await self._line.sweep(
            lambda at: scripts.SWEEP.call([self._line.key("token", at)], [now])
        )
        return sum(gone)

    async def _bound(self, app: str, user: str | None, client: str) -> Client | None:
        """Let a client belong to a user, or to nobody; what it was, None if it cannot."""
        raw = maybe_pack("c", client)
        if raw is None:
            return None
        spots = self._line.buckets

        async def bind(was: bytes, record: ClientRecord, found: Client) -> Any:
            if found.app != app:
                return None
            old, new = (spots.of_name(app, name or "") for name in (record.user, user))
            keys = [self._client(raw), self._key("user", old), self._key("user", new)]
            fields = [
                old.field if record.user is not None else b"",
                new.field if user is not None else b"",
            ]
            now = record._replace(user=user).pack()
            return scripts.BIND.call(keys, [raw, was, now, *fields, CLIENTS_PER_USER_MAX])

        before, answer = await self._changed(client, bind)
        return None if answer == _OTHER else before

    async def _changed(
        self, id: str, change: Callable[[bytes, ClientRecord, Client], Any]
    ) -> tuple[Client | None, int]:
        """Change a client by a script that compares first; what it was, and what was answered.

        None and 0 if there is no such client, or if nothing is to be done.
        """
        raw = pack("c", id)
        for _ in range(ATTEMPTS):
            (was,) = await self._line.read(("HGET", self._client(raw), raw))
            if was is None:
                return None, 0
            record = unpack_client(was)
            await self._know({record.app})
            before = Client(id, self._apps[record.app], record.device, record.user)
            call: Command | None = await change(was, record, before)
            if call is None:
                return None, 0
            (answer,) = await self._line.run(call)
            if answer != scripts.CHANGED:
                return before, answer
        raise StorageError(f"{id}: changed by others again and again")

    async def _know(self, names: set[bytes]) -> None:
        """Find out the keys of apps."""
        unknown = [name for name in names if name not in self._apps]
        if unknown:
            (keys,) = await self._line.read(("HMGET", self._line.key("apps"), *unknown))
            if len(self._apps) + len(unknown) > APPS_KEPT:
                self._apps.clear()
                await self._know(names)
                return
            for name, key in zip(unknown, keys, strict=True):
                if key is None:
                    raise StorageError("a client's app is not known: the store lost some of it")
                self._apps[name] = key.decode()

    @property
    def _shared(self) -> tuple[str, str]:
        return self._line.key("apps"), self._line.key("counts")

    def _client(self, packed: bytes) -> str:
        return self._line.key("client", self._line.buckets.of_id(packed))

    def _bridges(self, packed: bytes) -> str:
        return self._line.key("bridge", packed.hex())

    def _token(self, digest: bytes) -> str:
        return self._line.key("token", self._line.buckets.of_digest(digest))

    def _tokens(self, buckets: Sequence[int]) -> list[str]:
        return [self._line.key("token", at) for at in buckets]

    def _key(self, kind: str, spot: Spot) -> str:
        return self._line.key(kind, spot.bucket)

    def _named(self, kind: str, app: str, name: str) -> Command:
        spot = self._line.buckets.of_name(app, name)
        return ("HGET", self._key(kind, spot), spot.field)


def _holder(raw: bytes) -> TokenHolder:
    return TokenHolder(unpack("c", raw[:ID_BYTES]), int.from_bytes(raw[ID_BYTES:], "big"))
