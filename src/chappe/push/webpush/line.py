"""Lines of what is to be handed over: lots of notes and clients, then single parcels. No I/O.

A parcel that failed comes again later. Attempts at one host are bounded, and a host that fails time
after time is left alone for a while: what is for it is put off without an attempt, so that others
do not wait behind it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec

from chappe.push.note import Note
from chappe.push.webpush.options import WebPushOptions
from chappe.push.webpush.subscription import Subscription

# Failures in a row, after which a host is left alone; and for how long.
REST_AFTER = 10
REST_S = 30.0
# Strangers may name any number of hosts.
_HOSTS_MAX = 10_000


class Lot(msgspec.Struct, frozen=True, gc=False):
    """A note, without its content, as text for browsers; and the clients it waits for."""

    note: Note
    text: bytes
    clients: Sequence[str]


class Lots:
    """What was told, and not looked at yet; bounded."""

    def __init__(self, options: WebPushOptions) -> None:
        self._most = options.queue_max
        self._bytes_most = options.queue_bytes_max
        self._waiting: deque[Lot] = deque()
        self._bytes = 0
        self.clients = 0

    @property
    def room(self) -> int:
        """How many clients more there is room for."""
        return self._most - self.clients if self._bytes < self._bytes_most else 0

    def put(self, lot: Lot) -> None:
        """Take a lot that there is room for."""
        self._waiting.append(lot)
        self.clients += len(lot.clients)
        self._bytes += len(lot.text)

    def take(self) -> Lot | None:
        """The oldest."""
        if not self._waiting:
            return None
        lot = self._waiting.popleft()
        self.clients -= len(lot.clients)
        self._bytes -= len(lot.text)
        return lot


class Parcel(msgspec.Struct, gc=False):
    """A note for one client, and how often it was tried."""

    note: Note
    text: bytes
    client: str
    subscription: Subscription
    # As it is stored: so that only this one is forgotten when it is gone.
    stored: bytes
    host: str
    attempts: int = 0


class Parcels:
    """What is to be handed over now, and what again later."""

    def __init__(self, options: WebPushOptions) -> None:
        self._ready: deque[Parcel] = deque()
        self._ready_most = 4 * options.concurrency_max
        self._later: list[tuple[float, int, Parcel]] = []
        self._later_most = options.retries_max
        self._order = count()
        self._under_way: Counter[str] = Counter()
        self._at_once = options.concurrency_max
        self._host_most = options.host_concurrency_max
        self._failures: dict[str, int] = {}
        self._rests: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._later) + self._under_way.total()

    @property
    def has_room(self) -> bool:
        """Whether more should be put in."""
        return len(self._ready) < self._ready_most

    def put(self, parcel: Parcel) -> None:
        """Take a parcel, to be tried soon."""
        self._ready.append(parcel)

    def put_off(self, parcel: Parcel, until: float) -> bool:
        """Take a parcel, to be tried then; False if too many are."""
        if len(self._later) >= self._later_most:
            return False
        heappush(self._later, (until, next(self._order), parcel))
        return True

    @property
    def due(self) -> float | None:
        """When the next one is to be tried again."""
        return self._later[0][0] if self._later else None

    def take(self, now: float) -> Parcel | None:
        """The next to be tried, if there is one and nothing forbids it; it is under way until it is
        `done`."""
        while self._later and self._later[0][0] <= now and self.has_room:
            self._ready.append(heappop(self._later)[2])
        if self._under_way.total() >= self._at_once:
            return None
        for place, parcel in enumerate(self._ready):
            if self._under_way[parcel.host] < self._host_most:
                del self._ready[place]
                self._under_way[parcel.host] += 1
                return parcel
        return None

    def rests(self, host: str, now: float) -> float | None:
        """Until when a host is left alone, if it is."""
        until = self._rests.get(host, 0.0)
        return until if until > now else None

    def done(self, parcel: Parcel, now: float, *, answered: bool | None) -> None:
        """An attempt is over; whether the host answered as one that works, if it was asked."""
        self._under_way[parcel.host] -= 1
        if not self._under_way[parcel.host]:
            del self._under_way[parcel.host]
        if answered:
            self._failures.pop(parcel.host, None)
            self._rests.pop(parcel.host, None)
        elif answered is not None:
            self._fail(parcel.host, now)

    def _fail(self, host: str, now: float) -> None:
        if len(self._failures) >= _HOSTS_MAX:
            self._failures.clear()
            self._rests.clear()
        self._failures[host] = self._failures.get(host, 0) + 1
        if self._failures[host] >= REST_AFTER:
            self._rests[host] = now + REST_S
