"""The audience: who is connected here, by client and by topic."""

from __future__ import annotations

from collections.abc import Mapping

from chappe.push.comet.progress import LocalTopic, Progress
from chappe.push.comet.session import DeviceSession
from chappe.push.state.topic import Mark


class Audience:
    """Sessions that have a key, and what they listen to."""

    __slots__ = ("apps", "clients", "topics")

    def __init__(self) -> None:
        self.clients: dict[str, DeviceSession] = {}
        # How many clients of each app.
        self.apps: dict[str, int] = {}
        # By app and name.
        self.topics: dict[tuple[str, str], LocalTopic] = {}

    def seat(self, session: DeviceSession) -> DeviceSession | None:
        """Let a session be its client's; the one that was until now."""
        before = self.clients.get(session.client)
        self.clients[session.client] = session
        if before is None:
            self.apps[session.app] = self.apps.get(session.app, 0) + 1
        return before

    def leave(self, session: DeviceSession) -> bool:
        """A session is over; whether it was its client's."""
        self.listen(session, {})
        if self.clients.get(session.client) is not session:
            return False
        del self.clients[session.client]
        self.apps[session.app] -= 1
        if not self.apps[session.app]:
            del self.apps[session.app]
        return True

    def listen(self, session: DeviceSession, marks: Mapping[str, Mark]) -> None:
        """These are a session's topics from now on. How far it is in those it had stays."""
        had = session.topics or {}
        for name in [name for name in had if name not in marks]:
            self._remove(session, name)
        topics: dict[str, Progress] = {}
        for name, mark in marks.items():
            topic = self.topics.get((session.app, name))
            if topic is None:
                topic = LocalTopic(name, mark.position)
                self.topics[session.app, name] = topic
            topic.sessions[session] = None
            # One object for the name, however many subscribe.
            topics[topic.name] = had.get(name) or Progress(mark)
        session.topics = topics or None

    def topic(self, app: str, name: str) -> LocalTopic | None:
        """A topic that somebody here subscribes to."""
        return self.topics.get((app, name))

    def _remove(self, session: DeviceSession, name: str) -> None:
        topic = self.topics[session.app, name]
        del topic.sessions[session]
        if not topic.sessions:
            del self.topics[session.app, name]
