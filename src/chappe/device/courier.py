"""The courier: between whatever connection there is and the user, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from chappe.backoff import Backoff
from chappe.device.acks import Acks
from chappe.device.connection import Connection, Lost
from chappe.device.ending import Closed, DeviceEnded, Replaced
from chappe.device.inbox import Inbox
from chappe.device.note import Note, Retraction
from chappe.errors import BadRequest, ChappeError, Overload
from chappe.wire.push import Command, Error, GetMessageList, PushError
from chappe.wire.pushcipher import UntrustedComet

# Requests of the user's that are under way at once; a comet refuses a device that asks too much.
_REQUESTS_MAX = 8
T = TypeVar("T")


class Courier:
    """Owns the connection of the moment; `ended` is why there will be no other."""

    def __init__(self, inbox: Inbox, acks: Acks) -> None:
        self._inbox = inbox
        self._acks = acks
        self._connection: Connection | None = None
        # Set while there is a connection, and when there will be none.
        self._settled = asyncio.Event()
        self._slots = asyncio.Semaphore(_REQUESTS_MAX)
        self._flushing = False
        self._idle = asyncio.Event()
        self.ended: ChappeError | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, with a key."""
        return self._connection is not None

    def ready(self, connection: Connection) -> None:
        self._connection = connection
        self._settled.set()
        connection.over.add_done_callback(lambda _: self._lost(connection))
        # In that order: what is acknowledged need not come again.
        self._acks.send(connection.ask)
        connection.ask(GetMessageList())

    def arrived(self, what: Note | Retraction) -> None:
        for id_ in self._inbox.put(what):
            self._acknowledge(id_)
        if self._inbox.full and self._connection is not None:
            self._connection.pause_reading()

    def answered(self, number: int) -> None:
        self._acks.answered(number)
        self._flush()

    def end(self, why: ChappeError) -> None:
        """There will be no other connection."""
        if self.ended is None:
            self.ended = why
            self._inbox.wake()
            self._settled.set()

    async def next(self) -> Note | Retraction:
        """What is to be shown next.

        Raises DeviceEnded when it was closed or replaced, or what ended the device.
        """
        while True:
            if isinstance(self.ended, Closed | Replaced):
                raise self._why()
            what = self._inbox.maybe_take()
            if what is not None:
                self._acknowledge(what.id)
                if self._connection is not None and not self._inbox.full:
                    self._connection.resume_reading()
                return what
            if self.ended is not None:
                raise self._why()
            await self._inbox.wait()

    async def connection(self) -> Connection:
        """The connection, once there is one; raises what ended the device."""
        while True:
            if self.ended is not None:
                raise self._why()
            if self._connection is not None:
                return self._connection
            self._settled.clear()
            await self._settled.wait()

    async def insist(
        self, attempt: Callable[[Connection], Awaitable[T]], backoff: Backoff, timeout_s: float
    ) -> T:
        """Attempt something that may be done twice, over as many connections as it takes.

        Raises Overload when the time is up, BadRequest, or what ended the device.
        """
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                while True:
                    try:
                        return await attempt(await self.connection())
                    except (Lost, Overload):
                        await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            reason = f"no answer within {timeout_s:g} s"
            raise Overload(reason, outcome_unknown=True) from None

    async def finish(self, timeout_s: float) -> None:
        """Let acknowledgements leave, if there is a connection, for a while at most."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._connection is not None and not self._acks.idle:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            # They come again, and are acknowledged then.
            return

    def _acknowledge(self, id: str) -> None:
        self._acks.add(id)
        # Whatever is taken in one go is acknowledged in one frame.
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._connection is not None and self._connection.ready:
            self._acks.send(self._connection.ask)
        self._idle.set()

    def _lost(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._acks.lost()
            self._idle.set()

    def _why(self) -> ChappeError:
        """What ended the device, to be raised once more: raised twice, it would mix its traces."""
        ended = self.ended
        if isinstance(ended, DeviceEnded | UntrustedComet):
            copy: ChappeError = type(ended)(ended.reason)
            copy.__cause__ = ended.__cause__
            return copy
        assert ended is not None
        return ended


async def ask(connection: Connection, command: Command) -> None:
    """Have a command carried out.

    Raises Lost, Overload when it may work later, BadRequest when it never will.
    """
    check_answer(await connection.request(command))


async def list_topics(connection: Connection) -> tuple[str, ...]:
    """Ask for the topics; raises likewise."""
    listing = await connection.topics()
    check_answer(listing.error)
    return tuple(listing.topics)


def check_answer(response: object) -> None:
    """Raise what an error says."""
    if isinstance(response, Error):
        if response.code == PushError.BAD_ARGUMENTS:
            raise BadRequest(response.reason)
        raise Overload(response.reason)
