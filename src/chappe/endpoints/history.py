"""A topic's history: what it published last, numbered, for those who come back.

A history has an *epoch*: it begins anew with an empty one when its node does, or when the topic
moves to another node, and then nobody can be told what was missed; only that something may have
been. Within an epoch offsets grow by one with each message.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import msgspec

from chappe.errors import BadRequest
from chappe.message import Message

MESSAGES_MAX = 100_000
SECONDS_MAX = 7 * 24 * 3600.0
# What a message costs beside its payload.
_OVERHEAD_BYTES = 200


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes a topic different from one that was made by its first subscriber."""

    anonymous: bool = False
    # How many messages it keeps, and for how long; none unless both are above 0.
    history: int = 0
    history_s: float = 300.0

    def __post_init__(self) -> None:
        if not 0 <= self.history <= MESSAGES_MAX:
            raise BadRequest(f"history: between 0 and {MESSAGES_MAX}")
        if not 0 <= self.history_s <= SECONDS_MAX:  # so written, NaN is refused as well
            raise BadRequest(f"history_s: between 0 and {SECONDS_MAX:.0f}")


class History:
    """The last messages of one topic."""

    __slots__ = ("_messages", "epoch", "offset", "options", "size_bytes")

    def __init__(self, epoch: str, options: TopicOptions) -> None:
        self.epoch = epoch
        self.options = options
        self.offset = 0
        self.size_bytes = 0
        self._messages: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message) -> Message:
        """Number a message and keep it; what no longer fits goes."""
        self.offset += 1
        message = msgspec.structs.replace(message, offset=self.offset)
        self._messages.append(message)
        self.size_bytes += len(message.payload) + _OVERHEAD_BYTES
        while len(self._messages) > self.options.history:
            self.drop()
        self.expire(message.ts_ms)
        return message

    def expire(self, now_ms: int) -> None:
        """Let go of what is too old."""
        oldest = now_ms - self.options.history_s * 1000
        while self._messages and self._messages[0].ts_ms < oldest:
            self.drop()

    def drop(self) -> None:
        """Let go of the oldest."""
        self.size_bytes -= len(self._messages.popleft().payload) + _OVERHEAD_BYTES

    def since(self, epoch: str | None, offset: int | None) -> tuple[bool, list[Message]]:
        """What came after a place: whether that is all of it, and the messages.

        Without a place, nothing was missed.
        """
        if offset is None:
            return True, []
        if epoch != self.epoch or not 0 <= offset <= self.offset:
            return False, []
        missed = self.offset - offset
        kept = len(self._messages)
        if missed > kept:
            return False, list(self._messages)
        return True, list(islice(self._messages, kept - missed, None))
