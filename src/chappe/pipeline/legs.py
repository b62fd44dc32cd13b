"""Legs: what went from node to node, what of it came, and when it had left.

A message to a room passes roles: publisher, proxy, broker, gateway. A node may have several of
them, so one may hand the same message to another twice, as publisher and later as broker: these are
two legs. Who hands it on tells in which role, and who gets it in which it had it. Only of what a
gateway gave to sessions that is not told: it was handed to a gateway, or to a role before that on
the same node; of several legs, it is that of the last that nobody else can have had.

A reliable message comes by several ways. What is lost before a broker had it is missed by nobody if
another copy came to one, and what is lost on its way to a gateway if another came there.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from chappe.pipeline.columns import NONE, Flags, Longs
from chappe.pipeline.kinds import ROLES

if TYPE_CHECKING:
    from chappe.pipeline.trails import Trails

_PUBLISHER, _PROXY, _BROKER, _GATEWAY = ROLES.values()
# The last of those that hand it on.
_LEGS = len(ROLES)


class Legs:
    """The legs of messages, each as a number: which message, from whom, to whom, in which role."""

    def __init__(self, trails: Trails) -> None:
        self._trails = trails
        self._has_roles = bool(trails.role.any() or trails.taken_as.any())

    @cached_property
    def handings(self) -> Longs:
        """Which of the trails' peers are others than the node itself."""
        trails = self._trails
        return np.flatnonzero(trails.peers != trails.node[trails.handing])

    @cached_property
    def handed(self) -> Longs:
        """What was handed on."""
        trails, hops = self._trails, self._trails.handing[self.handings]
        peers = trails.peers[self.handings]
        return self._number(trails.of[hops], trails.node[hops], peers, self.hands_as[hops])

    @cached_property
    def hands_as(self) -> Longs:
        """Of each hop, the role in which its node hands it on; a gateway does so in none."""
        return self._trails.role % _GATEWAY

    @cached_property
    def came(self) -> Flags:
        """Hops at which it came from another node."""
        trails = self._trails
        came: Flags = (trails.giver >= 0) & (trails.giver != trails.node)
        return came

    @cached_property
    def as_role(self) -> Longs:
        """Of each hop, the role in which the node before it handed it there; 0 if in none."""
        trails = self._trails
        if not self._has_roles:
            return np.zeros(trails.size, np.int64)
        taken = np.where(trails.taken_as > 0, trails.taken_as, trails.role)
        found: Longs = np.maximum(taken - 1, 0)
        unsure = np.flatnonzero(self.came & (taken == 0))
        sure = self._ways(found)[self.came & (taken > 0)]
        for free in (False, True):
            for role in range(_PUBLISHER, _GATEWAY):
                leg = self._ways(np.full_like(found, role))[unsure]
                fits = np.isin(leg, self.handed) & ~(free & np.isin(leg, sure))
                found[unsure[fits]] = role
        return found

    def _ways(self, role: Longs) -> Longs:
        """The leg of each hop, if it was handed there in that role."""
        return self._number(self._trails.of, self._trails.giver, self._trails.node, role)

    @cached_property
    def arrived(self) -> Longs:
        """What came, as who got it tells; -1 of hops that came from no other node."""
        return np.where(self.came, self._ways(self.as_role), -1)

    def _number(self, of: Longs, giver: Longs, taker: Longs, role: Longs) -> Longs:
        count = max(1, len(self._trails.nodes))
        way = (of * count + giver) * count + taker
        # Small numbers are found among others in a fraction of the time.
        return way * _LEGS + role if self._has_roles else way

    @cached_property
    def lost(self) -> Longs:
        """Messages that were handed on, and did not come: who dropped one got it."""
        trails = self._trails
        gone = self.handings[~np.isin(self.handed, self.arrived)]
        hops = trails.handing[gone]
        of: Longs = trails.of[hops]
        taker, role = trails.peers[gone], self.hands_as[hops]
        got = np.isin(self._place(of, taker), self._places(trails.drops))
        if not role.any():
            return of[~got]
        early = np.isin(role, (_PUBLISHER, _PROXY)) & self._through[of]
        served = (role == _BROKER) & np.isin(self._place(of, taker), self._places(self._ends))
        missed: Flags = ~(got | early | served)
        return of[missed]

    @cached_property
    def spared(self) -> Flags:
        """Hops at which a copy was dropped on its way to gateways, and others came there."""
        trails = self._trails
        found: Flags = trails.drops & (self.hands_as > 0) & self._through[trails.of]
        return found

    @cached_property
    def _ends(self) -> Flags:
        """Hops at gateways, or where there are no roles: it went to sessions, or had before."""
        trails = self._trails
        ends: Flags = (trails.passes & (self.hands_as == 0)) | trails.any_of("copied")
        return ends

    @cached_property
    def _through(self) -> Flags:
        """Whether each message came as far as to a broker."""
        trails = self._trails
        brokers = trails.passes & (trails.role == _BROKER)
        return trails.those(trails.of[brokers | self._ends])

    def _places(self, where: Flags) -> Longs:
        return self._place(self._trails.of[where], self._trails.node[where])

    def _place(self, of: Longs, node: Longs) -> Longs:
        return of * max(1, len(self._trails.nodes)) + node

    @cached_property
    def untold(self) -> Longs:
        """Messages that came from a node which does not tell that it handed them on; it may have
        handed them to others, too. Not so what was on its way to a broker, if one had it."""
        of: Longs = self._trails.of[self.came]
        silent = ~np.isin(self.arrived[self.came], self.handed)
        if self._has_roles:
            early = np.isin(self.as_role[self.came], (_PUBLISHER, _PROXY))
            silent &= ~(early & self._through[of])
        return of[silent]

    def left(self) -> Longs:
        """Of each hop, when the node that it came from first handed it there; NONE if unknown. Of
        copies, when it did so last before it came."""
        trails = self._trails
        times = trails.time[trails.handing[self.handings]]
        order = np.lexsort((times, self.handed))
        ways, times = self.handed[order], times[order]
        found = np.full(trails.size, NONE, np.int64)
        if len(ways):
            place = np.minimum(np.searchsorted(ways, self.arrived), len(ways) - 1)
            known = ways[place] == self.arrived
            found[known] = times[place[known]]
            copies = np.flatnonzero(known & (self.as_role > 0) & (trails.came < NONE))
            self._copies(found, copies, ways, times)
        return found

    def _copies(self, found: Longs, hops: Longs, ways: Longs, times: Longs) -> None:
        """Put in the last time not after each hop's coming, where there is one."""
        trails = self._trails
        if not len(hops):
            return
        way = np.concatenate([ways, self.arrived[hops]])
        time = np.concatenate([times, (trails.came + trails.shift)[hops]])
        comes = np.arange(len(way)) >= len(ways)
        order = np.lexsort((comes, time, way))
        place = np.arange(len(order), dtype=np.int64)
        last = np.maximum.accumulate(np.where(comes[order], -1, place))
        same = (last >= 0) & (way[order][last] == way[order]) & comes[order]
        found[hops[order[same] - len(ways)]] = time[order][last[same]]
