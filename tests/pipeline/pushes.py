"""Notes that are pushed on the generated day, and what becomes of them."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from tests.pipeline.times import LAST_WORD
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND
from tests.pipeline.truth import Life
from tests.pipeline.visits import close, open_

if TYPE_CHECKING:
    from tests.pipeline.day import Day

_NUMBERS = itertools.count()
# How long it takes to keep a note.
KEPT = 500
LIFE = 30 * MINUTE


class Note:
    """A note that n1 sends to clients of n2 and n3."""

    def __init__(self, day: Day, true: int, kind: str = "p", target: str = "many:") -> None:
        self._day, self._true = day, true
        named, number = day.world.nodes["n1"].clock(true), next(_NUMBERS)
        self.label = f"{kind}0a{number:05x}{named // SECOND:08x}"
        self.about: dict[str, Any] = {"app": "a", "label": self.label, "job": f"j{number}"}
        self.life = Life(
            day.truth, "push", named, true, label=self.label, target=target, sender=None
        )
        self._target = target
        self.counts: Counter[str] = day.truth.job(self.label, named, true, self.about["job"])
        self._times = day.truth.arrivals[self.label]

    def send(
        self, aimed: int, *to: str, offline: int | None = None, away: int | None = None
    ) -> Self:
        """It is kept, and goes to comets; `away` is how many are, if it is not told."""
        self.counts["aimed"] = aimed
        self.counts["offline"] = (offline if away is None else away) or 0
        told = {"n": aimed, "offline": offline, "bytes": 9, "target": self._target}
        times = {"came": self._true, "expires": self._true + LIFE}
        at = self._true + KEPT
        self._day.world.tell("n1", at, "push_sent", **self.about, **told, **times, went_to=[*to])
        self.life.step("store", "whole", KEPT)
        return self

    def hand(
        self, node: str, after: int, *clients: str, n: int | None = None, why: str = "live"
    ) -> Self:
        """A comet hands it to clients, or to so many."""
        giver = "n1" if why == "live" else None
        for client in clients or [None]:
            told = {"client": client, "n": n, "reason": why, "came_from": giver}
            self.tell(node, after, "push_handed", came=self._true + after - 50, **told)
        if why != "again":
            self.counts["sent"] += len(clients) if n is None else n
        return self

    def ack(
        self, node: str, after: int, *clients: str, n: int | None = None, why: str = "live"
    ) -> Self:
        """They acknowledge it, which is settled a little later."""
        for client in clients or [None]:
            told = {"client": client, "n": n, "reason": why}
            self.tell(node, after + 200, "push_acked", came=self._true + after, **told)
        count = len(clients) if n is None else n
        self.counts["arrived"] += count
        if why == "live":
            self._times.extend([after] * count)
            for _ in range(count):
                self.life.step("arrival", "whole", after)
        return self

    def drop(self, after: int, reason: str, client: str | None = None, count: int = 1) -> Self:
        self.tell("n1", after, "push_dropped", client=client, reason=reason)
        self.counts["dropped"] += count
        if reason != "expired":
            self.counts["withdrawn"] += count
        return self

    def tell(self, node: str, after: int, kind: str, **told: Any) -> int:
        self._day.world.tell(node, self._true + after, kind, **self.about, **told)
        return self._true + after

    def judge(self, *, late: int = 0) -> Self:
        """All is said: so many had it too late."""
        counts = self.counts
        counts["waiting"] = counts["aimed"] - counts["arrived"] - counts["dropped"]
        messages = counts["aimed"] - counts["withdrawn"]
        arrived = counts["arrived"]
        self.life.count(messages=messages, delivered=arrived, in_time=arrived - late)
        return self


def plant_pushes(day: Day) -> None:
    begin = DAY + 13 * HOUR + 5 * MINUTE
    _arrived(day, begin)
    _dropped(day, begin + 10 * MINUTE)
    _odd(day, begin + 20 * MINUTE)
    for n in range(3):
        open_(day, "n2", begin + n, f"client:c{n}", edge="device")
    close(day, "n2", begin + MINUTE, "client:c1", begin + 1, edge="device")
    open_(day, "n2", begin + MINUTE + SECOND, "client:c1", edge="device", back=1)


def _arrived(day: Day, true: int) -> None:
    """At once, at a login, in batches, in another hour."""
    note = Note(day, true).send(3, "n2", "n3", offline=1)
    note.hand("n2", 2000, "c1").hand("n3", 2500, "c2").ack("n2", 40_000, "c1")
    note.ack("n3", 55_000, "c2").hand("n2", 10 * MINUTE, "c3", why="login")
    note.hand("n2", 12 * MINUTE, "c3", why="again").ack("n2", 12 * MINUTE + 9000, "c3", why="again")
    note.tell("n1", 15 * MINUTE, "push_clicked", client="c1")
    note.tell("n1", 9 * HOUR, "push_clicked", client="c3")
    note.counts["clicked"] += 2
    note.judge()

    # Two of those that were to get it had just left.
    note = Note(day, true + SECOND).send(3, "n2", offline=0, away=2)
    note.tell("n2", 1000, "push_absent", n=2, came_from="n1")
    note.hand("n2", 1000, "c1").ack("n2", 30_000, "c1").judge()

    topic = Note(day, true + MINUTE, "m", "topic:news").send(70, "n2", "n3", away=10)
    topic.hand("n2", 3000, n=40).hand("n3", 3000, n=20)
    topic.ack("n2", 30_000, n=25).ack("n2", 90_000, n=14).ack("n3", 60_000, n=20)
    topic.hand("n3", 5 * MINUTE, n=3, why="login").ack("n3", 5 * MINUTE + 9000, n=3, why="login")
    topic.judge()

    hour_s_end = DAY + 14 * HOUR - SECOND // 2
    note = Note(day, hour_s_end, target="client:c1").send(1, "n2", offline=0)
    note.hand("n2", 1000, "c1").ack("n2", SECOND, "c1").judge()


def _dropped(day: Day, true: int) -> None:
    note = Note(day, true).send(5, "n2", offline=3)
    note.hand("n2", 1000, "c1", "c2").ack("n2", 9000, "c1").ack("n2", 20_000, "c2")
    note.drop(MINUTE, "cancelled", count=3)
    note.tell("n2", MINUTE + 10, "push_retracted", client="c1", reason="cancelled")
    note.judge()

    note = Note(day, true + SECOND, target="user:u").send(4, offline=4)
    note.drop(SECOND, "collapsed", "c1").drop(LIFE + HOUR, "expired", "c2").judge()


def _odd(day: Day, true: int) -> None:
    """What the audit names."""
    note = Note(day, true).send(2, "n2", offline=0).hand("n2", 1000, "c1", "c2")
    note.ack("n2", 9000, "c1").ack("n2", 3 * SECOND, "c2").judge(late=1)
    note.life.verdict("late", "took 3000 ms", "n2", true + 3 * SECOND + 200)

    note = Note(day, true + SECOND).send(1, "n2", offline=0)
    note.hand("n2", 1000, "c1").ack("n2", 9000, "c1").judge()
    again = note.tell("n2", MINUTE, "push_acked", client="c1", reason="login")
    note.life.verdict("duplicated", "acknowledged twice by c1", "n2", again)

    note = Note(day, true + 2 * SECOND).send(2, "n2", offline=0)
    note.hand("n2", 1000, "c1", "c2").ack("n2", 9000, "c1").judge()
    at = true + 2 * SECOND + 9200
    note.life.verdict("unknown", "handed to c2, and not acknowledged", "n2", at, open=True)

    topic = Note(day, true + 3 * SECOND, "m", "topic:t").send(9, "n2", "n3", away=6)
    topic.hand("n2", 1000, n=3).judge()
    at = true + 3 * SECOND + 1000
    topic.life.verdict("lost", "it did not come to n3", "n2", at, open=True)

    # Its comet was killed, and may have heard of it.
    before = LAST_WORD - MINUTE
    note = Note(day, before).send(1, "n3", offline=0).hand("n3", 1000, "c1").judge()
    note.life.verdict("unknown", "n3 died before it told", "n3", before + 1000, open=True)
