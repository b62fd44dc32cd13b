"""Subscribing: topics of a client, as its device changes and reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from chappe.address import name_fault
from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.push.comet.audience import Audience
from chappe.push.comet.batch import Batch
from chappe.push.comet.counters import Counters
from chappe.push.comet.session import DeviceSession
from chappe.push.options import CometOptions
from chappe.push.state.topic import TopicState
from chappe.wire.push import (
    GetTopicList,
    Ok,
    PushError,
    Subscribe,
    TopicList,
    Unsubscribe,
    encode_response,
)

_OK = encode_response(Ok())
# Asked of the store at once.
_AT_ONCE = 64

TopicCommand = GetTopicList | Subscribe | Unsubscribe


class _Asked(NamedTuple):
    session: DeviceSession
    # None: somebody else has changed the client's topics.
    command: TopicCommand | None


class Subscribing:
    """Devices that wait for what they asked of topics."""

    def __init__(
        self,
        options: CometOptions,
        server: int,
        topics: TopicState,
        audience: Audience,
        clock: Clock,
        counters: Counters,
        answered: Callable[[DeviceSession, bytes], None],
        refused: Callable[[DeviceSession, PushError, str], None],
        found: Callable[[DeviceSession], None],
        left: Callable[[str, str], None],
    ) -> None:
        self._topics_max = options.topics_max
        self._server = server
        self._topics = topics
        self._audience = audience
        self._clock = clock
        self._counters = counters
        self._answered = answered
        self._refused = refused
        self._found = found
        self._left = left
        # Those whose topics could not be read anew.
        self._failed: dict[DeviceSession, None] = {}
        self._batch: Batch[_Asked] = Batch(
            "topics", self._work, at_once=_AT_ONCE, most=2 * options.sessions_max
        )

    def ask(self, session: DeviceSession, command: TopicCommand) -> None:
        """Carry out what a device asks."""
        fault = None if isinstance(command, GetTopicList) else _fault(command.topics)
        if fault is not None:
            self._refused(session, PushError.BAD_ARGUMENTS, fault)
        elif not self._batch.put(_Asked(session, command)):
            self._refused(session, PushError.SERVER, "too many devices ask; try again later")

    def read_anew(self, session: DeviceSession) -> None:
        """Somebody else has changed the client's topics."""
        if not self._batch.put(_Asked(session, None)):
            self._failed[session] = None

    def kick(self) -> None:
        """Read those anew that could not be read before."""
        failed, self._failed = self._failed, {}
        for session in failed:
            if not session.closed:
                self.read_anew(session)

    async def idle(self) -> None:
        """Wait until all is done."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Do no more."""
        self._batch.cancel()

    async def _work(self, some: list[_Asked]) -> None:
        await asyncio.gather(*[self._do(each) for each in some if not each.session.closed])

    async def _do(self, asked: _Asked) -> None:
        session, command = asked
        try:
            answer = await self._carry_out(session, command)
        except StorageError:
            self._counters.store_failures["topics"] += 1
            if command is None:
                self._failed[session] = None
            elif not session.closed:
                self._refused(session, PushError.SERVER, "the store is away; try again later")
            return
        finally:
            if session.closed and isinstance(command, Subscribe):
                # It left before it was written that it is here.
                self._left(session.client, session.app)
        if session.closed or command is None:
            return
        if answer is None:
            reason = f"topics: a client has {self._topics_max} at most"
            self._refused(session, PushError.BAD_ARGUMENTS, reason)
        else:
            self._answered(session, answer)

    async def _carry_out(
        self, session: DeviceSession, command: TopicCommand | None
    ) -> bytes | None:
        app, client = session.app, session.client
        if isinstance(command, Subscribe):
            now_ms = self._clock.wall_ms()
            topics = list(dict.fromkeys(command.topics))
            if not await self._topics.subscribe(
                app, client, topics, self._server, now_ms, self._topics_max
            ):
                return None
        elif isinstance(command, Unsubscribe):
            await self._topics.unsubscribe(app, client, list(dict.fromkeys(command.topics)))
        marks = await self._topics.topics_of(app, client)
        if not session.closed:
            new = marks.keys() - (session.topics or {}).keys()
            self._audience.listen(session, marks)
            if new and command is None:
                # What was sent to them since is in the store.
                self._found(session)
        if isinstance(command, GetTopicList):
            return encode_response(TopicList(tuple(sorted(marks))))
        return _OK


def _fault(topics: tuple[str, ...]) -> str | None:
    """What is wrong with names of topics, if anything is."""
    if not topics:
        return "topics: none is named"
    for at, name in enumerate(topics):
        if (fault := name_fault(name)) is not None:
            return f"topics: the name at {at} {fault}"
    return None
