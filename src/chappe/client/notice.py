"""Notices: what a client tells its user besides messages, so that nothing is lost silently."""

from __future__ import annotations

import msgspec

from chappe.errors import RequestError


class Notice(msgspec.Struct, frozen=True):
    """Anything of the kind."""


class Dropped(Notice, frozen=True):
    """The hub dropped that many messages of topics and rooms: this client read too slowly."""

    n: int


class Draining(Notice, frozen=True):
    """The hub is going away; the client moves to another connection after a while."""

    reason: str
    after_s: float


class Disconnected(Notice, frozen=True):
    """The connection was lost; messages published until `Reconnected` were missed.

    Not those of a topic that keeps a history: they come after all, or `Missed` says that they do
    not.
    """

    code: int
    reason: str


class Reconnected(Notice, frozen=True):
    """The client is back, under a new session, with its subscriptions."""

    session: str


class Unsubscribed(Notice, frozen=True):
    """A topic could not be subscribed again after a reconnect, as oneself or as an avatar."""

    topic: str
    error: RequestError
    as_: str | None = None


class Stopped(Notice, frozen=True):
    """A queue could not be consumed, a service provided, or a room joined after a reconnect."""

    address: str
    error: RequestError


class Missed(Notice, frozen=True):
    """A topic's history does not reach back to the last message that came: some are lost."""

    topic: str


class Renewed(Notice, frozen=True):
    """A topic's history began anew, on another node: messages in between may be lost."""

    topic: str


class Unreadable(Notice, frozen=True):
    """The hub said something this client cannot read, or called a frame of ours malformed."""

    reason: str
