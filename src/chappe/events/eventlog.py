"""The event log: what was told, gathered and written down in one go.

What happens is appended to a list, already short (see record.py). A few times a second, or when
there is much of it, all of that becomes one record of the journal. Each time that follows a pause
the log says that the node is alive: whatever happened before that is in the log. So of a node that
was killed it is known from when on nothing is known; but for what was put on the slate (slate.py).

What finds no room is counted, and told as missed: nobody takes what is there for all there was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import structlog

from chappe.errors import Overload, RequestError
from chappe.events.opening import Said, Word, encode_opening
from chappe.events.record import APP, AT, REASON, Life, N, Run, encode_chunk
from chappe.events.run import Row, runs_of_rows
from chappe.events.schema import VERSION
from chappe.events.slate import Slate
from chappe.events.tail import Tail

log = structlog.get_logger()

# How often what was gathered is written down: so much of what a node knew is lost when it is
# killed.
INTERVAL_S = 0.25
# So many events, or runs of them, are written down at once, however soon: what takes the loop
# longer than a millisecond or two shows in the latency of messages.
CHUNK_EVENTS = 8192
CHUNK_RUNS = 2048
# How often a node with nothing to tell says that it is alive.
ALIVE_S = 1.0
# Why events are missing that a killed node had told and not written.
_SLATE_FULL = "the slate was full when the node was killed"


class Log(Protocol):
    """Where events are written down."""

    def append(
        self, record: bytes, done: Callable[[RequestError | None], None], *, idle: bool
    ) -> None:
        """Take a record; `done` is told when it is written, or that it was not. Raises Overload.

        With `idle`, it says no more than that the node is alive.
        """
        ...


class Timer(Protocol):
    """What the log needs of an event loop."""

    def call_later(self, delay: float, callback: Any) -> Any:
        """Call back after that many seconds."""
        ...


class EventLog:
    """The events of one life of a node, on their way to the log."""

    def __init__(self, node: str, log: Log, timer: Timer, wall_us: Callable[[], int]) -> None:
        self._node = node
        self._log = log
        self._timer = timer
        self._wall_us = wall_us
        self.boot = wall_us()
        self._serial = 1
        self._runs: list[Run] = []
        self._count = 0
        # Messages that came alone, by kind: they become runs when they are written down.
        self._rows: dict[str, list[Row]] = {"sent": [], "published": [], "copied": []}
        # Of messages, the share that is told.
        self.share = 1.0
        # By app and error: there may be very many, and nothing else is to be said of them.
        self._refusals: dict[tuple[str, str], int] = {}
        self._missed = 0
        self._why_missed = ""
        self._alive_at = 0
        self._handle: Any = None
        # Up to where the journals of queues are told of now, by broker, and in which epoch they are
        # written; asked between the turns in which that is done. And what the log has of that.
        self._positions: Callable[[], dict[str, int]] = dict
        self._epochs: Callable[[], dict[str, int]] = dict
        self._said = Said()
        self._earlier: Callable[[], Sequence[Life]] = tuple
        # When the log was last told that it has all before; at first, when this life began.
        self._whole_at = self.boot
        # Where what must be exact is put at once; None: nowhere.
        self.slate: Slate | None = None
        # All that were written down, and all that were not; and those that found no room on the
        # slate, which says nothing of whether they were.
        self.written = 0
        self.missed = 0
        self.uncovered = 0

    def start(self) -> None:
        """The node takes traffic from now on."""
        self.add(("node_started", 1, {AT: self._wall_us()}, {}))
        self._beat()

    def stop(self) -> None:
        """The node ends in order: this is the last that is told."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self.add(("node_stopped", 1, {AT: self._wall_us()}, {}))
            self._write(word=self._word(self._wall_us()))

    @property
    def whole(self) -> bool:
        """Whether the log has all that was told, or says how much of it is missing."""
        return not self._runs and not self._missed

    def resume(
        self,
        tail: Tail,
        positions: Callable[[], dict[str, int]],
        epochs: Callable[[], dict[str, int]] = dict,
        earlier: Callable[[], Sequence[Life]] = tuple,
        newest: int = 0,
    ) -> None:
        """Go on behind `newest`, the last life before; `positions` says up to where the journals of
        queues are told of, `epochs` in which they are written, `earlier` of which lives before
        something is still to be told."""
        self._said.resume(tail)
        self._positions, self._epochs, self._earlier = positions, epochs, earlier
        # A clock that was set back makes nobody older than those before.
        self.boot = self._whole_at = max(self.boot, newest + 1)

    def caught_up(self) -> None:
        """Say so when all is told of a broker that a life before had no time for. Once the node
        takes traffic, each sign of life does."""
        word = self._said.further(self._word(self._wall_us()), self._life())
        if word is not None and self._handle is None:
            self._write(word=word)

    def opening(self) -> list[bytes]:
        """What a segment of the log begins with."""
        return [encode_opening(self._node, self._life(), self._said.word(self._earlier()))]

    def _life(self) -> Life:
        return Life(self.boot, self._serial, self._whole_at)

    def _word(self, now: int) -> Word:
        return Word((now, self._positions()), epochs=self._epochs())

    def add(self, run: Run) -> None:
        """Tell of events of one kind."""
        self._runs.append(run)
        self._count += run[1]
        if self._count >= CHUNK_EVENTS or len(self._runs) >= CHUNK_RUNS:
            self._write()

    def put(self, kind: str, row: Row) -> None:
        """Tell of one message."""
        rows = self._rows[kind]
        rows.append(row)
        if len(rows) >= CHUNK_RUNS:
            self._write()

    def keep(self, run: Run) -> None:
        """Tell of events that are to be known even if the node is killed now."""
        slate = self.slate
        if slate is not None and not slate.put(self._chunk(run)):
            if not slate.leaving:
                # What makes room for them is that the log gets what was before.
                self._write()
            if not slate.put(self._chunk(run)):
                self._leave_out(slate, run[1])
        self.add(run)

    def _chunk(self, run: Run) -> bytes:
        return encode_chunk((VERSION, self._node, self.boot, self._serial, [run]))

    def _leave_out(self, slate: Slate, events: int) -> None:
        """Events are not on the slate: a kill takes them, unless the log has them before. Then the
        slate says that they are missing; else nothing is."""
        if not self.uncovered:
            log.warning("events.slate_full", hint="what a kill takes is told as missed")
        self.uncovered += events
        now = self._wall_us()
        slate.leave_out(
            events, lambda n: self._chunk(("missed", 1, {AT: now, N: n, REASON: _SLATE_FULL}, {}))
        )

    def refuse(self, app: str, error: str) -> None:
        """Tell of an error that was answered: together with all others of an interval."""
        key = (app, error)
        self._refusals[key] = self._refusals.get(key, 0) + 1

    def _beat(self) -> None:
        self._handle = self._timer.call_later(INTERVAL_S, self._beat)
        rows = any(self._rows.values())
        idle = not self._runs and not rows and not self._refusals and not self._missed
        now = self._wall_us()
        # A clock that was set back is not waited for.
        if idle and 0 <= now - self._alive_at < ALIVE_S * 1_000_000:
            return
        self._alive_at = now
        self._write(idle=idle, alive=True, word=self._word(now))

    def _write(self, *, idle: bool = False, alive: bool = False, word: Word | None = None) -> None:
        now = self._wall_us()
        for (app, error), count in self._refusals.items():
            shared = {AT: now, APP: app, REASON: str(error), N: count}
            self._runs.append(("refused", 1, shared, {}))
        self._count += len(self._refusals)
        self._refusals.clear()
        for kind, rows in self._rows.items():
            if rows:
                self._rows[kind] = []
                # Before all else: what ends a life is the last that is told of it.
                self._runs[:0] = runs_of_rows(kind, rows, self.share)
                self._count += len(rows)
        events, missed = self._count, self._missed
        if missed:
            shared = {AT: now, N: missed, REASON: self._why_missed}
            self._runs.append(("missed", 1, shared, {}))
        if alive:
            self._runs.append(("node_alive", 1, {AT: now}, {}))
        runs, self._runs, self._count = self._runs, [], 0
        record = encode_chunk((VERSION, self._node, self.boot, self._serial, runs, *(word or ())))
        arrived: Callable[[], None] | None = None

        def done(error: RequestError | None) -> None:
            if arrived is not None:
                arrived()
            if error is None:
                self.written += events
            else:
                self._missed += missed
                self._miss(events, error)

        try:
            self._log.append(record, done, idle=idle)
        except Overload as error:
            self._miss(events, error)
            return
        # Only now: a segment that this begins, begins with what was said before.
        if word is None:
            self._said.add(runs)
        else:
            self._said.mark(word)
            self._whole_at = now
        if self.slate is not None:
            arrived = self.slate.turn()
        self._missed -= missed
        self._serial += events + bool(missed) + alive

    def _miss(self, events: int, error: RequestError) -> None:
        self.missed += events
        self._missed += events
        self._why_missed = error.reason
