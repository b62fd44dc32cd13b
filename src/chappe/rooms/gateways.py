"""The gateways that a broker knows, each by a number that is small enough to be kept per room.

Of two lives of a gateway the later one counts; the earlier one's number is given up, and with it
all that it was in, at once and whatever that was: who looks rooms up passes over numbers that are
nobody's. Only when all rooms have been rid of a number is it given to another.
"""

from __future__ import annotations

from chappe.rooms.role import Endpoint
from chappe.rooms.roll import Place, Seat
from chappe.wire.rooms import Card

# Numbers have 16 bits. They are far from each other, so that one is seldom found in the midst of
# something else; 0 is not among them.
_NUMBERS = 1 << 16
_SPREAD = 40_503


class Gateway:
    """One life of a gateway."""

    __slots__ = ("card", "endpoint", "entries", "members", "name", "number", "seat", "seen")

    def __init__(self, card: Card, number: int, now: float) -> None:
        self.card = card
        self.name = card.name
        self.endpoint: Endpoint = (card.host, card.port)
        self.number = number
        self.seat = Seat(number, Place(name=card.name, host=card.host, port=card.port))
        # When it was told of last.
        self.seen = now
        # Rooms that it is in, or has just left; and the members of those.
        self.entries = 0
        self.members = 0


class Gateways:
    """All gateways that are not known to be gone.

    After a goodbye nothing is believed of earlier lives for `remember_s`, nor of the same life
    for `hush_s`: what is told of it by then was on its way already. Later, it may have been
    said goodbye for wrongly, and be back.
    """

    def __init__(self, most: int, *, hush_s: float, remember_s: float) -> None:
        self._most = min(most, _NUMBERS - 1)
        self._hush_s = hush_s
        self._remember_s = remember_s
        self._by_name: dict[str, Gateway] = {}
        self.by_number: dict[int, Gateway] = {}
        self._left: dict[str, tuple[int, float]] = {}
        self._given = 0
        # Numbers that were given up, and after how many rounds through all rooms.
        self._used: list[tuple[int, int]] = []
        self.rounds = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Gateway | None:
        """The present life of a gateway."""
        return self._by_name.get(name)

    def maybe_admit(self, card: Card, now: float) -> Gateway | None:
        """The gateway that a card is of; None if that is over, or there are too many."""
        known = self._by_name.get(card.name)
        if known is not None:
            if card.epoch == known.card.epoch:
                known.seen = now
                return known
            if card.epoch < known.card.epoch:
                return None
            self.give_up(known)
        elif self._is_over(card, now):
            return None
        return self._admit(card, now)

    def _admit(self, card: Card, now: float) -> Gateway | None:
        number = self._maybe_number() if len(self._by_name) < self._most else None
        if number is None:
            return None
        gateway = Gateway(card, number, now)
        self._by_name[card.name] = self.by_number[number] = gateway
        return gateway

    def _is_over(self, card: Card, now: float) -> bool:
        epoch, left = self._left.get(card.name, (-1, 0.0))
        if card.epoch > epoch or now - left >= self._remember_s:
            return False
        return card.epoch < epoch or now - left < self._hush_s

    def leave(self, card: Card, now: float) -> Gateway | None:
        """A gateway has said goodbye; the one that is gone by that, if it was here."""
        known = self._by_name.get(card.name)
        if known is not None and known.card.epoch > card.epoch:
            return None
        self._remember(card, now)
        if known is not None:
            self.give_up(known)
        return known

    def _remember(self, card: Card, now: float) -> None:
        epoch, _ = self._left.pop(card.name, (-1, 0.0))
        if len(self._left) >= self._most:
            del self._left[next(iter(self._left))]
        self._left[card.name] = (max(epoch, card.epoch), now)

    def give_up(self, gateway: Gateway) -> None:
        """Forget a life of a gateway."""
        del self._by_name[gateway.name], self.by_number[gateway.number]
        self._used.append((gateway.number, self.rounds))

    def seats(self) -> list[Seat]:
        """All of them, as they are asked for signs of life."""
        return [gateway.seat for gateway in self.by_number.values()]

    def _maybe_number(self) -> int | None:
        """A number that no room has: a new one, or an old one after a whole round, which began
        after it was given up."""
        if self._given < _NUMBERS - 1:
            self._given += 1
            return self._given * _SPREAD % _NUMBERS
        if self._used and self._used[0][1] + 2 <= self.rounds:
            return self._used.pop(0)[0]
        return None
