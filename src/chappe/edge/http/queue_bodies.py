"""Bodies of the routes of queues: what requests and responses hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from chappe.edge.http.bodies import Count, Identified
from chappe.wire.ops import Int64

# What one request may fetch, acknowledge, replay, purge or show.
MESSAGES_MAX = 1000
Seconds = Annotated[float, Meta(ge=0)]
MessageId = Annotated[str, Meta(min_length=1, max_length=64)]


class QueueBody(Identified, kw_only=True):
    """What a queue keeps, how often and how long a consumer may try, and in which order."""

    volatile: bool | None = None
    lanes: Count | None = None
    ordered: bool | None = None
    depth_max: Count | None = None
    bytes_max: Count | None = None
    ack_timeout_s: Seconds | None = None
    attempts_max: Count | None = None
    retry_s: Seconds | None = None
    retry_max_s: Seconds | None = None
    consumers: list[str] | None = None
    await_s: Seconds | None = None
    push_interval_s: Seconds | None = None
    expire_s: Seconds | None = None


class QueueSendBody(Identified, kw_only=True):
    """A message to a queue."""

    data: Raw | UnsetType = UNSET
    data64: str | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    delay_ms: Int64 | None = None
    producer: str | None = None
    seq: Int64 | None = None
    num: Int64 | None = None
    consumers: list[str] | None = None
    type: Int64 | None = None


class FetchBody(Identified, kw_only=True):
    """How many messages of a queue, and how long to wait for the first.

    `session` is what an earlier fetch of the same consumer was answered with.
    """

    session: str | None = None
    n: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)] = 1
    wait_ms: Count = 0
    group: str | None = None
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    name: str | None = None


class AckBody(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which messages were done with, and in which session they were fetched."""

    session: str
    message: str | Annotated[list[str], Meta(max_length=MESSAGES_MAX)]
    # Ends the session: what it has not acknowledged goes to others at once.
    leave: bool = False


class NackBody(AckBody, kw_only=True):
    """Which messages are handed back, and how long they are not to be tried again."""

    delay_ms: Count | None = None


class CancelBody(Identified, kw_only=True):
    """Which delayed message is taken back."""

    message: MessageId


class ConsumerBody(Identified, kw_only=True):
    """A consumer to be known by its name; without a group it shares with nobody."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    group: str | None = None
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    # Begin with what is sent from now on, not with all that is there.
    new: bool = False


class LettersBody(Identified, kw_only=True):
    """Which dead letters; all of them where none are named."""

    messages: Annotated[list[MessageId], Meta(max_length=MESSAGES_MAX)] | None = None


class Fetched(msgspec.Struct):
    """What a fetch brought; `session` is to be named when that is acknowledged, and when more is
    fetched. Whoever is not heard of for as long as a poll's lease is taken for dead."""

    ok: bool
    session: str | None
    messages: list[dict[str, Any]]


class LaneFigures(msgspec.Struct):
    """A lane: the number of its last message, and how many wait."""

    lane: int
    head: int
    depth: int


class GroupFigures(msgspec.Struct):
    """A group: what it is not done with, what its consumers have in hand, and what it wants."""

    group: str
    lag: int
    bytes: int
    in_hand: int
    # Consumers in line for the next message.
    waiting: int
    consumers: list[str]
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    # Named by messages, and not registered yet.
    expected: bool = False


class Figures(msgspec.Struct):
    """How a queue is doing."""

    ok: bool
    queue: str
    depth: int
    bytes: int
    dead: int
    delayed: int
    volatile: bool
    lanes: list[LaneFigures]
    options: dict[str, Any]
    groups: list[GroupFigures]
    stored: Literal["local", "redis", "memory"]
    # Which broker keeps it, and which node leads that.
    broker: str = ""
    node: str = ""


class QueuesPage(msgspec.Struct):
    """Some of the queues of an app, each with its figures, or with why its node did not tell them;
    `next` is where the following page starts."""

    ok: bool
    queues: list[dict[str, Any]]
    next: int | None


class MessageView(msgspec.Struct, kw_only=True):
    """A message as it lies in a queue."""

    message: str
    lane: int
    seq: int
    ts: int
    from_: str = field(name="from")
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    num: int | None = None
    type: int = 1
    consumers: list[str] | None = None
    producer: str | None = None
    producer_seq: int | None = None
    data: Any = None
    data64: str | None = None
    # Of a delayed message: when it is due.
    due_ms: int | None = None
    # Of a dead letter: why it is one.
    death: dict[str, Any] | None = None


class MessagesPage(msgspec.Struct):
    """Messages that were looked at, not taken; `next` is the `after` of the following page."""

    ok: bool
    messages: list[MessageView]
    next: int | None
    # Why they cannot be read now.
    error: str | None = None


class MessageShown(msgspec.Struct):
    """One dead letter."""

    ok: bool
    message: MessageView


class Imported(msgspec.Struct, omit_defaults=True):
    """What an import put in. One that was refused half-way says so, and up to which line all of it
    went in: `done`."""

    ok: bool
    done: int
    groups: int
    messages: int
    delayed: int
    # Dead letters that were sent again; the others were passed over.
    dead: int
    skipped: int
    error: str | None = None
    reason: str | None = None
    outcome: str | None = None
