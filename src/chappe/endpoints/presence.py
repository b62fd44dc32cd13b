"""Presence: who is really gone, and who came (H8), as opposed to who merely reconnects.

A user whose last session in the cluster ended is *leaving*; it is *gone* when the grace time passed
and it has not come back. Every node keeps the same watch, since all hear of the same sessions, but
only the address's home tells. A node that is not its home keeps what it found for a while longer:
should the home die before it could tell, whoever is home then tells instead.

    online --(last session ends)--> leaving --(grace)--> gone ---> told, by its home
       ^                               |                   |
       +----(comes back: nothing)------+                   |
       +----(comes: came)----------------------------------+

The times are constant, so what is due next is what was put in first: each transition costs the same
however many others wait, and one alarm on the loop serves them all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Literal, Protocol

import msgspec

from chappe.clock import Clock
from chappe.errors import ConfigError
from chappe.events.recorder import Recorder
from chappe.hub.deadline import Handle, Timer

Event = Literal["gone", "came"]
_Key = tuple[str, str]
_Table = Mapping[_Key, tuple[float, object]]
# As many as are decided in one turn of the loop: a node that dies takes thousands with it at once.
_DECISIONS_MAX = 500


class PresenceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long absence is not yet absence."""

    # Twice what a phone needs that goes from one network to another.
    grace_s: float = 10.0
    # Three heartbeats and a little more: by then every node knows that a home is dead.
    takeover_s: float = 20.0
    # All users of a full node at once.
    users_max: int = 1_000_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            # So written, it refuses NaN as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"presence.{name}: must be above 0, and finite")


class Transition(msgspec.Struct, frozen=True):
    """A user is gone, or came. The id is the same on every node that finds it out."""

    event: Event
    id: str
    app: str
    address: str
    at_ms: int


class Telling(Protocol):
    """Whom transitions are told to."""

    def tell(self, transition: Transition) -> None:
        """Take note of it; must not wait."""
        ...


class Presence:
    """Decides who is gone from the transitions of a cluster.

    `is_home` says whether it is this node that tells about an address.
    """

    def __init__(
        self,
        *,
        timer: Timer,
        clock: Clock,
        recorder: Recorder,
        is_home: Callable[[str, str], bool],
        hook: Telling | None = None,
        options: PresenceOptions | None = None,
    ) -> None:
        self._timer = timer
        self._clock = clock
        self._recorder = recorder
        self._is_home = is_home
        self._hook = hook
        self._options = options or PresenceOptions()
        # When each is due, and when it happened; the first is due first. In a plain dict it would
        # take longer to find the first the more had been taken away before it.
        self._leaving: OrderedDict[_Key, tuple[float, int]] = OrderedDict()
        # What another node should have told; the first is due first.
        self._untold: OrderedDict[_Key, tuple[float, Transition]] = OrderedDict()
        # Who was found gone, so that their return is news however it is heard of; and whether it
        # was this node that told: then it tells of the return as well, since a home that was cut
        # off with the user never took it for gone.
        self._gone: OrderedDict[_Key, bool] = OrderedDict()
        self._alarm: Handle | None = None
        self._alarm_at = 0.0

    def __len__(self) -> int:
        """How many are leaving."""
        return len(self._leaving)

    def online(
        self, app: str, address: str, *, at_ms: int | None = None, news: bool = True
    ) -> None:
        """An address got its first session in the cluster.

        Without `news` it is merely heard of for the first time, as from the table of a node that
        one has just met: that is told only of somebody who was found gone.
        """
        key = (app, address)
        if self._leaving.pop(key, None) is not None:
            return
        told = self._gone.pop(key, None)
        if news or told is not None:
            self._decide("came", key, self._at(at_ms), mine=bool(told))

    def offline(self, app: str, address: str, *, at_ms: int | None = None) -> None:
        """An address lost its last session in the cluster.

        `at_ms` is when, as the node that had the session says: where all nodes are told the same,
        all of them give what follows the same id.
        """
        key = (app, address)
        if key in self._leaving or key in self._gone:
            return
        if len(self._leaving) >= self._options.users_max:
            # No room to wait in: it is better to tell of one too early than never.
            self._leave(next(iter(self._leaving)))
        self._leaving[key] = (self._timer.time() + self._options.grace_s, self._at(at_ms))
        self._set_alarm()

    def leaving(self) -> Iterator[tuple[str, str, int]]:
        """Who is leaving: app, address, and since when."""
        for (app, address), (_, at_ms) in self._leaving.items():
            yield app, address, at_ms

    def told_gone(self, app: str, address: str) -> bool:
        """Whether an address was found gone, and nothing of that is left to tell."""
        return (app, address) in self._gone and (app, address) not in self._untold

    def dismiss(self, app: str, address: str) -> None:
        """An address is gone, and others have told it: its return is news."""
        if self._leaving.pop((app, address), None) is not None:
            self._put_gone((app, address))

    def stop(self) -> None:
        """Decide nothing more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _at(self, at_ms: int | None) -> int:
        return self._clock.wall_ms() if at_ms is None else at_ms

    def _leave(self, key: _Key) -> None:
        _, at_ms = self._leaving.pop(key)
        self._put_gone(key)
        self._decide("gone", key, at_ms)

    def _put_gone(self, key: _Key) -> None:
        self._gone[key] = False
        if len(self._gone) > self._options.users_max:
            del self._gone[next(iter(self._gone))]

    def _decide(self, event: Event, key: _Key, at_ms: int, *, mine: bool = False) -> None:
        # What was not told before is not worth telling after this.
        self._untold.pop(key, None)
        # Between two of a kind lies the grace time, so a number of such spans tells them apart, and
        # nodes that do not agree to the second agree on it nearly always.
        span = at_ms // max(1, round(self._options.grace_s * 1000))
        app, address = key
        transition = Transition(event, _id_of(event, app, address, span), app, address, at_ms)
        if mine or self._is_home(app, address):
            self._tell(transition)
            return
        if len(self._untold) >= self._options.users_max:
            del self._untold[next(iter(self._untold))]
        self._untold[key] = (self._timer.time() + self._options.takeover_s, transition)
        self._set_alarm()

    def _tell(self, transition: Transition) -> None:
        key = (transition.app, transition.address)
        if key in self._gone:
            self._gone[key] = True
        if transition.event == "gone":
            self._recorder.user_gone(transition.app, transition.address)
        else:
            self._recorder.user_came(transition.app, transition.address)
        if self._hook is not None:
            self._hook.tell(transition)

    def _set_alarm(self) -> None:
        """See to it that the alarm rings for what is due first."""
        tables: tuple[_Table, ...] = (self._leaving, self._untold)
        due = min((next(iter(t.values()))[0] for t in tables if t), default=None)
        if due is None or (self._alarm is not None and self._alarm_at <= due):
            return
        self.stop()
        self._alarm_at = due
        self._alarm = self._timer.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        # The loop rings up to its clock's resolution early: by its own time it is due.
        now = max(self._timer.time(), self._alarm_at)
        try:
            for key in _due(self._leaving, now):
                self._leave(key)
            for key in _due(self._untold, now):
                _, transition = self._untold.pop(key)
                if self._is_home(*key):
                    self._tell(transition)
        finally:
            self._set_alarm()


def _due(table: _Table, now: float) -> list[_Key]:
    due = []
    for key, (when, _) in islice(table.items(), _DECISIONS_MAX):
        if when > now:
            break
        due.append(key)
    return due


def _id_of(event: str, app: str, address: str, span: int) -> str:
    told = "\0".join((event, app, address, str(span)))
    return blake2b(told.encode(), digest_size=16).hexdigest()
