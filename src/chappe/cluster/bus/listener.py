"""The ear of a broker: a connection that listens on its channel, and is made anew when it breaks.

Whether it hears anything is found out by asking: a connection whose other end is gone without a
word is noticed when it does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog
from redis.exceptions import RedisError, ResponseError

from chappe.backoff import Backoff
from chappe.redis.calls import Failure
from chappe.redis.servers import BROKEN, Servers

log = structlog.get_logger()

_FAILURES = (RedisError, Failure, *BROKEN)


class Listener:
    """Listens on one channel for as long as it is not stopped."""

    def __init__(
        self,
        servers: Servers,
        channel: str,
        *,
        sharded: Callable[[], Awaitable[bool]],
        timeout_s: float,
        backoff: Backoff,
        heard: Callable[[bytes], None],
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._servers = servers
        self._channel = channel
        self._sharded = sharded
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._heard = heard
        self._changed = changed
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self.up = False

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            connection: Any = None
            try:
                word = "SSUBSCRIBE" if await self._sharded() else "SUBSCRIBE"
                async with asyncio.timeout(self._timeout_s):
                    connection = await self._servers.connection(self._channel)
                    await self._subscribe(connection, word)
                self._turn(up=True)
                self._backoff.reset()
                await self._read(connection)
            except _FAILURES as error:
                if isinstance(error, ResponseError):
                    self._servers.moved()
                self._failed(f"{error}" or "no answer in time")
            except Exception:  # to hear again is better than to hear nothing any more
                log.exception("bus.listener.failed")
                self._failed("what was heard could not be taken")
            finally:
                self._turn(up=False)
                if connection is not None:
                    with suppress(*_FAILURES):
                        await connection.disconnect(nowait=True)
            await asyncio.sleep(self._backoff.next_s())

    def _turn(self, *, up: bool) -> None:
        if up != self.up:
            self.up = up
            self._changed()

    async def _subscribe(self, connection: Any, word: str) -> None:
        await connection.send_command(word, self._channel)
        answer = await connection.read_response()
        if not isinstance(answer, list) or answer[0].lower() != word.lower().encode():
            raise ResponseError("the channel cannot be listened on")

    async def _read(self, connection: Any) -> None:
        asked = False
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await connection.read_response(disconnect_on_error=False)
            except TimeoutError:
                if asked:
                    raise
                asked = True
                await connection.send_command("PING")
                continue
            asked = False
            if isinstance(answer, list) and answer[0] in (b"message", b"smessage"):
                self._heard(answer[2])
            elif isinstance(answer, list) and answer[0] == b"sunsubscribe":
                # The slot of the channel has moved to another server.
                raise ResponseError("the channel has moved")
