"""Whose turn it is (R6): one after the other, or by weight.

A weight is measured, from how often and how fast somebody answers and what probes by it found,
unless somebody outside has set it. 0 takes nothing; but where all have 0 nobody has: somebody's
mistake is not to stop all rooms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from chappe.rooms.pulse import Pulses
from chappe.rooms.roll import Seat

# Added to each round trip: what is below that is chance, not distance.
_CHANCE_S = 0.001
# More than that times the least means nothing, and sums of it stay exact.
WEIGHT_MAX = 1e6


class Balance:
    """Chooses among seats that are able to take something."""

    def __init__(self, balance: Literal["turns", "weights"], pulses: Pulses) -> None:
        self._by_weight = balance == "weights"
        self._pulses = pulses
        self._set: Mapping[int, float] = {}
        self._probed: Mapping[int, tuple[float, float]] = {}
        self._last = 0
        # By how much each is behind what it should have been given.
        self._behind: dict[int, float] = {}

    def see(self, weights: Mapping[int, float]) -> None:
        """Take the weights that are set from outside."""
        self._set = weights

    def probe(self, found: Mapping[int, tuple[float, float]]) -> None:
        """Take what probes found of each: the share that came back, and what the whole way took."""
        self._probed = found

    def start_after(self, seat: Seat) -> None:
        """Begin with the next one after a seat, when they take turns."""
        self._last = seat.id

    def open(self, seats: Sequence[Seat]) -> Sequence[Seat]:
        """Those of them that are to be given anything."""
        if not self._set:
            return seats
        return [seat for seat in seats if self._set.get(seat.id, 1.0) > 0] or seats

    def weight(self, seat: Seat) -> float:
        """How much a seat is to be given, beside others."""
        given = self._set.get(seat.id)
        if given is not None:
            return min(max(given, 0.0), WEIGHT_MAX)
        known = self._pulses.get(seat.id)
        if known is None:
            return 0.0
        # Who answers well may still not get through to the brokers behind it.
        share, way_s = self._probed.get(seat.id, (1.0, 0.0))
        return known.success * share / (_CHANCE_S + known.round_trip_s + way_s)

    def choose(self, seats: Sequence[Seat]) -> Seat:
        """The next of some seats, one at least, in order of their ids."""
        return self._weigh(seats) if self._by_weight else self._turn(seats)

    def several(self, seats: Sequence[Seat], count: int) -> list[Seat]:
        """The next few, each once; fewer if there are no more."""
        left = list(seats)
        chosen: list[Seat] = []
        while left and len(chosen) < count:
            seat = self.choose(left)
            left.remove(seat)
            chosen.append(seat)
        return chosen

    def _turn(self, seats: Sequence[Seat]) -> Seat:
        last = self._last
        seat = next((seat for seat in seats if seat.id > last), seats[0])
        self._last = seat.id
        return seat

    def _weigh(self, seats: Sequence[Seat]) -> Seat:
        """Give each its share, spread evenly: the one that is furthest behind is next."""
        behind, whole, chosen = self._behind, 0.0, seats[0]
        if len(behind) > 4 * len(seats):
            behind = self._behind = {seat.id: behind.get(seat.id, 0.0) for seat in seats}
        for seat in seats:
            weight = self.weight(seat)
            whole += weight
            behind[seat.id] = behind.get(seat.id, 0.0) + weight
            if behind[seat.id] > behind[chosen.id]:
                chosen = seat
        behind[chosen.id] -= whole
        return chosen
