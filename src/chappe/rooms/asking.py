"""Asking how many are in a room everywhere, and who (R1).

    gateway --Count--> proxy --> broker --Counted--> gateway     so many, on so many gateways
                                   |---Who--> gateways --Here--> these are mine

Any of it may get lost, so a question that has no answer goes out again, by another proxy. An answer
that comes twice counts once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

from chappe.errors import Overload, Unreachable
from chappe.rooms.partition import room_number
from chappe.rooms.role import Post
from chappe.rooms.roll import Seat, Seats
from chappe.wire.rooms import ANY_PARTITION, Card, Count, Counted, Here

# Members, or -1 when nobody answered; and who, if that is known.
Tell = Callable[[int, list[str] | None], None]
# How long an answer may take, and after how long it is asked for again.
TIMEOUT_S = 1.0
AGAIN_S = 0.25
# Questions without an answer yet.
ASKS_MAX = 4096


class _Ask:
    __slots__ = ("again", "counted", "here", "op", "tell", "until")

    def __init__(self, op: Count, tell: Tell, now: float) -> None:
        self.op = op
        self.tell = tell
        self.until = now + TIMEOUT_S
        self.again = now + AGAIN_S
        self.counted: Counted | None = None
        self.here: dict[str, list[str]] = {}

    @property
    def answered(self) -> bool:
        counted = self.counted
        return counted is not None and len(self.here) >= counted.names

    def who(self) -> list[str] | None:
        """Who is there, once all who were to say so have."""
        counted = self.counted
        if counted is None or not self.op.limit or len(self.here) < counted.names:
            return None
        # Too many: nobody was asked.
        if counted.members and not counted.names:
            return None
        return [member for members in self.here.values() for member in members]


class Asking:
    """The questions of a gateway that have no answer yet."""

    def __init__(self, card: Card, post: Post) -> None:
        self._card = card
        self._post = post
        self._proxies: Seats = ()
        # Which of them answer, for who knows it.
        self.living: Callable[[Seats], Sequence[Seat]] = _all
        # Who is to be asked again first is first.
        self._asks: OrderedDict[int, _Ask] = OrderedDict()
        self._last = 0
        self._turn = 0

    @property
    def due(self) -> float:
        """When to tick next."""
        return next(iter(self._asks.values())).again if self._asks else math.inf

    def see(self, proxies: Seats) -> None:
        """Ask by these from now on."""
        self._proxies = proxies

    def ask(self, app: str, room: str, limit: int, now: float, tell: Tell) -> None:
        """Find out how many are in a room, and with a limit who; `tell` is called once.

        Raises Unreachable where no proxy is known, and Overload when too many questions wait.
        """
        if not self._proxies:
            raise Unreachable("to: no proxy of rooms is known to this node")
        if len(self._asks) >= ASKS_MAX:
            raise Overload(f"to: {ASKS_MAX} questions about rooms wait for an answer here already")
        self._last += 1
        op = Count(app, room, room_number(room), self._last, limit, self._card, ANY_PARTITION)
        self._asks[self._last] = _Ask(op, tell, now)
        self._send(op)

    def counted(self, op: Counted) -> None:
        """A broker says how many."""
        ask = self._asks.get(op.ask)
        if ask is not None and ask.counted is None:
            ask.counted = op
            self._maybe_tell(ask)

    def here(self, op: Here) -> None:
        """A gateway says who."""
        ask = self._asks.get(op.ask)
        if ask is not None:
            ask.here[op.gateway] = op.members
            self._maybe_tell(ask)

    def tick(self, now: float) -> None:
        """Ask again, and give up what was not answered in time."""
        while self.due <= now:
            ask = next(iter(self._asks.values()))
            if now >= ask.until:
                self._tell(ask)
            else:
                ask.again = min(now + AGAIN_S, ask.until)
                self._asks.move_to_end(ask.op.ask)
                self._send(ask.op)

    def _send(self, op: Count) -> None:
        proxies = self.living(self._proxies) or self._proxies
        if proxies:
            self._turn += 1
            self._post.send(proxies[self._turn % len(proxies)].endpoint, op)

    def _maybe_tell(self, ask: _Ask) -> None:
        if ask.answered:
            self._tell(ask)

    def _tell(self, ask: _Ask) -> None:
        del self._asks[ask.op.ask]
        ask.tell(-1 if ask.counted is None else ask.counted.members, ask.who())


def _all(seats: Seats) -> Sequence[Seat]:
    return seats
