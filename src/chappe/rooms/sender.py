"""Senders: the processes that this one takes datagrams of, each with the ticket it was given."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from chappe.rooms.replay import ReplayWindow
from chappe.rooms.role import Source

_TICKET_BYTES = 8


class Sender:
    """One start of a process that has proven itself."""

    __slots__ = ("source", "ticket", "window")

    def __init__(self, source: Source, ticket: int) -> None:
        self.source = source
        self.ticket = ticket
        self.window = ReplayWindow()


class Senders:
    """All of them by their lives, who was not heard of for longest first."""

    def __init__(
        self,
        *,
        peers_max: int,
        entropy: Callable[[int], bytes],
        on_forgotten: Callable[[int], None],
    ) -> None:
        self._peers_max = peers_max
        self._entropy = entropy
        self._on_forgotten = on_forgotten
        self._lives: OrderedDict[int, Sender] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lives)

    def __contains__(self, life: int) -> bool:
        return life in self._lives

    def admit(self, life: int, source: Source) -> int:
        """The ticket of a life; always the same while it is known.

        So a HELLO that somebody repeats changes nothing. Who was forgotten gets another ticket, and
        with that all it ever sent before is worth nothing.
        """
        sender = self._lives.get(life)
        if sender is None:
            if len(self._lives) >= self._peers_max:
                forgotten, _ = self._lives.popitem(last=False)
                self._on_forgotten(forgotten)
            # 0 is no ticket.
            ticket = int.from_bytes(self._entropy(_TICKET_BYTES), "big") or 1
            sender = self._lives[life] = Sender(source, ticket)
        return sender.ticket

    def find(self, life: int, ticket: int) -> Sender | None:
        """Who was given that ticket; it was heard of just now."""
        sender = self._lives.get(life)
        if sender is None or sender.ticket != ticket:
            return None
        self._lives.move_to_end(life)
        return sender
