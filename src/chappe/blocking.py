"""The blocking face of the client: the same methods without `await`.

    with chappe.blocking.connect("ws://127.0.0.1:7400/ws", as_="user:alice") as alice:
        alice.send("user:bob", "hello")
        for message in alice:
            print(message.sender, message.data)

One background thread with an event loop of its own serves a client, which any number of threads may
use at once. `on_notice` and a token function are called in that thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ssl
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from chappe import client as asynchronous
from chappe.client.client import Published
from chappe.client.connection import OnNotice
from chappe.client.identity import Token
from chappe.client.options import ClientOptions
from chappe.errors import CloseCode, ConnectionClosed
from chappe.message import Message

T = TypeVar("T")

# How long calls of other threads may take to learn that the client was closed.
_FAREWELL_S = 1.0


class _Background:
    """An event loop in a thread, which runs until it is stopped."""

    def __init__(self) -> None:
        self._started: concurrent.futures.Future[asyncio.AbstractEventLoop] = (
            concurrent.futures.Future()
        )
        # A daemon: a client that was never closed does not keep its program from ending.
        self._thread = threading.Thread(target=self._run, name="chappe-client", daemon=True)
        self._thread.start()
        self._loop = self._started.result()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop and wait for it; interrupting the wait cancels it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise _closed() from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        finally:
            if not future.done():
                future.cancel()

    def stop(self) -> None:
        """End the loop and its thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._started.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_FAREWELL_S)


def _closed() -> ConnectionClosed:
    return ConnectionClosed(CloseCode.NORMAL, "closed by this client")


class Client:
    """One endpoint's connection to a hub; see `chappe.client.Client` for what each method does."""

    def __init__(self, background: _Background, client: asynchronous.Client) -> None:
        self._background = background
        self._client = client
        self._closing = threading.Lock()
        self._closed = False

    def send(self, to: str | Sequence[str], data: Any) -> str:
        """Send to one endpoint, or to each of a list; return the message's id."""
        return self._background.call(self._client.send(to, data))

    def publish(self, to: str, data: Any) -> Published:
        """Publish to a topic; return the message's id and how many nodes took it."""
        return self._background.call(self._client.publish(to, data))

    def post(self, to: str | Sequence[str], data: Any) -> None:
        """Send, or publish if `to` is a topic or a room, without an answer from the hub.

        When much waits to be sent this waits for room, rather than raise Overload.
        """
        self._background.call(self._post(to, data))

    def subscribe(self, topic: str) -> None:
        """Receive what is published to a topic, also after a reconnect."""
        self._background.call(self._client.subscribe(topic))

    def unsubscribe(self, topic: str) -> None:
        """Receive no more of a topic."""
        self._background.call(self._client.unsubscribe(topic))

    def presence(self, address: str) -> bool:
        """Tell whether an endpoint is online."""
        return self._background.call(self._client.presence(address))

    def receive(self, timeout: float | None = None) -> Message:
        """Take the next message, waiting for it at most `timeout` seconds.

        Raises TimeoutError when none came, ConnectionClosed when there are no more.
        """
        return self._background.call(self._receive(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        try:
            return self.receive()
        except ConnectionClosed:
            if self._closed:
                raise StopIteration from None
            raise

    def close(self) -> None:
        """Write what is queued, say goodbye and end; other threads' calls end, too."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            try:
                self._background.call(self._client.close())
            finally:
                self._background.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Who this client said it is."""
        return self._client.address

    @property
    def session(self) -> str:
        """The id of the current session, or of the last one."""
        return self._client.session

    @property
    def connected(self) -> bool:
        """Whether requests go out at once."""
        return self._client.connected

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The topics that are subscribed."""
        return self._client.subscriptions

    @property
    def dropped(self) -> int:
        """How many topic messages the hub dropped because this client read too slowly."""
        return self._client.dropped

    @property
    def reconnects(self) -> int:
        """How often the client came back."""
        return self._client.reconnects

    async def _post(self, to: str | Sequence[str], data: Any) -> None:
        await self._client.drained()
        self._client.post(to, data)

    async def _receive(self, within_s: float | None) -> Message:
        # Timed inside the loop: a message that comes at the last moment is either returned or kept.
        async with asyncio.timeout(within_s):
            return await self._client.receive()


def connect(
    url: str,
    *,
    as_: str = "",
    token: Token = None,
    app: str | None = None,
    tls: ssl.SSLContext | None = None,
    options: ClientOptions | None = None,
    on_notice: OnNotice | None = None,
) -> Client:
    """Connect to a hub and return a client, also usable in a `with` statement.

    Takes and raises what `chappe.connect` does.
    """
    connecting = asynchronous.connect(
        url, as_=as_, token=token, app=app, tls=tls, options=options, on_notice=on_notice
    )

    async def opened() -> asynchronous.Client:
        return await connecting

    background = _Background()
    client: asynchronous.Client | None = None
    try:
        client = background.call(opened())
    finally:
        if client is None:
            background.stop()
    return Client(background, client)
