"""Notes of push: to how many they were sent, and what became of them, of many at once.

What is told of a private note names its client, and stands for one; what is told of a topic's
stands for so many. A client counts once, however often it was handed a note. Of a topic's nobody
knows who they were: one who was handed it at two logins counts twice, up to as many as it was sent
to.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from chappe.pipeline.columns import NONE, Flags, Longs
from chappe.pipeline.trails import Trails

LIVE: Final = "live"
_AGAIN: Final = "again"
# Whoever sent it wanted it so: nothing was promised to those any more.
WITHDRAWN: Final = ("cancelled", "collapsed", "removed", "withdrawn")


class Arrivals(NamedTuple):
    """Acknowledgements: of which note, when, of how many, and whether they were online when it was
    sent."""

    of: Longs
    time: Longs
    n: Longs
    live: Flags


class Pushed:
    """What is known of notes, of trails with other messages among them; those have zeros."""

    def __init__(self, trails: Trails, notes: Flags) -> None:
        self._trails = trails
        self._mine: Flags = notes[trails.of]
        self._many = int(trails.client.max(initial=0)) + 1
        self._named: Flags = trails.client >= 0

    # How many there are of each note.

    @cached_property
    def aimed(self) -> Longs:
        """As who sent it says; at least as many as are told of."""
        told = self._told_aim
        aimed: Longs = np.maximum(np.where(told < NONE, told, 0), self.arrived + self._let_go)
        return aimed

    @cached_property
    def arrived(self) -> Longs:
        """Who acknowledged it."""
        return self._each(self._acked) + self._counted(self._is("push_acked"))

    @cached_property
    def sent(self) -> Longs:
        """Who was handed it."""
        named = self._each(np.union1d(self._handed, self._acked))
        first = self._is("push_handed") & ~self._trails.for_reason(_AGAIN)
        some = np.maximum(self._counted(first), self._counted(self._is("push_acked")))
        return np.minimum(named + some, self.aimed)

    @cached_property
    def clicked(self) -> Longs:
        return self._each(self._clients(self._is("push_clicked")))

    @cached_property
    def offline(self) -> Longs:
        """Who was not there when it was sent; if nobody says so, all that were not handed it."""
        told = self._told_offline
        live = self._is("push_handed") & self._trails.for_reason(LIVE)
        there = self._each(self._clients(live)) + self._counted(live)
        known = np.where(told < NONE, told, 0) + self._absent
        return np.clip(np.where(told < NONE, known, self.aimed - there), 0, self.aimed)

    @cached_property
    def dropped(self) -> Longs:
        """Who does not get it any more."""
        left = self.aimed - self.arrived
        return np.where(self._ended(self._drops), left, self._let_go)

    @cached_property
    def withdrawn(self) -> Longs:
        """Who does not, as whoever sent it wanted it so."""
        drops = self._drops & self._trails.for_reason(*WITHDRAWN)
        left = self.aimed - self.arrived
        some = self._each(np.setdiff1d(self._clients(drops), self._acked)) + self._counted(drops)
        return np.where(self._ended(drops), left, np.minimum(some, left))

    @cached_property
    def waiting(self) -> Longs:
        """Whom it waits for, until it expires."""
        return self.aimed - self.arrived - self.dropped

    # Of each note.

    @cached_property
    def expires(self) -> Longs:
        return self._said(self._trails.expires)

    @cached_property
    def arrivals(self) -> Arrivals:
        """The first of each client, and all that are counted."""
        trails, acked = self._trails, self._is("push_acked")
        named = np.flatnonzero(acked & self._named)
        _keys, firsts = np.unique(self._keys[named], return_index=True)
        counted = np.flatnonzero(acked & ~self._named & (trails.n > 0))
        hops = np.sort(np.concatenate([named[firsts], counted]))
        came = np.where(trails.came < NONE, trails.came + trails.shift, trails.time)
        n = np.where(self._named, 1, trails.n)
        return Arrivals(trails.of[hops], came[hops], n[hops], trails.for_reason(LIVE)[hops])

    def late(self, born: Longs, promised_us: int) -> Flags:
        """Whether somebody who was there got it later than promised."""
        some = self.arrivals
        took = some.time - born[some.of]
        return self._trails.those(some.of[some.live & (took > promised_us)])

    @cached_property
    def twice(self) -> Flags:
        """Whether a client got it for the first time twice, or more did than it was sent to."""
        repeated = self._trails.repeated(self._is("push_acked") & self._named, self._trails.client)
        more: Flags = self.arrived > self._told_aim
        return repeated | more

    @cached_property
    def open(self) -> Flags:
        """Whether a device that was handed it is not heard of, or one that was there was never
        handed it, or a comet says nothing of it, or nobody tells of sending it. Who was offline,
        and stays so, is waited for by nobody."""
        trails = self._trails
        dropped = self._clients(self._drops)
        silent = np.setdiff1d(self._handed, np.union1d(self._acked, dropped))
        told = self._told_offline
        left = self.arrived + self.dropped < self.aimed
        unheard = trails.those(trails.legs.lost) & left
        short = np.where(told < NONE, self._heard_of < self.aimed - self.offline, unheard)
        orphan = trails.those(trails.legs.untold) & (self._told_aim == NONE)
        found: Flags = short | orphan | trails.those(silent // self._many)
        return found & ~self._ended(self._drops)

    @cached_property
    def _told_aim(self) -> Longs:
        return self._said(self._trails.n)

    @cached_property
    def _told_offline(self) -> Longs:
        return self._said(self._trails.offline)

    def _said(self, values: Longs) -> Longs:
        """What who sent a note says of it, or NONE."""
        return self._trails.last(values, self._is("push_sent") & (values < NONE))

    @cached_property
    def _absent(self) -> Longs:
        return self._counted(self._is("push_absent"))

    @cached_property
    def _heard_of(self) -> Longs:
        """Clients that anything is told of."""
        named = np.union1d(np.union1d(self._handed, self._acked), self._clients(self._drops))
        some = np.maximum(
            self._counted(self._is("push_handed")), self._counted(self._is("push_acked"))
        )
        return self._each(named) + some + self._counted(self._drops)

    @cached_property
    def _let_go(self) -> Longs:
        """Those that do not get it any more, but for all who are left."""
        named = np.setdiff1d(self._clients(self._drops), self._acked)
        return self._each(named) + self._counted(self._drops)

    @cached_property
    def _drops(self) -> Flags:
        return self._is("push_dropped")

    def _ended(self, drops: Flags) -> Flags:
        """Whether all who have not got it do not get it any more."""
        trails = self._trails
        return trails.those(trails.of[drops & ~self._named & ~trails.counts])

    @cached_property
    def _acked(self) -> Longs:
        return self._clients(self._is("push_acked"))

    @cached_property
    def _handed(self) -> Longs:
        return self._clients(self._is("push_handed"))

    def _is(self, kind: str) -> Flags:
        found: Flags = self._trails.any_of(kind) & self._mine
        return found

    @cached_property
    def _keys(self) -> Longs:
        """A note and a client, as one number."""
        keys: Longs = self._trails.of * self._many + self._trails.client
        return keys

    def _clients(self, where: Flags) -> Longs:
        """The clients that hops name, each once for each note."""
        return np.unique(self._keys[where & self._named])

    def _each(self, keys: Longs) -> Longs:
        """How many clients there are of each note."""
        return np.bincount(keys // self._many, minlength=len(self._trails.starts))

    def _counted(self, where: Flags) -> Longs:
        """How many clients hops stand for that name none."""
        return self._trails.total(self._trails.n, where & ~self._named)
