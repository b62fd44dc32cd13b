"""Dead letters as a producer hears of them: messages of its own that nobody could do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from chappe.client.conversation import Conversation
from chappe.message import Message


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a group of consumers could not do, and why it was given up."""

    message: str
    num: int | None = None
    reason: str = ""
    group: str = ""
    attempts: int = 0


class _News(msgspec.Struct):
    """What a queue writes to the sender of a message."""

    dead_letter: DeadLetter


OnDead = Callable[[DeadLetter], None]
_decode = msgspec.json.Decoder(_News).decode


class Obituaries:
    """Tells the producers of a client about their dead letters, which then are in no inbox.

    A queue writes to an address: all producers of one client that use it hear the same.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._hearers = conversation.hearers
        self._loop = asyncio.get_running_loop()
        self._callbacks: dict[str, list[OnDead]] = {}

    def add(self, queue: str, callback: OnDead) -> None:
        """Call a function with each."""
        self._callbacks.setdefault(queue, []).append(callback)
        self._hearers[queue] = self._hear

    def remove(self, queue: str, callback: OnDead) -> None:
        """Call it no more."""
        callbacks = self._callbacks[queue]
        callbacks.remove(callback)
        if not callbacks:
            del self._callbacks[queue], self._hearers[queue]

    def _hear(self, message: Message) -> bool:
        """Take what a queue says, if it is about a dead letter."""
        if message.binary:
            return False
        try:
            letter = _decode(message.payload).dead_letter
        except msgspec.DecodeError:
            return False
        for callback in self._callbacks[message.sender]:
            # Not from here: what the user's function raises must not break the reading of frames.
            self._loop.call_soon(callback, letter)
        return True
