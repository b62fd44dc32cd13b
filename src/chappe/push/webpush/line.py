"""Lines of what is to be handed over: lots of notes and clients, then single parcels. No I/O.

Apps take turns, and within an app the hosts do: what is for a host that is slow or down stands in
nobody else's way. An app may have as many waiting as are free besides, so that none leaves others
without room. A parcel that failed comes again later. Attempts at one host are bounded, and a host
that fails time after time is left alone for a while: what is for it is put off without an attempt.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
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
    """What was told, and not looked at yet; bounded, in all and by app."""

    def __init__(self, options: WebPushOptions) -> None:
        self._most = options.queue_max
        self._bytes_most = options.queue_bytes_max
        # By app; whose turn it is comes first.
        self._waiting: dict[str, deque[Lot]] = {}
        self._clients: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @property
    def clients(self) -> int:
        """How many clients wait to be looked up."""
        return self._clients.total()

    def room(self, app: str) -> int:
        """How many clients more of an app there is room for."""
        if self._bytes[app] >= self._bytes_most - self._bytes.total():
            return 0
        return max(0, (self._most - self.clients - self._clients[app] + 1) // 2)

    def put(self, lot: Lot) -> None:
        """Take a lot that there is room for."""
        app = lot.note.app
        self._waiting.setdefault(app, deque()).append(lot)
        self._clients[app] += len(lot.clients)
        self._bytes[app] += len(lot.text)

    def take(self, may: Callable[[str], bool], most: int) -> Lot | None:
        """Some clients of the oldest lot of an app that may go on, whose turn it is."""
        app = next(filter(may, self._waiting), None)
        if app is None:
            return None
        lots = self._waiting.pop(app)
        lot = lots.popleft()
        if len(lot.clients) > most:
            lots.appendleft(msgspec.structs.replace(lot, clients=lot.clients[most:]))
            lot = msgspec.structs.replace(lot, clients=lot.clients[:most])
        else:
            self._bytes[app] -= len(lot.text)
        self._clients[app] -= len(lot.clients)
        if lots:
            self._waiting[app] = lots
        else:
            del self._clients[app], self._bytes[app]
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
        # By app and host; whose turn it is comes first.
        self._ready: dict[str, dict[str, deque[Parcel]]] = {}
        self._ready_counts: Counter[str] = Counter()
        self._ready_most = 4 * options.concurrency_max
        self._later: list[tuple[float, int, Parcel]] = []
        self._later_counts: Counter[str] = Counter()
        self._later_most = options.retries_max
        self._order = count()
        self._under_way: Counter[str] = Counter()
        self._at_once = options.concurrency_max
        self._host_most = options.host_concurrency_max
        self._failures: dict[str, int] = {}
        self._rests: dict[str, float] = {}

    def __len__(self) -> int:
        return self._ready_counts.total() + len(self._later) + self._under_way.total()

    def has_room(self, app: str) -> bool:
        """Whether more of an app should be put in."""
        return self._ready_counts[app] < self._ready_most

    def put(self, parcel: Parcel) -> None:
        """Take a parcel, to be tried soon."""
        app = parcel.note.app
        self._ready.setdefault(app, {}).setdefault(parcel.host, deque()).append(parcel)
        self._ready_counts[app] += 1

    def put_off(self, parcel: Parcel, until: float) -> bool:
        """Take a parcel, to be tried then; False if too many are."""
        app = parcel.note.app
        if self._later_counts[app] >= self._later_most - len(self._later):
            return False
        self._later_counts[app] += 1
        heappush(self._later, (until, next(self._order), parcel))
        return True

    @property
    def due(self) -> float | None:
        """When the next one is to be tried again."""
        return self._later[0][0] if self._later else None

    def take(self, now: float) -> Parcel | None:
        """The next to be tried, if there is one and nothing forbids it; it is under way until it is
        `done`."""
        while self._later and self._later[0][0] <= now:
            self._put_back(heappop(self._later)[2])
        if self._under_way.total() >= self._at_once:
            return None
        for app, hosts in self._ready.items():
            for host in hosts:
                if self._under_way[host] < self._host_most:
                    self._under_way[host] += 1
                    return self._pop(app, host)
        return None

    def _put_back(self, parcel: Parcel) -> None:
        app = parcel.note.app
        self._later_counts[app] -= 1
        if not self._later_counts[app]:
            del self._later_counts[app]
        self.put(parcel)

    def _pop(self, app: str, host: str) -> Parcel:
        """Take one out; its app and host are the last then whose turn it is."""
        hosts = self._ready.pop(app)
        parcels = hosts.pop(host)
        parcel = parcels.popleft()
        if parcels:
            hosts[host] = parcels
        if hosts:
            self._ready[app] = hosts
        self._ready_counts[app] -= 1
        if not self._ready_counts[app]:
            del self._ready_counts[app]
        return parcel

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
