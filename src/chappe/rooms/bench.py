"""A bench: the seats of one path, as they stand even when the registry has forgotten them (R4).

A registry that comes back empty knows nobody, though all are there and sit down again one by one.
So whoever was there a lease's time before that stands for one lease's time after it, unless it
sits somewhere else by then. Who is in fact gone answers nothing, and is passed over anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import structlog

from chappe.rooms.roll import Place, Seat, Seats

log = structlog.get_logger()

_decoder = msgspec.json.Decoder(Place)


class Bench:
    """The seats of one path."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._present: dict[int, Seat] = {}
        self._gone: dict[int, tuple[Seat, float]] = {}
        self._forgotten = -math.inf
        # Whether the registry has said anything of it yet.
        self.known = False

    def see(self, found: Mapping[int, bytes], now: float) -> None:
        """Take what the registry says; nobody at all, after somebody, is not believed at once."""
        seats = (_seat(number, value) for number, value in found.items())
        present = {seat.id: seat for seat in seats if seat is not None}
        gone = {
            number: (seat, now) for number, seat in self._present.items() if number not in present
        }
        before = {
            number: entry for number, entry in self._gone.items() if self._recent(entry[1], now)
        }
        self._gone = before | gone
        if gone and not present:
            self._forgotten = now
        self._present = present
        self.known = True

    def forget(self, now: float) -> None:
        """Take note that the registry has forgotten everything, as somebody else has found."""
        self._forgotten = now

    def seats(self, now: float) -> Seats:
        """Who sits here, in the order of their ids."""
        if not self._gone or now >= self._forgotten + self._lease_s:
            return tuple(self._present[number] for number in sorted(self._present))
        back = {(seat.name, seat.endpoint) for seat in self._present.values()}
        standing = dict(self._present)
        for number, (seat, left) in self._gone.items():
            if left >= self._forgotten - self._lease_s and (seat.name, seat.endpoint) not in back:
                standing[number] = seat
        return tuple(standing[number] for number in sorted(standing))

    def until(self, now: float) -> float:
        """When who is here may change though nobody says anything."""
        over = self._forgotten + self._lease_s
        return over if self._gone and now < over else math.inf

    def _recent(self, left: float, now: float) -> bool:
        return now - left < 2 * self._lease_s


def _seat(number: int, value: bytes) -> Seat | None:
    try:
        return Seat(number, _decoder.decode(value))
    except msgspec.MsgspecError as error:
        log.warning("rooms.seat.unreadable", id=number, reason=str(error))
        return None
