"""A ledger in Redis: sessions on Redis's own clock, changes told by publish/subscribe.

Notifications need no setting of the server's, and none is relied on: everything is looked at anew
at every poll and after every reconnect. A Redis that restarts with its data, empty, or as another
after a failover is met in the same way: what it does not know is entered again, or was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from chappe.errors import ClusterError, Conflict, Held
from chappe.registry import redis_scripts as scripts
from chappe.registry.bell import Bell
from chappe.registry.coordination import Versioned
from chappe.registry.ledger import (
    MEMBERS,
    MembersFound,
    SeatsFound,
    SessionOver,
    seats_bell,
    value_bell,
)
from chappe.registry.membership import Member
from chappe.registry.options import RegistryOptions
from chappe.registry.stop import stop

log = structlog.get_logger()

# Requests wait for one of so many connections; one more listens.
CONNECTIONS = 8
_FAILURES = (RedisError, OSError, TimeoutError)


def redis_client(
    address: tuple[str, int],
    database: int,
    *,
    user: str | None,
    password: str | None,
    tls: bool,
    ca: str | None,
    timeout_s: float,
) -> Redis:
    """Make a client that connects when it is used, and repeats nothing by itself."""
    certificates: dict[str, Any] = {"ssl_ca_certs": ca} if tls else {}
    pool = BlockingConnectionPool(
        connection_class=SSLConnection if tls else Connection,
        max_connections=CONNECTIONS + 1,
        timeout=timeout_s,
        host=address[0],
        port=address[1],
        db=database,
        username=user,
        password=password,
        protocol=2,
        # Each request has a timeout of ours. The client's own is a wait_for, which in Python 3.11
        # forgets a cancel that comes at the same time as the answer.
        socket_timeout=None,
        socket_connect_timeout=timeout_s,
        # A request whose answer was lost may have been carried out: only its caller can know
        # whether to ask again.
        retry=Retry(NoBackoff(), 0),
        **certificates,
    )
    return Redis.from_pool(pool)


class RedisLedger:
    """A registry's server that is a Redis."""

    def __init__(self, client: Redis, place: str, prefix: str, options: RegistryOptions) -> None:
        self.place = place
        self.bell = Bell()
        self.lease_s = options.lease_s
        self._options = options
        self._client = client
        self._prefix = f"{{{prefix}}}"
        self._channel = f"{self._prefix}:rings"
        self._listener: asyncio.Task[None] | None = None
        # Numbers what seats are told: requests may overtake each other between connections.
        self._told = 0
        self._scripts = {
            text: client.register_script(text)
            for name, text in vars(scripts).items()
            if name.isupper() and not name.startswith("_")
        }

    def open(self) -> None:
        self._listener = asyncio.create_task(self._listen())

    async def forgets(self) -> str | None:
        """Why it may come back empty, if it may; raises ClusterError."""
        found: dict[str, Any] = await self._ask(self._client.info("persistence"))
        if found.get("aof_enabled"):
            return None
        return "this Redis has no append-only file: it may come back without what it knew"

    async def close(self) -> None:
        await stop(self._listener)
        await self._client.aclose()

    async def begin(self) -> str:
        session: bytes = await self._run(scripts.BEGIN, "", self._lease_ms)
        return session.decode()

    async def renew(self, session: str) -> bool:
        return bool(await self._run(scripts.RENEW, "", session, self._lease_ms))

    async def end(self, session: str) -> None:
        await self._run(scripts.END, "", session)

    async def enter(self, session: str, member: Member) -> Member | None:
        verdict, *found = await self._run(
            scripts.ENTER,
            "members",
            session,
            MEMBERS,
            member.name,
            member.incarnation,
            msgspec.json.encode(member),
        )
        self._still(verdict)
        return self._member(found[0]) if verdict == b"taken" else None

    async def withdraw(self, session: str, name: str) -> None:
        await self._run(scripts.WITHDRAW, "members", session, MEMBERS, name)

    async def members(self) -> MembersFound:
        entries, fresh_s = await self._entries("members")
        members = [self._member(entry) for _, entry in sorted(entries)]
        return MembersFound({member.name: member for member in members}, fresh_s)

    async def next_id(self, path: str) -> int:
        number: int = await self._ask(self._client.incr(self._key(f"sequence:{path}")))
        return number

    async def get(self, path: str, *, watch: bool = False) -> Versioned | None:
        key = self._key(f"value:{path}")
        value, version = await self._ask(self._client.hmget(key, ["d", "v"]))
        return None if version is None else Versioned(value, int(version))

    async def put(self, path: str, value: bytes, version: int | None) -> Versioned:
        expected = "" if version is None else version
        done, *found = await self._run(
            scripts.PUT, f"value:{path}", value_bell(path), expected, value
        )
        if not done:
            raise _conflict(path, found)
        return Versioned(value, int(found[0]))

    async def delete(self, path: str, version: int) -> None:
        done, *found = await self._run(scripts.DELETE, f"value:{path}", value_bell(path), version)
        if not done:
            raise _conflict(path, found)

    async def take(self, session: str, path: str, tag: str, holder: bytes) -> int:
        verdict, *found = await self._run(
            scripts.TAKE, f"lease:{path}", session, tag, holder, undone=tag
        )
        self._still(verdict)
        if verdict == b"held":
            raise Held(path, found[0])
        return int(found[0])

    async def free(self, session: str, path: str, tag: str) -> None:
        await self._run(scripts.FREE, f"lease:{path}", session, tag, undone=tag)

    async def sit(self, session: str, path: str, tag: str, value: bytes) -> int:
        verdict, *found = await self._run(
            scripts.SIT, f"row:{path}", session, seats_bell(path), tag, value, undone=tag
        )
        self._still(verdict)
        return int(found[0])

    async def tell(self, session: str, path: str, tag: str, value: bytes) -> None:
        self._told += 1
        verdict = await self._run(
            scripts.TELL, f"row:{path}", session, seats_bell(path), tag, self._told, value
        )
        self._still(verdict)

    async def rise(self, session: str, path: str, tag: str) -> None:
        await self._run(scripts.RISE, f"row:{path}", session, seats_bell(path), tag, undone=tag)

    async def seats(self, path: str) -> SeatsFound:
        entries, fresh_s = await self._entries(f"row:{path}")
        return SeatsFound(dict(sorted((int(number), value) for number, value in entries)), fresh_s)

    @property
    def _lease_ms(self) -> int:
        return int(self.lease_s * 1000)

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def _still(self, verdict: bytes) -> None:
        if verdict == b"over":
            raise SessionOver(f"{self.place}: the session is over")

    def _member(self, entry: bytes) -> Member:
        try:
            return msgspec.json.decode(entry, type=Member)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"{self.place}: an entry is no member: {error}") from error

    async def _entries(self, name: str) -> tuple[list[tuple[bytes, bytes]], float | None]:
        first_ms, flat = await self._run(scripts.ENTRIES, name)
        fresh_s = None if first_ms < 0 else first_ms / 1000
        return list(zip(flat[::2], flat[1::2], strict=True)), fresh_s

    async def _run(
        self, script: str, name: str, *arguments: str | bytes | int, undone: str | None = None
    ) -> Any:
        keys = [self._key("sessions"), self._key("number"), self._key(name)]
        if undone is not None:
            keys.append(self._key(f"undone:{arguments[0]!s}:{undone}"))
        return await self._ask(self._scripts[script](keys, [self._channel, *arguments]))

    async def _ask(self, request: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._options.timeout_s):
                return await request
        except _FAILURES as error:
            raise self._unreached(error) from error

    def _unreached(self, error: Exception) -> ClusterError:
        return ClusterError(f"{self.place}: {type(error).__name__} {error}".rstrip())

    async def _listen(self) -> None:
        """Ring the bell for what Redis tells, for ever; every failure is followed by a pause."""
        while True:
            listener = self._client.pubsub()
            try:
                await self._ask(listener.subscribe(self._channel))
                # Whatever happened while nobody listened.
                self.bell.ring_all()
                await self._hear(listener)
            except (*_FAILURES, ClusterError) as error:
                log.debug("redis does not tell of changes", reason=str(error))
            finally:
                with suppress(*_FAILURES):
                    await listener.aclose()  # type: ignore[no-untyped-call]
            await asyncio.sleep(min(self._options.poll_s, self.lease_s / 15))

    async def _hear(self, listener: PubSub) -> None:
        """Ring until the connection fails, or is silent even when it is spoken to."""
        asked = False
        while True:
            told = await listener.get_message(timeout=self._options.poll_s)
            if told is None:
                if asked:
                    raise TimeoutError("silence")
                await self._ask(listener.ping())
                asked = True
                continue
            asked = False
            if told["type"] == "message":
                path = told["data"].decode(errors="replace")
                self.bell.ring_all() if path == "*" else self.bell.ring(path)


def _conflict(path: str, found: list[Any]) -> Conflict:
    if len(found) < 2 or found[1] is None:
        return Conflict(path, None)
    return Conflict(path, Versioned(found[0], int(found[1])))
