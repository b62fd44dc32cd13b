"""The servers of a Redis: one, the master that Sentinels name, or the many of a Cluster.

Several commands run on one connection, in order, and are sent together: WAIT speaks of what its own
connection wrote. Nothing is repeated here: only who asked can know whether it may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from redis.asyncio import (
    Connection,
    ConnectionPool,
    RedisCluster,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisClusterException,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from chappe.redis.place import Place

# Requests that are under way at once; what is more waits for a connection.
CONNECTIONS = 16
_REDIRECTS = 4

Command = Sequence[str | bytes | int]
# What breaks a connection, or a time limit.
BROKEN = (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)


class Servers(Protocol):
    """Where the commands about a key are carried out."""

    async def run(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Carry out commands where a key lives; an error that is answered stands in its place.

        Raises RedisError or OSError when there is no answer.
        """
        ...

    async def each(self, commands: Sequence[Command]) -> list[list[Any]]:
        """Carry out commands on every server that takes writes."""
        ...

    async def connection(self, key: str) -> Any:
        """A connection of its own to where a key, or a channel, lives: the caller's to hang up."""
        ...

    def moved(self) -> None:
        """Something was not where it was looked for: look where it is before the next time."""
        ...

    def all_away(self, error: BaseException) -> bool:
        """Whether an error means that nothing can be written, and not only to some keys."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


def open_servers(place: Place, timeout_s: float) -> Servers:
    """Servers that are connected to when they are used."""
    login = {"username": place.user, "password": place.password}
    settings: dict[str, Any] = {
        "protocol": 2,
        # What Redis gave is what it gets, whatever strangers wrote there.
        "encoding_errors": "surrogateescape",
        # Each request has a limit of its caller's. The client's own is a wait_for, which in Python
        # 3.11 forgets a cancel that comes at the same time as the answer.
        "socket_timeout": None,
        "socket_connect_timeout": timeout_s,
        **place.ssl,
    }
    if place.kind == "cluster":
        return ClusterServers(place, {**settings, **login})
    settings["retry"] = Retry(NoBackoff(), 0)
    if place.kind == "sentinel":
        return SentinelServers(place, settings, login)
    settings |= {**login, "db": place.database}
    if place.kind == "unix":
        kind: type[Any] = UnixDomainSocketConnection
        settings["path"] = place.path
        del settings["socket_connect_timeout"]
    else:
        kind = SSLConnection if place.tls else Connection
        settings["host"], settings["port"] = place.hosts[0]
    return OneServer(ConnectionPool(connection_class=kind, max_connections=CONNECTIONS, **settings))


class OneServer:
    """A server, whichever it is at the moment."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def run(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Carry out commands."""
        async with self._free:
            connection = await self._pool.get_connection()
            try:
                return await _talk(connection, commands)
            finally:
                await self._pool.release(connection)

    async def each(self, commands: Sequence[Command]) -> list[list[Any]]:
        """Carry out commands on the server."""
        return [await self.run("", commands)]

    async def connection(self, key: str) -> Any:
        """A connection that is not among the shared ones."""
        connection = self._pool.make_connection()
        await connection.connect()
        return connection

    def moved(self) -> None:
        """There is one only."""

    def all_away(self, error: BaseException) -> bool:
        """There is one only."""
        return True

    async def close(self) -> None:
        """Hang up."""
        await self._pool.disconnect()


class SentinelServers(OneServer):
    """The server that Sentinels say is the master."""

    def __init__(self, place: Place, settings: dict[str, Any], login: dict[str, Any]) -> None:
        self._sentinel = Sentinel(  # type: ignore[no-untyped-call]
            place.hosts,
            sentinel_kwargs={
                **settings,
                "ssl": place.tls,
                "username": place.sentinel_user,
                "password": place.sentinel_password,
                # One that hangs must not use up the time in which another could answer.
                "socket_timeout": settings["socket_connect_timeout"] / (2 * len(place.hosts)),
            },
        )
        pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
            place.path,
            self._sentinel,
            max_connections=CONNECTIONS,
            db=place.database,
            ssl=place.tls,
            **settings,
            **login,
        )
        super().__init__(pool)

    async def close(self) -> None:
        """Hang up."""
        await super().close()
        await self._sentinel.aclose()


class ClusterServers:
    """The servers of a Redis Cluster, each with some of the keys."""

    def __init__(self, place: Place, settings: dict[str, Any]) -> None:
        self._client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in place.hosts],
            max_connections=CONNECTIONS,
            ssl=place.tls,
            **settings,
        )
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._looking = asyncio.Lock()
        self._stale = True

    async def run(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Carry out commands where a key lives."""
        async with self._free:
            await self._look()
            node: Any = self._client.get_node_from_key(key)
            for _ in range(_REDIRECTS):
                if node is None:
                    break
                answers = await self._on(node, commands)
                redirect = next((one for one in answers if isinstance(one, AskError)), None)
                if redirect is None:
                    self._stale |= any(isinstance(one, ClusterDownError) for one in answers)
                    return answers
                if not isinstance(redirect, MovedError):
                    return await self._ask(redirect, commands)
                await self._client.nodes_manager.move_slot(redirect)
                node = self._client.get_node_from_key(key)
            self._stale = True
            raise ClusterDownError("no server of the cluster has that key")

    async def _ask(self, redirect: AskError, commands: Sequence[Command]) -> list[Any]:
        """Until a slot has moved, its new server answers only who says that it was sent there."""
        node = self._client.get_node(redirect.host, redirect.port)
        if node is None:
            self._stale = True
            raise ClusterDownError("a key moves to a server that nobody knows yet")
        asked = [part for command in commands for part in (("ASKING",), command)]
        return (await self._on(node, asked))[1::2]

    async def each(self, commands: Sequence[Command]) -> list[list[Any]]:
        """Carry out commands on every server that takes writes."""
        async with self._free:
            await self._look()
            return [await self._on(node, commands) for node in self._client.get_primaries()]

    async def connection(self, key: str) -> Any:
        """A connection to the server that has a key."""
        await self._look()
        node: Any = self._client.get_node_from_key(key)
        if node is None:
            self._stale = True
            raise ClusterDownError("no server of the cluster has that key")
        connection = node.connection_class(**node.connection_kwargs)
        try:
            await connection.connect()
        except (*BROKEN, asyncio.CancelledError):
            self._stale = True
            raise
        return connection

    def moved(self) -> None:
        """Ask the servers who has which keys."""
        self._stale = True

    def all_away(self, error: BaseException) -> bool:
        """Whether it is the cluster that is down, and not one of its servers."""
        return isinstance(error, (ClusterDownError, RedisClusterException))

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()

    async def _look(self) -> None:
        """Find out who has which keys, if that may have changed."""
        if self._stale:
            async with self._looking:
                if self._stale:
                    await self._client.initialize()
                    await self._client.nodes_manager.initialize()
                    self._stale = False

    async def _on(self, node: Any, commands: Sequence[Command]) -> list[Any]:
        connection = node.acquire_connection()
        try:
            await node.disconnect_if_needed(connection)
            return await _talk(connection, commands)
        except (*BROKEN, asyncio.CancelledError):
            self._stale = True
            raise
        finally:
            node.release(connection)


async def _talk(connection: Any, commands: Sequence[Command]) -> list[Any]:
    await connection.send_packed_command(connection.pack_commands(commands))
    answers: list[Any] = []
    for _ in commands:
        try:
            answers.append(await connection.read_response())
        except ResponseError as error:
            answers.append(error)
    return answers
