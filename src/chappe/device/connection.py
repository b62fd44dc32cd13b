"""A connection to a comet: a session over a socket."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from chappe.device.note import Note, Retraction
from chappe.device.session import Answered, Arrived, Ended, Event, Ready, Session
from chappe.errors import ProtocolError
from chappe.wire.push import Command, Error, GetTopicList, Heartbeat, Response, TopicList


class Lost(OSError):
    """The connection ended before an answer came."""


class Owner(Protocol):
    """Whom a connection tells."""

    def ready(self, connection: Connection) -> None:
        """A key is agreed."""
        ...

    def arrived(self, what: Note | Retraction) -> None:
        """Something came."""
        ...

    def answered(self, number: int) -> None:
        """A command was answered that nobody waits for."""
        ...


class Listing:
    """A list as it comes, or why it does not."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.error: Error | None = None


# How long the other side may take to hear a goodbye.
_GOODBYE_S = 2.0
# Why a connection is over: what the comet said, or what went wrong.
Over = Ended | Exception


class Connection(asyncio.Protocol):
    """One connection; `keyed` tells when it can be used, `over` when not any more, and why."""

    _transport: asyncio.Transport

    def __init__(self, session: Session, owner: Owner) -> None:
        self._session = session
        self._owner = owner
        loop = asyncio.get_running_loop()
        # Resolved when its socket is gone.
        self._gone: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[Over] = loop.create_future()
        self.keyed: asyncio.Future[None] = loop.create_future()
        self._answers: dict[int, asyncio.Future[Response]] = {}
        self._listings: dict[int, Listing] = {}
        self.reading = True

    @property
    def ready(self) -> bool:
        """Whether commands may go."""
        return self._session.open and not self.over.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self.over.done():
            return
        try:
            for event in self._session.receive(data):
                self._take(event)
        except ProtocolError as error:
            self._end(error)
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or Lost("the comet hung up"))
        if not self._gone.done():
            self._gone.set_result(None)

    def ask(self, command: Command) -> int:
        """Send a command; its answer goes to the owner."""
        number = self._session.ask(command)
        self._flush()
        return number

    async def request(self, command: Command) -> Response:
        """Send a command, and wait for the answer; raises Lost."""
        if not self.ready:
            raise Lost("there is no connection")
        number = self._session.ask(command)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._flush()
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    async def topics(self) -> Listing:
        """Ask for the topics; raises Lost."""
        if not self.ready:
            raise Lost("there is no connection")
        number = self._session.ask(GetTopicList())
        listing = self._listings[number] = Listing()
        try:
            # Answers keep their order: the list ends before the answer to what is asked next.
            await self.request(Heartbeat())
        finally:
            del self._listings[number]
        return listing

    def pause_reading(self) -> None:
        """Leave what comes to the kernel, and so to the comet."""
        if self.reading and not self._transport.is_closing():
            self.reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if not self.reading and not self._transport.is_closing():
            self.reading = True
            self._transport.resume_reading()

    async def close(self) -> None:
        """Say goodbye after what was written, and wait until that is read, for a moment: TLS says
        its own, and a loop that ends before it leaves a socket behind."""
        self._transport.close()
        self._end(Lost("this side hung up"))
        await asyncio.wait((self._gone,), timeout=_GOODBYE_S)
        if not self._gone.done():
            self._transport.abort()
            await asyncio.wait((self._gone,), timeout=_GOODBYE_S)

    def abort(self, reason: str) -> None:
        """Cut the connection at once."""
        self._end(Lost(reason))

    def _take(self, event: Event) -> None:
        match event:
            case Ready():
                self.keyed.set_result(None)
                self._owner.ready(self)
            case Arrived(what):
                self._owner.arrived(what)
            case Ended():
                self._end(event)
            case Answered(number, response):
                self._take_answer(number, response)

    def _take_answer(self, number: int, response: Response) -> None:
        listing, answer = self._listings.get(number), self._answers.get(number)
        if listing is not None and isinstance(response, TopicList):
            listing.topics += response.topics
        elif listing is not None and isinstance(response, Error):
            listing.error = response
        elif answer is None:
            self._owner.answered(number)
        elif not answer.done():
            answer.set_result(response)

    def _flush(self) -> None:
        data = self._session.to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _end(self, why: Over) -> None:
        if self.over.done():
            return
        self.over.set_result(why)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Lost("the connection ended"))
        if not self._transport.is_closing():
            self._transport.abort()
