"""The client without `await`."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Sequence
from typing import Any, Self

from chappe import client as asynchronous
from chappe.blocking.background import Background
from chappe.blocking.closing import Closing
from chappe.blocking.handler import Handler, Pool
from chappe.blocking.queueing import Queueing
from chappe.client import Attendance, ClientOptions, Message, Position, Published
from chappe.client.connection import OnNotice
from chappe.client.identity import Token
from chappe.errors import ConnectionClosed


class Client(Queueing, Closing):
    """One endpoint's connection to a hub; see `chappe.client.Client` for what each method does."""

    def __init__(self, background: Background, client: asynchronous.Client) -> None:
        self._background = background
        self._client = client
        self._closing = threading.Lock()
        self._closed = False
        self._pools: dict[str, Pool] = {}

    def send(self, to: str | Sequence[str], data: Any) -> str:
        """Send to one endpoint, or to each of a list; return the message's id."""
        return self._background.call(self._client.send(to, data))

    def publish(self, to: str, data: Any, *, reliable: bool = False) -> Published:
        """Publish to a topic or a room; return the message's id and how many nodes took it."""
        return self._background.call(self._client.publish(to, data, reliable=reliable))

    def post(self, to: str | Sequence[str], data: Any) -> None:
        """Send, or publish if `to` is a topic or a room, without an answer from the hub.

        When much waits to be sent this waits for room, rather than raise Overload.
        """
        self._background.call(self._post(to, data))

    def subscribe(
        self,
        topic: str,
        *,
        as_: str | None = None,
        recover: bool = True,
        since: Position | tuple[str, int] | None = None,
    ) -> bool:
        """Receive what is published to a topic, also after a reconnect."""
        return self._background.call(
            self._client.subscribe(topic, as_=as_, recover=recover, since=since)
        )

    def unsubscribe(self, topic: str, *, as_: str | None = None) -> None:
        """Receive no more of a topic, as oneself or as an avatar."""
        self._background.call(self._client.unsubscribe(topic, as_=as_))

    def join(self, room: str) -> None:
        """Receive what is published to a room, also after a reconnect."""
        self._background.call(self._client.join(room))

    def leave(self, room: str) -> None:
        """Receive no more of a room."""
        self._background.call(self._client.leave(room))

    def members(self, room: str, n: int = 0) -> Attendance:
        """Tell how many are in a room, and who they are if they are no more than `n`."""
        return self._background.call(self._client.members(room, n))

    def position(self, topic: str) -> Position | None:
        """The place of the last message taken from a topic, to be kept for `since`."""
        return self._background.call(self._position(topic))

    def add_avatar(self, avatar: str, user: str) -> None:
        """Give a user another address; for avatar managers."""
        self._background.call(self._client.add_avatar(avatar, user))

    def remove_avatar(self, avatar: str) -> None:
        """Take an address from its user; for avatar managers and for the user."""
        self._background.call(self._client.remove_avatar(avatar))

    def provide(self, service: str, handler: Handler, *, concurrency: int = 16) -> None:
        """Answer a service's requests with a function, which runs in threads of its own.

        At most `concurrency` run at a time. Closing the client waits for them for a moment; one
        that goes on for longer keeps its thread until it returns.
        """
        pool = Pool(handler, concurrency)
        try:
            self._background.call(
                self._client.provide(service, pool.answer, concurrency=concurrency)
            )
            self._pools[service] = pool
        finally:
            if self._pools.get(service) is not pool:
                pool.close()

    def unprovide(self, service: str) -> None:
        """Answer no more of a service's requests than were handed over already."""
        self._background.call(self._client.unprovide(service))
        # Its threads go with the last of them: nothing more is put into the pool.
        self._pools.pop(service, None)

    def request(
        self, service: str, data: Any, *, timeout_s: float | None = None, idempotent: bool = False
    ) -> Any:
        """Ask a service and return the data of its response."""
        return self._background.call(
            self._client.request(service, data, timeout_s=timeout_s, idempotent=idempotent)
        )

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
                for pool in self._pools.values():
                    pool.close()

    @property
    def address(self) -> str:
        """Who the hub takes this client for."""
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
    def rooms(self) -> tuple[str, ...]:
        """The rooms that were joined."""
        return self._client.rooms

    @property
    def dropped(self) -> int:
        """How many topic messages the hub dropped because this client read too slowly."""
        return self._client.dropped

    @property
    def reconnects(self) -> int:
        """How often the client came back."""
        return self._client.reconnects

    async def _position(self, topic: str) -> Position | None:
        return self._client.position(topic)

    async def _post(self, to: str | Sequence[str], data: Any) -> None:
        await self._client.drained()
        self._client.post(to, data)

    async def _receive(self, within_s: float | None) -> Message:
        # Timed inside the loop: a message that comes at the last moment is either returned or kept.
        async with asyncio.timeout(within_s):
            return await self._client.receive()


def connect(
    url: str | Sequence[str],
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

    background = Background()
    client: asynchronous.Client | None = None
    try:
        client = background.call(opened())
    finally:
        if client is None:
            background.stop()
    return Client(background, client)
