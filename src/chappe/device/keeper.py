"""The keeper: connects, and comes back whenever a connection is lost, quietly (P15).

what ends a connection               then
-----------------------------------  ------------------------------------------------------
network, timeout, garbage, error 3,  come back after a while; from the second failure on,
error 4, an unknown error            ask the web for another comet
error 0: the token expired           get a fresh grant, come back
error 1: no such client              likewise: the web makes one
error 2: replaced                    end: whoever replaced it gets the notes
a comet that proves nothing          end, loudly: somebody is between
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from chappe.backoff import Backoff
from chappe.device.connection import Connection, Lost, Over, Owner
from chappe.device.ending import Replaced
from chappe.device.grant import Grant, comet_address
from chappe.device.granting import Granting
from chappe.device.options import DeviceOptions
from chappe.device.session import Ended, Session
from chappe.errors import FatalRequestError, RequestError
from chappe.wire.push import Heartbeat, PushError
from chappe.wire.pushcipher import UntrustedComet

# Opens a connection to (host, port, with TLS or without): the loop's own, or a simulated one.
Open = Callable[[Callable[[], Connection], str, int, bool], Awaitable[Connection]]


class Keeper:
    """Lives through one connection after the other."""

    def __init__(
        self,
        granting: Granting,
        owner: Owner,
        options: DeviceOptions,
        *,
        open: Open,
        entropy: Callable[[int], bytes],
        backoff: Backoff,
    ) -> None:
        self._granting = granting
        self._owner = owner
        self._options = options
        self._open = open
        self._entropy = entropy
        self._backoff = backoff

    async def keep(self) -> None:
        """Keep connected until there is a reason to give up, and raise that.

        Raises Replaced, UntrustedComet; FatalRequestError if the web refuses a device that it never
        knew.
        """
        while True:
            try:
                grant = await self._granting.current()
                self._judge(await self._live(grant), grant)
            except (OSError, RequestError) as error:
                if isinstance(error, FatalRequestError) and self._granting.maybe_grant is None:
                    raise
            await asyncio.sleep(self._backoff.next_s())

    async def _live(self, grant: Grant) -> Over:
        """Live through one connection; why it is over. Raises OSError if there was none."""
        session = Session(
            client=grant.client,
            token=grant.token,
            identity=grant.identity,
            private=self._entropy(32),
        )
        # It counts as a failure until a key is agreed.
        self._granting.failures += 1
        host, port, secure = comet_address(grant.comet)
        try:
            async with asyncio.timeout(self._options.connect_timeout_s) as limit:
                connection = await self._open(
                    lambda: Connection(session, self._owner), host, port, secure
                )
                try:
                    return await self._stay(connection, limit)
                finally:
                    await connection.close()
        except TimeoutError:
            raise Lost("the comet took too long") from None

    async def _stay(self, connection: Connection, limit: asyncio.Timeout) -> Over:
        """Wait for the key within a limit of time, then beat until the connection is over."""
        await asyncio.wait((connection.over, connection.keyed), return_when=asyncio.FIRST_COMPLETED)
        if connection.over.done():
            return connection.over.result()
        limit.reschedule(None)
        self._granting.failures = 0
        loop = asyncio.get_running_loop()
        steady = loop.call_later(self._options.steady_s, self._backoff.reset)
        beating = asyncio.create_task(self._beat(connection))
        try:
            await asyncio.wait((connection.over, beating), return_when=asyncio.FIRST_COMPLETED)
            if beating.done():
                beating.result()
            return await connection.over
        finally:
            steady.cancel()
            beating.cancel()
            await asyncio.wait((beating,))

    async def _beat(self, connection: Connection) -> None:
        """Beat until no answer comes, and end the connection; raises UntrustedComet, as renewing
        may."""
        while True:
            await asyncio.sleep(self._options.heartbeat_s)
            await self._granting.renew_stale()
            try:
                async with asyncio.timeout(self._options.answer_timeout_s):
                    await connection.request(Heartbeat())
            except TimeoutError:
                # What is not read cannot be heard: then the user is slow, not the comet.
                if connection.reading:
                    connection.abort("the comet does not answer")
                    return
            except Lost as lost:
                connection.abort(str(lost))
                return

    def _judge(self, over: Over, grant: Grant) -> None:
        if isinstance(over, UntrustedComet):
            raise UntrustedComet(over.reason)
        if not isinstance(over, Ended):
            return
        if over.code == PushError.DUPLICATE:
            raise Replaced(f"another connection of this client took over: {over.reason}")
        if over.code in (PushError.TOKEN_EXPIRED, PushError.CLIENT_NOT_FOUND):
            # Not if it was renewed meanwhile: the fresh one was not refused.
            self._granting.refused = self._granting.maybe_grant is grant


async def open_socket(
    make: Callable[[], Connection], host: str, port: int, context: ssl.SSLContext | None
) -> Connection:
    """Open a real connection; raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(make, host, port, ssl=context)
    except UnicodeError:
        raise OSError(f"comet: {host!r} is no host's name") from None
    return connection
