"""What awaits the word of brokers: an entry is confirmed when all that have to have noted it.

Those are the ones that were alive and ran when it was sent to them, and `least` in any case.
Nothing is ever sent again from here: the gateway does that until it is confirmed, and each time it
is found out anew who has to note it. So one that died meanwhile is waited for no longer, and a word
that got lost is asked for again.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable
from typing import NamedTuple

from chappe.rooms.role import Endpoint
from chappe.wire.rooms import Card

# After that long what is not confirmed is forgotten: the gateway tells it again.
PENDING_S = 1.0
PENDING_MAX = 262_144

# The gateway's name, its epoch and the sequence of an entry.
Told = tuple[str, int, int]


class Done(NamedTuple):
    """Entries of a gateway that are confirmed, by so many brokers, and who waits for that."""

    to: Endpoint
    gateway: str
    epoch: int
    seqs: list[int]
    brokers: int


class _Pending:
    __slots__ = ("noted", "outstanding", "to", "until")

    def __init__(self) -> None:
        self.outstanding: set[Hashable] = set()
        # How many brokers each one stands for that has noted it.
        self.noted: dict[Hashable, int] = {}
        self.to: Endpoint = ("", 0)
        self.until = 0.0


class Confirming:
    """The entries that not all have noted yet."""

    def __init__(self, least: int, pending_max: int = PENDING_MAX) -> None:
        self._least = least
        self._pending_max = pending_max
        # The one told longest ago is first.
        self._pending: OrderedDict[Told, _Pending] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def due(self) -> float:
        """When to tick next."""
        return next(iter(self._pending.values())).until if self._pending else math.inf

    def expect(
        self, card: Card, seq: int, awaited: Collection[Hashable], to: Endpoint, now: float
    ) -> Done | None:
        """These have to note an entry, so far as they have not; Done if all have."""
        told = (card.name, card.epoch, seq)
        pending = self._pending.get(told)
        if pending is None:
            if len(self._pending) >= self._pending_max:
                self._pending.popitem(last=False)
            pending = self._pending[told] = _Pending()
        else:
            self._pending.move_to_end(told)
        pending.outstanding = set(awaited).difference(pending.noted)
        pending.to = to
        pending.until = now + PENDING_S
        return self._maybe_done(told, pending)

    def note(
        self, who: Hashable, gateway: str, epoch: int, seqs: Iterable[int], brokers: int = 1
    ) -> list[Done]:
        """Somebody, or so many brokers behind it, has noted entries; return what that confirms."""
        done: list[Done | None] = []
        for seq in seqs:
            told = (gateway, epoch, seq)
            pending = self._pending.get(told)
            if pending is not None:
                pending.noted[who] = brokers
                pending.outstanding.discard(who)
                done.append(self._maybe_done(told, pending))
        return together(done)

    def forget(self, who: Collection[Hashable]) -> list[Done]:
        """Wait for these no longer: they are gone. Return what that confirms."""
        done: list[Done | None] = []
        for told, pending in list(self._pending.items()):
            if not pending.outstanding.isdisjoint(who):
                pending.outstanding.difference_update(who)
                done.append(self._maybe_done(told, pending))
        return together(done)

    def tick(self, now: float) -> None:
        """Forget what was told too long ago."""
        while self.due <= now:
            self._pending.popitem(last=False)

    def _maybe_done(self, told: Told, pending: _Pending) -> Done | None:
        if pending.outstanding:
            return None
        brokers = sum(pending.noted.values())
        if brokers < self._least:
            return None
        del self._pending[told]
        gateway, epoch, seq = told
        return Done(pending.to, gateway, epoch, [seq], brokers)


def together(found: Iterable[Done | None]) -> list[Done]:
    """What there is of it, in as few pieces as can be: one for each that waits, mostly."""
    done: dict[tuple[Endpoint, str, int, int], Done] = {}
    for each in found:
        if each is not None:
            key = (each.to, each.gateway, each.epoch, each.brokers)
            if key in done:
                done[key].seqs.extend(each.seqs)
            else:
                done[key] = each
    return list(done.values())
