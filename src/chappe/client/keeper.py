"""The keeper: comes back when a connection is lost, until there is a reason to give up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chappe.backoff import Backoff
from chappe.client.conversation import Conversation
from chappe.client.departure import Departure
from chappe.client.identity import Identity
from chappe.client.notice import Disconnected, Reconnected
from chappe.errors import CloseCode, ConnectionClosed, Overload, RequestError

if TYPE_CHECKING:
    from chappe.client.connection import Connection


class Keeper:
    """The one task of a client."""

    def __init__(
        self,
        connection: Connection,
        conversation: Conversation,
        departure: Departure,
        backoff: Backoff,
        identity: Identity,
    ) -> None:
        self._connection = connection
        self._conversation = conversation
        self._departure = departure
        self._backoff = backoff
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self.closing = False

    def start(self) -> None:
        """Keep a connection that has just been made."""
        self._task = self._loop.create_task(self._keep())
        self._task.add_done_callback(self._kept)

    def cancel(self) -> None:
        """Keep it no longer."""
        if self._task is not None:
            self._task.cancel()

    async def wait(self) -> None:
        """Wait until nothing is done any more."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _keep(self) -> None:
        """Live through one connection after the other, until one says not to come back."""
        connection = self._connection
        while True:
            since = self._loop.time()
            closed = await connection.gone()
            if self.closing:
                return
            left = self._departure.under_way
            connection.detach()
            connection.tell(Disconnected(closed.code, closed.reason))
            if self._loop.time() - since >= self._conversation.heartbeat_s:
                self._backoff.reset()
            if not self._may_return(closed) and not (left and closed.code == CloseCode.NORMAL):
                connection.end(closed)
                return
            # Leaving has had its delay already.
            wait_s = self._departure.at - self._loop.time()
            delay_s = 0.0 if left else max(self._backoff.next_s(), wait_s)
            if not await self._return(delay_s):
                return
            connection.reconnects += 1
            connection.tell(Reconnected(self._conversation.session))

    async def _return(self, delay_s: float) -> bool:
        """Try to connect until it works, or there is a reason to give up."""
        while True:
            await asyncio.sleep(delay_s)
            # A link that may not be read could not bring the reply to hello.
            await self._connection.inbox.room()
            try:
                await self._connection.establish()
            except OSError:
                pass
            except ConnectionClosed as closed:
                if not self._may_return(closed):
                    self._connection.end(closed)
                    return False
            except RequestError as error:
                if not isinstance(error, Overload):
                    self._connection.end(ConnectionClosed(CloseCode.UNAUTHORIZED, error.reason))
                    return False
            else:
                return True
            delay_s = self._backoff.next_s()

    def _may_return(self, closed: ConnectionClosed) -> bool:
        if closed.code == CloseCode.TOKEN_EXPIRED:
            return self._identity.renewable
        return closed.reconnect

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        """What the user's token function raised ends the client, with that as its cause."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            closed = ConnectionClosed(CloseCode.INTERNAL_ERROR, f"this client failed: {error!r}")
            closed.__cause__ = error
            self._connection.end(closed)
