"""ZooKeeper through kazoo, whose threads never touch the loop but to wake it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from chappe.errors import ClusterError

# How long a look for a server may pause before the next.
RECONNECT_S_MAX = 1.0
# Answers, as opposed to their absence.
DEFINITE = (BadVersionError, NodeExistsError, NoNodeError)


class ZooKeeperClient:
    """A connection to ZooKeeper, to be used from one event loop."""

    def __init__(
        self, hosts: str, place: str, login: str | None, session_s: float, timeout_s: float
    ) -> None:
        self._place = place
        self._timeout_s = timeout_s
        handler = SequentialThreadingHandler()
        retry = KazooRetry(
            max_tries=-1,
            delay=0.05,
            backoff=2,
            max_delay=RECONNECT_S_MAX,
            sleep_func=handler.sleep_func,
        )
        self._kazoo = KazooClient(
            hosts=hosts,
            timeout=session_s,
            handler=handler,
            connection_retry=retry,
            auth_data=[("digest", login)] if login is not None else None,
            default_acl=[make_digest_acl(*login.split(":", 1), all=True)] if login else None,
        )
        # What the server granted, which may be less than was asked for. Kazoo does not tell; its
        # connection reports two thirds of it, in ms, as the time to wait for a read.
        self.session_s = session_s
        connect = self._kazoo._connection._connect

        def connect_and_note(host: str, address: str, port: int) -> Any:
            timeouts = connect(host, address, port)
            self.session_s = timeouts[0] * 3 / 2 / 1000
            return timeouts

        self._kazoo._connection._connect = connect_and_note
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connected = asyncio.Event()

    def open(self, changed: Callable[[bool], None]) -> None:
        """Begin to connect; `changed` is called with each loss and each return of the connection.

        Call it once.
        """
        self._loop = asyncio.get_running_loop()

        def listener(state: str) -> None:
            self.wake(heard, state == "CONNECTED")

        def heard(connected: bool) -> None:
            if connected:
                self._connected.set()
            else:
                self._connected.clear()
            changed(connected)

        self._kazoo.add_listener(listener)
        # Not blocking: nothing runs that it would have to stop first.
        self._kazoo.start_async()

    async def close(self) -> None:
        """End the ZooKeeper session, off the loop: kazoo waits for its threads."""
        assert self._loop is not None
        await self._loop.run_in_executor(None, self._stop)

    @property
    def session(self) -> int | None:
        """The id of ZooKeeper's session, None while there is no connection."""
        identity = self._kazoo.client_id
        return None if identity is None else int(identity[0])

    def wake(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call something on the loop, from any thread."""
        assert self._loop is not None
        # A loop that ended without closing us has nobody left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    async def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call one of kazoo's `..._async` methods.

        Raises one of DEFINITE when ZooKeeper refuses it, ClusterError for all else.
        """
        return await self._answer(getattr(self._kazoo, f"{method}_async"), *arguments, **options)

    async def transact(self, *steps: tuple[Any, ...]) -> Exception | None:
        """Do all of some steps, or none; gives what stood in the way, if anything did."""
        transaction = self._kazoo.transaction()
        for name, *arguments in steps:
            getattr(transaction, name)(*arguments)
        results = await self._answer(transaction.commit_async)
        failures = [result for result in results if isinstance(result, Exception)]
        # All steps that did not fail themselves are said to be rolled back.
        own = [failure for failure in failures if not isinstance(failure, RolledBackError)]
        return next(iter(own or failures), None)

    async def _answer(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connected.wait()
                return await self._result(call(*arguments, **options))
        except DEFINITE:
            raise
        except KazooException as error:
            reason = f"{type(error).__name__} {error}".rstrip()
            raise ClusterError(f"{self._place}: {reason}") from error
        except TimeoutError as error:
            raise ClusterError(f"{self._place}: no answer in {self._timeout_s:g} s") from error

    async def _result(self, pending: Any) -> Any:
        future = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if future.done():
                return
            if pending.exception is not None:
                future.set_exception(pending.exception)
            else:
                future.set_result(pending.value)

        pending.rawlink(lambda _: self.wake(settle))
        return await future

    def _stop(self) -> None:
        with suppress(KazooException, KazooTimeoutError):
            self._kazoo.stop()
        self._kazoo.close()
