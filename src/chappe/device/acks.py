"""Acknowledgements: sent many at a time, and again on the next connection if need be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from chappe.wire.push import MessageAck, parts
from chappe.wire.pushfield import COUNT_MAX


class Acks:
    """Ids that are to be acknowledged, and those whose answer is awaited."""

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._due: dict[str, None] = {}
        self._sent: tuple[str, ...] = ()
        self._number: int | None = None

    def add(self, id: str) -> None:
        """Acknowledge an id; of too many the oldest is forgotten: it comes again, and then is."""
        self._due[id] = None
        if len(self._due) > self._ids_max:
            del self._due[next(iter(self._due))]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, nor to wait for."""
        return not self._due and self._number is None

    def send(self, ask: Callable[[MessageAck], int]) -> None:
        """Send what is due, one frame at a time: the next when that is answered."""
        if self._number is None and self._due:
            ack = parts(MessageAck(tuple(islice(self._due, COUNT_MAX))))[0]
            self._sent = ack.ids
            for sent in ack.ids:
                del self._due[sent]
            self._number = ask(ack)

    def answered(self, number: int) -> None:
        """A command was answered; if it was this, the comet has them, or will never want them."""
        if number == self._number:
            self._sent, self._number = (), None

    def lost(self) -> None:
        """The connection is over: what was not answered is due again."""
        self._due = dict.fromkeys(self._sent) | self._due
        self._sent, self._number = (), None
