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
# What one costs on its way to a subscriber beside payload and addresses, in any encoding.
_FRAME_BYTES = 150


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

    __slots__ = ("_messages", "_times", "born", "epoch", "offset", "options", "size_bytes")

    def __init__(self, epoch: str, options: TopicOptions, born: int = 0) -> None:
        self.epoch = epoch
        # After how many changes among the nodes it began.
        self.born = born
        self.options = options
        self.offset = 0
        self.size_bytes = 0
        self._messages: deque[Message] = deque()
        # When each was taken, by this node's own clock: publishers' clocks may be wrong.
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message, now: float) -> Message:
        """Number a message and keep it from now on; what no longer fits goes."""
        self.offset += 1
        message = msgspec.structs.replace(message, offset=self.offset)
        self._messages.append(message)
        self._times.append(now)
        self.size_bytes += len(message.payload) + _OVERHEAD_BYTES
        while len(self._messages) > self.options.history:
            self.drop()
        self.expire(now)
        return message

    def expire(self, now: float) -> None:
        """Let go of what is too old."""
        oldest = now - self.options.history_s
        while self._times and self._times[0] < oldest:
            self.drop()

    def drop(self) -> None:
        """Let go of the oldest."""
        self._times.popleft()
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


def newest(messages: list[Message], bytes_max: int) -> list[Message]:
    """The last of the messages that are not larger together than so much, on their way out."""
    size = 0
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        payload = len(message.payload)
        size += payload + payload // 3 + 3 if message.binary else payload  # base64 in JSON
        size += len(message.sender) + len(message.to) + _FRAME_BYTES
        if size > bytes_max:
            return messages[place + 1 :]
    return messages
