"""The publisher: hands messages to proxies, for the clients of its node (R6, R13, R14).

Normal messages to a room stay on one proxy while that is able to forward them. Of a reliable
message three copies leave at once, by three proxies; where there are fewer they repeat.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from random import Random
from typing import NamedTuple

from chappe.clock import Clock
from chappe.errors import Unreachable
from chappe.events.recorder import Recorder
from chappe.message import Message
from chappe.rooms.balance import Balance
from chappe.rooms.hops import BEATS_S, Hops
from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import Pulses
from chappe.rooms.role import Post, Source
from chappe.rooms.roll import EMPTY, Roll, Seat
from chappe.wire.rooms import Pulsed, RoleKind, RoomOp, State, Submit

# Of a reliable message, and how long one waits that goes by the same proxy as another.
COPIES = 3
REPEAT_S = 0.01
# Copies that wait; one too many does not wait.
REPEATS_MAX = 65_536


class _Repeat(NamedTuple):
    """Copies that are still to go, the next of them at that time."""

    at: float
    op: Submit
    copies: int


class Publisher:
    """One per node that holds clients."""

    kind = RoleKind.PUBLISHER

    def __init__(
        self,
        *,
        options: RoomsOptions,
        post: Post,
        clock: Clock,
        name: str,
        recorder: Recorder,
        rng: Random,
    ) -> None:
        self.id = 0
        self._options = options
        self._post = post
        self._hops = Hops(recorder, name, self.kind)
        self.pulses = Pulses(
            sender=self.kind, role=RoleKind.PROXY, options=options, post=post, clock=clock
        )
        self.balance = Balance(options.balance, self.pulses)
        # Not all publishers begin with the same proxy.
        self._rng = rng
        self._roll: Roll = EMPTY
        self._able: list[Seat] = []
        self._able_ids: dict[int, Seat] = {}
        self._version = -1
        self._flows: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._repeats: deque[_Repeat] = deque()
        self._beats_at = clock.monotonic() + BEATS_S
        self.messages = 0
        self.copies = 0
        self.refused = 0

    @property
    def due(self) -> float:
        """When to tick next."""
        return min(self.pulses.due, self._repeats[0].at if self._repeats else math.inf)

    @property
    def able(self) -> bool:
        """Whether there is a proxy that messages can be handed to."""
        if self._version != self.pulses.version:
            self._look()
        return bool(self._able)

    @property
    def counts(self) -> dict[str, int]:
        """What it has done, and has."""
        return {
            "messages": self.messages,
            "copies": self.copies,
            "refused": self.refused,
            "flows": len(self._flows),
        }

    def see(self, roll: Roll, now: float) -> None:
        """Take note of the proxies."""
        first = not self._roll.proxies
        self._roll = roll
        self.pulses.watch(roll.proxies, now)
        self.balance.see(roll.weights.proxies)
        if first and roll.proxies:
            self.balance.start_after(self._rng.choice(roll.proxies))
        self._version = -1

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        """Take the answer of a proxy."""
        if isinstance(op, Pulsed):
            self.pulses.hear(op, now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.pulses.tick(now)
        if now >= self._beats_at:
            self._beats_at = now + BEATS_S
            self._hops.beats(self.pulses.answering())
        while self._repeats and self._repeats[0].at <= now:
            self._repeat(self._repeats.popleft(), now)

    def publish(self, app: str, message: Message, number: int, reliable: bool, now: float) -> None:
        """Hand a message to a room to a proxy, or to several; raises Unreachable."""
        if self._version != self.pulses.version:
            self._look()
        if not self._able:
            self.refused += 1
            raise Unreachable(f"{message.to}: no proxy answers that could forward to it")
        self.messages += 1
        op = Submit(app, number, message, reliable)
        if reliable:
            self._publish_copies(op, now)
        else:
            self._send(op, (self._proxy_of(app, message.to),))

    def _look(self) -> None:
        """See which proxies are able to forward: all partitions, or if none is, some of them."""
        self._version = self.pulses.version
        living = [
            (seat, known)
            for seat in self._roll.proxies
            if (known := self.pulses.get(seat.id)) is not None and known.alive
        ]
        able = [seat for seat, known in living if known.state is State.RUNNING]
        able = able or [seat for seat, known in living if known.number > 0]
        self._able = list(self.balance.open(able))
        self._able_ids = {seat.id: seat for seat in self._able}

    def _proxy_of(self, app: str, to: str) -> Seat:
        """The proxy that the messages to a room stay on."""
        flow = (app, to)
        seat = self._able_ids.get(self._flows.get(flow, 0))
        if seat is None:
            seat = self.balance.choose(self._able)
            self._flows[flow] = seat.id
            if len(self._flows) > self._options.flows_max:
                self._flows.popitem(last=False)
        else:
            self._flows.move_to_end(flow)
        return seat

    def _publish_copies(self, op: Submit, now: float) -> None:
        proxies = self.balance.several(self._able, COPIES)
        self._send(op, proxies)
        if len(proxies) < COPIES:
            self._wait(_Repeat(now + REPEAT_S, op, COPIES - len(proxies)), now)

    def _wait(self, repeat: _Repeat, now: float) -> None:
        if len(self._repeats) < REPEATS_MAX:
            self._repeats.append(repeat)
        else:
            self._repeat(repeat, now)

    def _repeat(self, repeat: _Repeat, now: float) -> None:
        """Send the next copies, again by different proxies."""
        if self._version != self.pulses.version:
            self._look()
        if not self._able:
            return
        proxies = self.balance.several(self._able, repeat.copies)
        self._send(repeat.op, proxies)
        left = repeat.copies - len(proxies)
        if left:
            self._wait(repeat._replace(at=now + REPEAT_S, copies=left), now)

    def _send(self, op: Submit, proxies: list[Seat] | tuple[Seat, ...]) -> None:
        self._hops.passed(op.app, op.message, "", [seat.name for seat in proxies])
        self.copies += len(proxies)
        if len(proxies) == 1:
            whole = self._post.send(proxies[0].endpoint, op)
        else:
            whole = self._post.send_all([seat.endpoint for seat in proxies], op)
        if whole:
            for seat in proxies:
                self.pulses.sent(seat.id)
