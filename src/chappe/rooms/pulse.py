"""Signs of life (R5): who answers, how fast, and whether it moves what it is sent.

A role asks each of its neighbours four times a beat, on the way that its messages go. Three things
come of it:

- who has answered nothing for 1.75 beats is passed over until it answers again;
- so is who answers but *moves* nothing: it was sent messages in each of the last two beats, eight
  at least, and took none of them. What went in pieces does not count: one that is lost loses all.
  It cannot show that it has come to itself unless it gets some, so it is tried again after a while,
  each time after twice as long, up to a bound;
- how often and how fast it answers, which may weigh it, and how far its clock is ahead.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from chappe.clock import Clock
from chappe.rooms.options import RoomsOptions
from chappe.rooms.role import Endpoint, Post, Role, Source
from chappe.rooms.roll import Seat
from chappe.wire.rooms import Card, Pulse, Pulsed, RoleKind, State

log = structlog.get_logger()

# Of each new measurement so much goes into the mean.
_SUCCESS_SHARE = 0.1
_ROUND_TRIP_SHARE = 0.2
# Who took none of so many is stalled, over so many answers: two beats.
_UNMOVED = 8
_ANSWERS = 8
# It is tried again after so many beats first, and at last where nothing else is said.
TRIAL_BEATS = 2
TRIAL_BEATS_MAX = 64


class _Answer(NamedTuple):
    """How many messages it had been sent when it was asked, and how many it said it had taken."""

    sent: int
    taken: int


class Neighbour:
    """One that is asked, and what is known of it by its answers."""

    __slots__ = (
        "ahead_us",
        "ailing",
        "answering",
        "answers",
        "endpoint",
        "heard",
        "id",
        "measured",
        "name",
        "number",
        "round_trip_s",
        "sent",
        "stalled_until",
        "state",
        "success",
        "taken",
        "trial_beats",
    )

    def __init__(self, seat: Seat) -> None:
        self.id = seat.id
        self.endpoint: Endpoint = seat.endpoint
        self.name = seat.name
        self.state = State.INIT
        self.number = 0
        self.success = 1.0
        self.measured = False
        self.round_trip_s = 0.0
        # By how much its clock is ahead of this one's.
        self.ahead_us = 0
        # When it answered last.
        self.heard = -math.inf
        self.answering = False
        # Messages that it was sent, and that it says it took.
        self.sent = 0
        self.taken = 0
        self.answers: deque[_Answer] = deque(maxlen=_ANSWERS + 1)
        self.stalled_until = -math.inf
        # Whether it was stalled, and has taken nothing since.
        self.ailing = False
        self.trial_beats = TRIAL_BEATS

    @property
    def stalled(self) -> bool:
        """Whether it answers, but moves nothing."""
        return self.stalled_until > -math.inf

    @property
    def alive(self) -> bool:
        """Whether messages may be given to it."""
        return self.answering and not self.stalled

    def follow(self, before: Neighbour) -> None:
        """Be who one was that sat at the same place until now."""
        self.state, self.number = before.state, before.number
        self.heard, self.answering = before.heard, before.answering
        self.success, self.round_trip_s = before.success, before.round_trip_s
        self.ahead_us, self.measured = before.ahead_us, before.measured
        self.sent, self.taken = before.sent, before.taken

    def measure(self, round_trip_s: float, ahead_us: int) -> None:
        """Take an answer into the means. Of clocks only quick answers tell."""
        if not self.measured:
            self.measured, self.round_trip_s = True, round_trip_s
        if round_trip_s <= self.round_trip_s:
            self.ahead_us = ahead_us
        self.round_trip_s += _ROUND_TRIP_SHARE * (round_trip_s - self.round_trip_s)
        self.success += _SUCCESS_SHARE * (1.0 - self.success)

    def miss(self) -> None:
        """Take an answer that never came into the mean."""
        self.success -= _SUCCESS_SHARE * self.success

    def judge(self, sent: int, taken: int, now: float, beat_s: float, beats_max: int) -> None:
        """See by an answer whether it moves what it is sent."""
        if taken != self.taken:
            self.taken = taken
            self.answers.clear()
            self.stalled_until = -math.inf
            self.ailing = False
            self.trial_beats = TRIAL_BEATS
        self.answers.append(_Answer(sent, taken))
        if not self.stalled and self._unmoved():
            self.answers.clear()
            self.stalled_until = now + self.trial_beats * beat_s
            self.ailing = True
            self.trial_beats = min(2 * self.trial_beats, beats_max)

    def _unmoved(self) -> bool:
        answers = self.answers
        if len(answers) <= _ANSWERS:
            return False
        first, middle, last = answers[0].sent, answers[_ANSWERS // 2].sent, answers[-1].sent
        return first < middle < last and last - first >= _UNMOVED


class _Asked(NamedTuple):
    """A question that is not answered yet."""

    neighbour: Neighbour
    sent: float
    wall_us: int
    messages: int


class Pulses:
    """Asks the neighbours of one role that have one other role.

    `sender_id`, `number`, `card` and `partition` go into each question, as they are then. `version`
    changes whenever it changes who may be given messages, or what they say of themselves.

    With `trust`, one that is new counts as alive until it has had the time to answer: somebody else
    has just heard of it. `asked` says by which id a seat is asked, if not by its own. Who moved
    nothing is tried again after `trial_beats_max` at the latest.
    """

    def __init__(
        self,
        *,
        sender: RoleKind,
        role: RoleKind,
        options: RoomsOptions,
        post: Post,
        clock: Clock,
        trust: bool = False,
        asked: Callable[[Seat], int] | None = None,
        trial_beats_max: int = TRIAL_BEATS_MAX,
    ) -> None:
        self._sender = sender
        self._role = role
        self._options = options
        self._post = post
        self._clock = clock
        self._trust = trust
        self._asked_as = asked or _own_id
        self._trial_beats_max = trial_beats_max
        # How often somebody was passed over who answered.
        self.stalls = 0
        self.sender_id = 0
        self.number = 0
        self.card: Card | None = None
        self.partition = 0
        # How much is news to the sender, and how much of it is in the store; if it writes any.
        self.ledger: Callable[[], tuple[int, int]] | None = None
        self.version = 0
        self._neighbours: dict[int, Neighbour] = {}
        self._ids: dict[int, int] = {}
        # By beat, each of which is given once; the oldest is first.
        self._asked: dict[int, _Asked] = {}
        self._beat = 0
        self._next = math.inf
        self._silent_at = math.inf
        self._ticked = -math.inf

    @property
    def due(self) -> float:
        """When to tick next."""
        return min(self._next, self._silent_at)

    def watch(self, seats: Iterable[Seat], now: float) -> None:
        """Ask these from now on, and nobody else; new ones at once."""
        old, self._neighbours = self._neighbours, {}
        came: list[Seat] = []
        for seat in seats:
            neighbour = old.pop(seat.id, None)
            self._ids[seat.id] = self._asked_as(seat)
            if neighbour is None or neighbour.endpoint != seat.endpoint:
                neighbour = Neighbour(seat)
                came.append(seat)
            elif seat.running and neighbour.state is State.INIT:
                # The registry has heard of it first: what it is now, is worth a question.
                self._ask(neighbour, now)
            self._neighbours[seat.id] = neighbour
        for gone in old:
            del self._ids[gone]
        if came or old:
            self.version += 1
        before = {(gone.name, gone.endpoint): gone for gone in old.values()}
        for seat in came:
            self._meet(seat, before.get((seat.name, seat.endpoint)), now)
        if not self._neighbours:
            self._next = self._silent_at = math.inf
        elif self._next == math.inf:
            self._next, self._ticked = now + self._options.pulse_s, now

    def _meet(self, seat: Seat, before: Neighbour | None, now: float) -> None:
        """Ask one that is new, or that lost its seat and sat down again as another."""
        neighbour = self._neighbours[seat.id]
        if before is not None:
            neighbour.follow(before)
        if self._trust:
            neighbour.heard, neighbour.answering = now, True
        if neighbour.answering:
            self._silent_at = min(self._silent_at, neighbour.heard + self._options.silence_s)
        self._ask(neighbour, now)

    def get(self, id: int) -> Neighbour | None:
        """What is known of a neighbour."""
        return self._neighbours.get(id)

    def answering(self) -> list[Neighbour]:
        """Those that answer, and how far their clocks are ahead."""
        return [each for each in self._neighbours.values() if each.answering and each.measured]

    def alive(self, id: int) -> bool:
        """Whether messages may be given to a neighbour."""
        neighbour = self._neighbours.get(id)
        return neighbour is not None and neighbour.alive

    def living(self, seats: Iterable[Seat]) -> list[Seat]:
        """Those of them that messages may be given to."""
        return [seat for seat in seats if self.alive(seat.id)]

    def sent(self, id: int, count: int = 1) -> None:
        """A neighbour was given messages, which its answers are to account for."""
        neighbour = self._neighbours.get(id)
        if neighbour is not None:
            neighbour.sent += count

    def hear(self, op: Pulsed, now: float) -> None:
        """Take an answer; one that was heard before, or comes too late, says nothing."""
        asked = self._asked.get(op.beat)
        if asked is None or self._ids.get(asked.neighbour.id) != op.id:
            return
        del self._asked[op.beat]
        neighbour = asked.neighbour
        if self._neighbours.get(neighbour.id) is not neighbour:
            return
        before = (neighbour.alive, neighbour.state, neighbour.number)
        wall_us = self._clock.wall_us()
        neighbour.measure(max(0.0, now - asked.sent), op.at - (asked.wall_us + wall_us) // 2)
        self._judge(neighbour, asked.messages, op.taken, now)
        neighbour.heard, neighbour.answering = now, True
        neighbour.state, neighbour.number = op.state, op.number
        self._silent_at = min(self._silent_at, now + self._options.silence_s)
        if (neighbour.alive, neighbour.state, neighbour.number) != before:
            self.version += 1

    def _judge(self, neighbour: Neighbour, sent: int, taken: int, now: float) -> None:
        """See whether it moves what it is sent; it is told once when it does not, and when it does
        again, however often it is tried."""
        stalled, ailing = neighbour.stalled, neighbour.ailing
        neighbour.judge(sent, taken, now, self._options.beat_s, self._trial_beats_max)
        self.stalls += neighbour.stalled and not stalled
        if neighbour.ailing is not ailing:
            told = log.warning if neighbour.ailing else log.info
            told(
                "rooms.neighbour.stalled" if neighbour.ailing else "rooms.neighbour.moves",
                sender=self._sender.name,
                role=self._role.name,
                node=neighbour.name,
                id=self._ids[neighbour.id],
            )

    def tick(self, now: float) -> None:
        """Ask whom it is time to ask, and pass over who was silent for too long."""
        if not self._neighbours:
            return
        self._forgive(now)
        if now >= self._silent_at:
            self._look(now)
        if now >= self._next:
            self._next = now + self._options.pulse_s
            self._miss(now)
            for neighbour in self._neighbours.values():
                self._try_again(neighbour, now)
                self._ask(neighbour, now)

    def _forgive(self, now: float) -> None:
        """Hold nobody's silence against them for as long as this process slept itself."""
        slept = now - self._ticked - self._options.pulse_s
        self._ticked = now
        if slept > self._options.beat_s / 2:
            for neighbour in self._neighbours.values():
                neighbour.heard += slept

    def _look(self, now: float) -> None:
        """Pass over who was silent, and find out when to look again."""
        silence_s = self._options.silence_s
        oldest = math.inf
        for neighbour in self._neighbours.values():
            if neighbour.answering and now - neighbour.heard >= silence_s:
                neighbour.answering = False
                self.version += 1
            if neighbour.answering:
                oldest = min(oldest, neighbour.heard)
        self._silent_at = oldest + silence_s

    def _miss(self, now: float) -> None:
        """Give up questions that nobody has answered."""
        before = now - self._options.silence_s
        while self._asked:
            beat, asked = next(iter(self._asked.items()))
            if asked.sent > before:
                return
            del self._asked[beat]
            asked.neighbour.miss()

    def _try_again(self, neighbour: Neighbour, now: float) -> None:
        """Let one that moved nothing show whether it does now."""
        if neighbour.stalled and now >= neighbour.stalled_until:
            neighbour.stalled_until = -math.inf
            self.version += 1

    def _ask(self, neighbour: Neighbour, now: float) -> None:
        self._beat = beat = self._beat + 1
        self._asked[beat] = _Asked(neighbour, now, self._clock.wall_us(), neighbour.sent)
        pulse = Pulse(
            self._sender,
            self.sender_id,
            self._role,
            self._ids[neighbour.id],
            beat,
            now,
            self.number,
            self.card,
            self.partition,
            *(self.ledger() if self.ledger is not None else ()),
        )
        self._post.send(neighbour.endpoint, pulse)


def _own_id(seat: Seat) -> int:
    return seat.id


def answer(
    role: Role,
    op: Pulse,
    source: Source,
    post: Post,
    clock: Clock,
    *,
    state: State,
    taken: int,
    number: int = 0,
    partition: int = 0,
    news: int = 0,
) -> None:
    """Say that a role is there, and what it is doing."""
    pulsed = Pulsed(
        op.sender,
        op.sender_id,
        role.kind,
        op.id,
        op.beat,
        op.sent,
        clock.wall_us(),
        state,
        taken,
        number,
        partition,
        news,
    )
    post.send(source.endpoint, pulsed)


class Tally:
    """How many messages were taken of each sender, for the answers to it."""

    __slots__ = ("_counts", "_most")

    def __init__(self, most: int) -> None:
        self._counts: dict[Endpoint, int] = {}
        self._most = most

    def count(self, sender: Endpoint) -> None:
        """One more was taken; of more senders than are kept, the first is forgotten."""
        counts = self._counts
        if sender in counts:
            counts[sender] += 1
            return
        if len(counts) >= self._most:
            del counts[next(iter(counts))]
        counts[sender] = 1

    def of(self, sender: Endpoint) -> int:
        """How many were taken of a sender."""
        return self._counts.get(sender, 0)
