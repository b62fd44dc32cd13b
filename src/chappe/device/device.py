"""A device: gets notes, whatever becomes of its connections."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom
from types import TracebackType

from chappe.backoff import Backoff
from chappe.clock import Clock, SystemClock
from chappe.device.acks import Acks
from chappe.device.cache import Cache, FileCache, NoCache
from chappe.device.connection import Connection
from chappe.device.courier import Courier, ask, list_topics
from chappe.device.ending import Closed, DeviceEnded, Replaced
from chappe.device.grant import Grant, GrantSource
from chappe.device.granting import Granting
from chappe.device.inbox import Inbox
from chappe.device.keeper import Keeper, open_socket
from chappe.device.note import Note, Retraction
from chappe.device.options import DeviceOptions
from chappe.device.web import HttpWeb, Web
from chappe.errors import ChappeError, ConfigError, FatalRequestError, Forbidden, RequestError
from chappe.wire.push import Command, Subscribe, Unsubscribe, parts
from chappe.wire.pushcipher import PUBLIC_BYTES


class Device:
    """Gets the notes of an app on a device, and tells what becomes of them.

        async with Device(app=KEY, device=ID, web="http://host:7401", cache=path) as device:
            await device.subscribe("news")
            async for note in device:
                ...

    It connects in the background, and comes back by itself: offline is no error (P15). Iterating
    gives each `Note` once, and a `Retraction` when one is taken back; it ends when the device was
    closed or replaced, and raises UntrustedComet when somebody else than the pinned identity is in
    the comet's place. A note that was given counts as shown: it is acknowledged, and not given
    again, even by another process with the same cache.

    Grants come from `web`, or from `grants`, a function that asks the app's own server. The
    identity that came with the first is pinned, unless `identity` says which it is. `cache` is a
    file. Raises ConfigError for what makes no sense.
    """

    def __init__(
        self,
        *,
        app: str,
        device: str,
        web: str | Web | None = None,
        cache: Path | None = None,
        grants: GrantSource | None = None,
        identity: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        options: DeviceOptions | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self._options = options = options or DeviceOptions()
        for name, value in (("app", app), ("device", device)):
            if not value:
                raise ConfigError(f"{name}: must not be empty")
        if web is None and grants is None:
            raise ConfigError("web: where grants come from, unless there are `grants`")
        if identity is not None and len(identity) != PUBLIC_BYTES:
            raise ConfigError(f"identity: {len(identity)} bytes, {PUBLIC_BYTES} wanted")
        self._web = HttpWeb(web, options.answer_timeout_s) if isinstance(web, str) else web
        self._cache: Cache = (
            FileCache(cache, app=app, device=device) if cache is not None else NoCache()
        )
        self._granting = Granting(
            grants or functools.partial(self._ask_web, app, device),
            self._cache,
            clock or SystemClock(),
            identity=identity,
            renew_ahead_ms=int(options.renew_ahead_s * 1000),
        )
        self._tls = tls
        # Keys come from it, too.
        self._rng = rng or SystemRandom()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Device:
        """Begin to connect; this does not wait for it."""
        assert self._task is None, "a device is entered once"
        options = self._options
        inbox = Inbox(self._cache, shown_max=options.shown_max, bytes_max=options.inbox_bytes_max)
        self._courier = Courier(inbox, Acks(options.shown_max))
        keeper = Keeper(
            self._granting,
            self._courier,
            options,
            open=self._open,
            entropy=self._rng.randbytes,
            backoff=self._backoff(),
        )
        self._task = asyncio.create_task(keeper.keep())
        self._task.add_done_callback(self._kept)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Device:
        return self

    async def __anext__(self) -> Note | Retraction:
        """The next note or retraction; cancelling loses nothing."""
        try:
            return await self._courier.next()
        except (Closed, Replaced):
            raise StopAsyncIteration from None

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, with a key."""
        return self._courier.connected

    @property
    def ended(self) -> ChappeError | None:
        """Why the device is over: Closed, Replaced, UntrustedComet, or what the web refused."""
        return self._courier.ended

    async def wait_connected(self) -> None:
        """Wait for a connection; raises what ended the device."""
        await self._courier.connection()

    async def subscribe(self, *topics: str) -> None:
        """Get what is sent to these topics from now on, here and after a restart.

        Waits for a connection. Raises BadRequest for a topic that cannot be, Overload when there
        was no answer in time, Replaced and the like when the device is over.
        """
        await self._ask_all(parts(Subscribe(topics)))

    async def unsubscribe(self, *topics: str) -> None:
        """Get nothing of these topics any more; raises as `subscribe` does."""
        await self._ask_all(parts(Unsubscribe(topics)))

    async def topics(self) -> tuple[str, ...]:
        """What this client is subscribed to; raises as `subscribe` does."""
        timeout_s = self._options.request_timeout_s
        return await self._courier.insist(list_topics, self._backoff(), timeout_s)

    async def click(self, *notes: Note) -> None:
        """Tell that the user clicked notes; for each, the first time counts.

        Raises Unreachable or Overload when the web did not take it, FatalRequestError when it never
        will.
        """
        if self._web is None:
            raise ConfigError("web: clicks are told to it, and there is none")
        backoff = self._backoff()
        loop = asyncio.get_running_loop()
        until = loop.time() + self._options.request_timeout_s
        renewed = False
        while True:
            try:
                grant = await self._granting.current()
                await self._web.click(grant.client, grant.token, notes)
            except FatalRequestError as refusal:
                # The token may have been revoked while there was no connection to tell of it.
                if renewed or not isinstance(refusal, Forbidden):
                    raise
                renewed = True
                await self._granting.renew()
            except RequestError:
                delay_s = backoff.next_s()
                if loop.time() + delay_s >= until:
                    raise
                await asyncio.sleep(delay_s)
            else:
                return

    async def close(self) -> None:
        """Let acknowledgements leave, and end; iterating ends."""
        if self._task is None or self._task.done():
            return
        await self._courier.finish(self._options.close_timeout_s)
        self._courier.end(Closed("the device was closed"))
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _ask_all(self, commands: list[Command]) -> None:
        for command in commands:
            attempt = functools.partial(ask, command=command)
            await self._courier.insist(attempt, self._backoff(), self._options.request_timeout_s)

    async def _ask_web(self, app: str, device: str) -> Grant:
        assert self._web is not None
        return await self._web.grant(app, device)

    async def _open(
        self, make: Callable[[], Connection], host: str, port: int, secure: bool
    ) -> Connection:
        if secure and self._tls is None:
            self._tls = ssl.create_default_context()
        return await open_socket(make, host, port, self._tls if secure else None)

    def _backoff(self) -> Backoff:
        return Backoff(self._options.backoff_first_s, self._options.backoff_max_s, self._rng)

    def _kept(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._courier.end(Closed("the device was closed"))
        elif isinstance(error := task.exception(), ChappeError):
            self._courier.end(error)
        else:
            failed = DeviceEnded(f"this device failed: {error!r}")
            failed.__cause__ = error
            self._courier.end(failed)
