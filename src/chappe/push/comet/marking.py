"""Marking: how far subscribers have got in topics, told to the store in batches."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.pushrecorder import Ack, PushRecorder
from chappe.push.comet.audience import Audience
from chappe.push.comet.parcel import Brief
from chappe.push.comet.progress import POSITIONS_MAX, Progress
from chappe.push.comet.session import DeviceSession
from chappe.push.state.topic import Mark, TopicState


class _Moved(NamedTuple):
    """A subscriber that has got further, and the first acknowledgements by which it did."""

    progress: Progress
    acks: list[Ack]


_Key = tuple[str, str, str]  # app, client, topic


class Marking:
    """Subscribers whose marks the store does not know yet."""

    __slots__ = ("_audience", "_clock", "_moved", "_recorder", "_topics")

    def __init__(
        self, topics: TopicState, audience: Audience, recorder: PushRecorder, clock: Clock
    ) -> None:
        self._topics = topics
        self._audience = audience
        self._recorder = recorder
        self._clock = clock
        self._moved: dict[_Key, _Moved] = {}

    def __len__(self) -> int:
        return len(self._moved)

    def settle(self, session: DeviceSession, brief: Brief, ack: Ack | None) -> None:
        """A subscriber is done with a note; without an acknowledgement, as it is gone."""
        topic = brief.topic or ""
        progress = (session.topics or {}).get(topic)
        if progress is not None and progress.settle(brief.position):
            self._note((session.app, session.client, topic), progress, [ack] if ack else [])

    async def advance(self, most: int) -> list[Ack]:
        """Tell the store of some; the first acknowledgements that it knows of now.

        Raises StorageError: then they are told another time.
        """
        keys = list(islice(self._moved, most))
        some = {key: self._moved.pop(key) for key in keys}
        try:
            await self._verify(some)
            for app, marks in self._marks(some).items():
                await self._topics.advance(app, marks)
        except StorageError:
            later, self._moved = self._moved, some
            for key, moved in later.items():
                self._note(key, moved.progress, moved.acks)
            raise
        acks = [ack for moved in some.values() for ack in moved.acks]
        self._recorder.acked(acks)
        return acks

    def _note(self, key: _Key, progress: Progress, acks: list[Ack]) -> None:
        moved = self._moved.get(key)
        if moved is not None:
            if moved.progress is not progress:
                # A later session of the client began with what the store knew then.
                progress.absorb(moved.progress)
            acks = moved.acks + acks
        self._moved[key] = _Moved(progress, acks)

    async def _verify(self, some: dict[_Key, _Moved]) -> None:
        """Ask once for each topic what there is, where somebody has settled more than is known."""
        wanted: dict[str, dict[str, int]] = {}
        for (app, _, name), (progress, _) in some.items():
            topic = self._audience.topic(app, name)
            if topic and progress.beyond and progress.beyond[-1] > topic.verified:
                wanted.setdefault(app, {})[name] = topic.verified
        now_ms = self._clock.wall_ms()
        for app, topics in wanted.items():
            found = await self._topics.since(app, topics, now_ms, POSITIONS_MAX)
            for name, listed in found.items():
                if (topic := self._audience.topic(app, name)) is not None:
                    topic.verify(listed)

    def _marks(self, some: dict[_Key, _Moved]) -> dict[str, dict[tuple[str, str], Mark]]:
        marks: dict[str, dict[tuple[str, str], Mark]] = {}
        for (app, client, name), (progress, _) in some.items():
            topic = self._audience.topic(app, name)
            if topic is not None:
                topic.lift(progress)
            marks.setdefault(app, {})[client, name] = progress.as_mark()
        return marks
