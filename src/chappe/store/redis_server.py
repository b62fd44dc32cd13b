"""A Redis server as its users speak to it: in batches, and within a limit of time.

`run` sends commands and scripts together, in one round trip, and repeats nothing that may have been
carried out; `read` is for what may be asked twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from chappe.errors import StorageError

CONNECTIONS_MAX = 8
TIMEOUT_S = 5.0

Command = Sequence[str | bytes | int]
T = TypeVar("T")


class Script:
    """A script in Lua, known to servers by its digest."""

    def __init__(self, *parts: str) -> None:
        self.text = "\n".join(parts)
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        _scripts[self.sha] = self

    def call(self, keys: Sequence[str | bytes], arguments: Sequence[str | bytes | int]) -> Command:
        """The command that runs it."""
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


# By digest: what a server that was restarted is told again. There are as many as in the source.
_scripts: dict[str, Script] = {}


class _Broken(StorageError):
    """The connection broke."""


class RedisServer:
    """A server; connects when it is first used, and again by itself.

    `url` may hold a password, `shown` is what errors say instead.
    """

    def __init__(self, url: str, shown: str, timeout_s: float = TIMEOUT_S) -> None:
        self.shown = shown
        self._timeout_s = timeout_s
        self._closed = False
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            timeout=timeout_s,
            # Each request has a limit of ours. The client's own is a wait_for, which in Python 3.11
            # may lose a cancellation that comes with the answer.
            socket_timeout=None,
            socket_connect_timeout=timeout_s,
            protocol=2,
            # A swap that was carried out must not be tried again: it would say that it was not.
            retry=Retry(NoBackoff(), 0),
        )
        self.redis: Any = Redis.from_pool(pool)

    async def run(self, commands: Sequence[Command], *, whole: bool = False) -> list[Any]:
        """Carry out commands, sent together; with `whole`, nobody else's come between them.

        Raises StorageError for the first that failed; the others have been carried out.
        """
        return await self.once(lambda: self._run(commands, whole)) if commands else []

    async def read(self, commands: Sequence[Command], *, whole: bool = False) -> list[Any]:
        """Carry out commands that change nothing: once more when the connection broke."""
        return await self.again(lambda: self._run(commands, whole)) if commands else []

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do what may be done twice: once more when the connection broke under it."""
        try:
            return await self.once(call)
        except _Broken:
            return await self.once(call)

    async def once(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do something within the limit of time; raises StorageError."""
        if self._closed:
            raise StorageError(f"{self.shown}: closed")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call()
        except TimeoutError:
            raise StorageError(f"{self.shown}: no answer in time") from None
        except RedisConnectionError as error:
            raise _Broken(f"{self.shown}: {error}") from None
        except (RedisError, OSError, UnicodeError) as error:
            # Of a transaction, the error quotes the command, keys and values and all.
            said = str(error).rpartition(" of pipeline caused error: ")[2]
            raise StorageError(f"{self.shown}: {said}") from None

    async def close(self) -> None:
        """Let go of the connections."""
        self._closed = True
        await self.redis.aclose()
        await self.redis.connection_pool.disconnect()

    async def _run(self, commands: Sequence[Command], whole: bool) -> list[Any]:
        answers = await self._send(commands, whole)
        unknown = [at for at, one in enumerate(answers) if isinstance(one, NoScriptError)]
        if unknown:
            known = {str(commands[at][1]) for at in unknown}
            await self._send([("SCRIPT LOAD", _scripts[sha].text) for sha in known], False)
            again = await self._send([commands[at] for at in unknown], whole)
            for at, answer in zip(unknown, again, strict=True):
                answers[at] = answer
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer
        return answers

    async def _send(self, commands: Sequence[Command], whole: bool) -> list[Any]:
        async with self.redis.pipeline(transaction=whole) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
            return answers
