"""Roles on a bench: what they say is kept, time moves when a test says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from chappe.ids import EPOCH_MS
from chappe.message import Message
from chappe.rooms.role import Endpoint, Role, Source
from chappe.rooms.roll import Place, Seat
from chappe.wire.rooms import Card, Pulse, Pulsed, RoomOp, State

APP = "default"
Op = TypeVar("Op", bound=RoomOp)


class HandClock:
    """Stands still until it is moved; the wall's time goes with it, and may be elsewhere."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.ahead_us = 0

    def monotonic(self) -> float:
        return self.now

    def wall_us(self) -> int:
        return EPOCH_MS * 1000 + round(self.now * 1e6) + self.ahead_us

    def wall_ms(self) -> int:
        return self.wall_us() // 1000


class KeptPost:
    """Keeps all that is said, in order, with whom it was said to."""

    def __init__(self) -> None:
        self.said: list[tuple[Endpoint, RoomOp]] = []
        # How often something was said to many at once: encoded once each.
        self.at_once = 0

        # Whether what is said goes in one datagram.
        self.whole = True

    def send(self, to: Endpoint, op: RoomOp) -> bool:
        self.said.append((to, op))
        return self.whole

    def send_all(self, to: Iterable[Endpoint], op: RoomOp) -> bool:
        self.at_once += 1
        self.said.extend((one, op) for one in to)
        return self.whole

    def of(self, kind: type[Op]) -> list[tuple[Endpoint, Op]]:
        """What was said of one kind, and to whom."""
        return [(to, op) for to, op in self.said if isinstance(op, kind)]

    def take(self, kind: type[Op]) -> list[tuple[Endpoint, Op]]:
        """The same; all that was said is forgotten."""
        found = self.of(kind)
        self.said.clear()
        return found


def endpoint(id: int) -> Endpoint:
    """Where the role with an id is."""
    return ("127.0.0.1", 10_000 + id)


def seat(id: int, *, running: bool = True, name: str = "") -> Seat:
    """A seat with an id; its node is called n<id> unless it is said otherwise."""
    host, port = endpoint(id)
    state = State.RUNNING if running else State.INIT
    return Seat(id, Place(name=name or f"n{id}", host=host, port=port, state=state))


def seats(*ids: int) -> tuple[Seat, ...]:
    """Running ones, in order."""
    return tuple(seat(one) for one in ids)


def source(id: int, name: str = "") -> Source:
    """Who says something, from where the role with an id is."""
    return Source(endpoint(id), name or f"n{id}")


def card(id: int, epoch: int = 1, name: str = "") -> Card:
    """A gateway."""
    host, port = endpoint(id)
    return Card(name or f"g{id}", epoch, host, port)


def message(id: int, room: str = "7", payload: bytes = b'"hello"') -> Message:
    """A message to a room."""
    return Message(id, "user:ann", f"room:{room}", 0, payload)


def pulsed(
    op: Pulse,
    clock: HandClock,
    *,
    state: State = State.RUNNING,
    taken: int = 0,
    number: int = 0,
    partition: int = 0,
) -> Pulsed:
    """What a role that is well answers."""
    return Pulsed(
        op.sender,
        op.sender_id,
        op.role,
        op.id,
        op.beat,
        op.sent,
        clock.wall_us(),
        state,
        taken,
        number,
        partition,
    )


class Bench:
    """A post and a clock, and others that answer for as long as they are not among the `silent`."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.post = KeptPost()
        self.silent: set[int] = set()
        # What those that answer say, by id, where it is not what `pulsed` says.
        self.says: dict[int, dict[str, int]] = {}
        self._answered = 0

    @property
    def now(self) -> float:
        return self.clock.now

    def answer(self, role: Role) -> None:
        """Answer what a role has asked since."""
        pulses = [op for _, op in self.post.of(Pulse) if op.beat > self._answered]
        for op in pulses:
            self._answered = max(self._answered, op.beat)
            if op.id not in self.silent:
                told = pulsed(op, self.clock, **self.says.get(op.id, {}))  # type: ignore[arg-type]
                role.receive(told, source(op.id), self.now)

    def pass_time(self, role: Role, seconds: float) -> None:
        """Let time pass for a role, which ticks when it is due; others answer at once."""
        end = self.now + seconds
        self.answer(role)
        while role.due <= end:
            assert role.due > self.now - 1e6
            self.clock.now = max(self.now, role.due)
            role.tick(self.now)
            self.answer(role)
        self.clock.now = end
