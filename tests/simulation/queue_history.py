"""What was asked of queues in a run, what became of it, and what the broker did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"


@dataclass(slots=True)
class Sent:
    """A message that somebody wanted to send, in one try or several."""

    number: int
    queue: str
    sender: str
    invoked: float
    key: str | None = None
    red: bool = False
    delay_s: float = 0.0
    # Nobody ever acknowledges such a one.
    poison: bool = False
    producer: tuple[str, int] | None = None
    # ok, fail (surely not done) or unknown (perhaps done); of all tries together.
    outcome: str = FAIL
    ids: set[int] = field(default_factory=set)
    # What became of its being taken back, if anybody tried that.
    cancelled: str | None = None

    @property
    def delayed(self) -> bool:
        return self.delay_s > 0


@dataclass(slots=True, frozen=True)
class Lent:
    """The broker handed a message to a consumer."""

    at: float
    # Between two crashes of the broker, or reopenings of its queues.
    life: int
    queue: str
    group: str
    message: int
    number: int
    attempt: int


@dataclass(slots=True, frozen=True)
class Heard:
    """A consumer got a message."""

    at: float
    queue: str
    group: str
    consumer: str
    message: int
    number: int
    attempt: int
    key: str | None


@dataclass(slots=True)
class Settled:
    """A consumer acknowledged a message, or handed it back."""

    kind: str
    queue: str
    group: str
    message: int
    number: int
    invoked: float
    answered: float = 0.0
    outcome: str = UNKNOWN


@dataclass(slots=True, frozen=True)
class Dead:
    """A dead letter, as an administrator sees it."""

    queue: str
    group: str
    message: int
    number: int
    attempts: int
    reason: str


class History:
    """All of a run."""

    def __init__(self) -> None:
        self.sent: dict[int, Sent] = {}
        self.lent: list[Lent] = []
        self.heard: list[Heard] = []
        self.settled: list[Settled] = []
        self.dead: list[Dead] = []
        # Messages that told a producer of a dead letter: its user and the message's id.
        self.told: set[tuple[str, int]] = set()


def payload_of(number: int, filling: str) -> bytes:
    return msgspec.json.encode([number, filling])


def number_of(payload: Any) -> int:
    """The number in a payload; raises when it is none of ours."""
    number, _ = msgspec.json.decode(payload, type=tuple[int, str])
    return number
