"""The truth of a day, by the one right clock, as it is planned: never from what nodes tell.

Each thing that is planned says of itself what is true of it, in the words of the tables: the keys
are those of the tables' rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.pipeline.traffic import HOUR, MINUTE, hour

Key = tuple[Any, ...]


def minute(us: int) -> int:
    return us - us % MINUTE


class Truth:
    """What the tables must say."""

    def __init__(self) -> None:
        # (hour, app, family, hop, role, window): each time, and how many messages it stands for.
        self.latency: dict[Key, list[tuple[int, float]]] = defaultdict(list)
        # (hour, app, family, window): messages, delivered, in_time, scaled
        self.delivery: dict[Key, Counter[str]] = defaultdict(Counter)
        # (hour, node, peer, role, window): handed, arrived, beats, ups, downs, down_us, probes,
        # failed
        self.links: dict[Key, Counter[str]] = defaultdict(Counter)
        self.delays: dict[Key, list[int]] = defaultdict(list)
        # (round trip, how far ahead the peer's clock is) of each beat
        self.beats: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        # (half of the probes took so long, all but one in a hundred) as each gateway told
        self.probes: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        # (hour, app, room, window): how many messages each stands for, who got it, on how many
        # gateways
        self.rooms: dict[Key, list[tuple[float, int, int]]] = defaultdict(list)
        # (hour, app, room, window): the broker's node and partition, and what it told
        self.heats: dict[Key, list[tuple[str, int, dict[str, int]]]] = defaultdict(list)
        # (hour, node, partition, window)
        self.loads: dict[Key, list[dict[str, int]]] = defaultdict(list)
        # (app, queue, window): what happened, by kind; `change` of how many wait or are worked on
        self.queues: dict[Key, Counter[str]] = defaultdict(Counter)
        self.ages: dict[Key, list[int]] = defaultdict(list)
        # (app, queue, window): when messages were ready that were handed out for the first time
        self.ready: dict[Key, list[int]] = defaultdict(list)
        # (app, edge, window): opened, closed, reconnects, and `cut` with the node that had them
        self.sessions: dict[Key, Counter[str]] = defaultdict(Counter)
        self.stays: dict[Key, list[int]] = defaultdict(list)
        # (hour, app, job, note): counts, and when it was sent
        self.jobs: dict[Key, tuple[Counter[str], int]] = {}
        # By note: how long it took to each who was online.
        self.arrivals: dict[str, list[int]] = defaultdict(list)
        self.audit: list[dict[str, Any]] = []

    def job(self, note: str, named: int, born: int, job: str) -> Counter[str]:
        """A note is sent; what becomes of it is to be counted here."""
        counts: Counter[str] = Counter()
        self.jobs[hour(named), "a", job, note] = counts, born
        return counts

    def running(self, table: dict[Key, Counter[str]], *columns: str) -> Iterator[tuple[Key, int]]:
        """The sum of columns from the day's begin to the end of each minute, for each place."""
        sums: Counter[Key] = Counter()
        for key in sorted(table):
            sums[key[:-1]] += sum(table[key][name] for name in columns)
            yield key, sums[key[:-1]]

    def probe(
        self, hour: str, node: str, peer: str, role: str, window: int, found: dict[str, int]
    ) -> None:
        """Probes were sent over a link."""
        key = (hour, node, peer, role, window)
        self.links[key] += Counter(probes=found["n"], failed=found["failed"])
        self.probes[key].append((found["delay_p50"], found["delay_p99"]))

    def waiting(self) -> list[Key]:
        """Where a queue is not empty at an hour's begin, and nothing happens in it, but does in
        others."""
        hours = sorted({key[-1] // HOUR * HOUR for key in self.queues})
        return [
            (*place, begin)
            for place in sorted({key[:-1] for key in self.queues})
            for begin in hours
            if self._lag(place, begin) and not self._happens(place, begin)
        ]

    def frontiers(self) -> Iterator[tuple[Key, int | None]]:
        """When the youngest was ready that was handed out, since its queue was last empty at an
        hour's end."""
        known: dict[Key, int] = {}
        for key in sorted(self.queues, key=lambda key: (key[-1], *key)):
            place, window = key[:-1], key[-1]
            begin = window // HOUR * HOUR
            if not self._lag(place, begin) and place in known and not self._since(place, key):
                del known[place]
            found = [*self.ready.get(key, ()), *([known[place]] if place in known else ())]
            if found:
                known[place] = max(found)
            yield key, known.get(place)

    def _since(self, place: Key, key: Key) -> bool:
        """Whether something happened in a queue before, in the same hour."""
        begin = key[-1] // HOUR * HOUR
        return any(one[:-1] == place and begin <= one[-1] < key[-1] for one in self.queues)

    def _lag(self, place: Key, time: int) -> int:
        mine = (key for key in self.queues if key[:-1] == place and key[-1] < time)
        return sum(self.queues[key]["change"] for key in mine)

    def _happens(self, place: Key, begin: int) -> bool:
        return any(key[:-1] == place and begin <= key[-1] < begin + HOUR for key in self.queues)


class Life:
    """A message or a request, and what is true of it."""

    def __init__(
        self,
        truth: Truth,
        family: str,
        named: int,
        born: int,
        *,
        app: str | None = "a",
        share: float = 1.0,
        **about: Any,
    ) -> None:
        """`named` is when it got its id, by the clock of its node: that gives it its hour."""
        self._truth = truth
        self._family = family
        self._hour = hour(named)
        self._born = born
        self._app = app
        self._share = share
        self._about = about
        self.message: int = about.get("message", 0)
        # When it left each node.
        self.left: dict[str, int] = {}

    def step(self, hop: str, role: str, us: int) -> None:
        window = self._born - self._born % MINUTE
        key = (self._hour, self._app, self._family, hop, role, window)
        self._truth.latency[key].append((us, 1 / self._share))

    def judge(self, *, delivered: bool, in_time: bool | None = None) -> None:
        """It was promised to somebody."""
        key = (self._hour, self._app, self._family, minute(self._born))
        self._truth.delivery[key] += Counter(
            messages=1,
            delivered=int(delivered),
            in_time=int(delivered if in_time is None else in_time),
        )
        self._truth.delivery[key]["scaled"] += 1 / self._share  # type: ignore[assignment]

    def count(self, **counts: int) -> None:
        """It was promised to so many."""
        key = (self._hour, self._app, self._family, minute(self._born))
        self._truth.delivery[key] += Counter(counts, scaled=counts["messages"])

    def hand(self, node: str, peer: str, delay: int | None, role: str | None = None) -> None:
        """A node handed it to another, where it came after a while, or never."""
        key = (self._hour, node, peer, role, minute(self._born))
        self._truth.links[key]["handed"] += 1
        if delay is not None:
            self._truth.links[key]["arrived"] += 1
            self._truth.delays[key].append(delay)

    def arrive(self, node: str, peer: str, delay: int) -> None:
        """It came once more than it was handed."""
        key = (self._hour, node, peer, None, minute(self._born))
        self._truth.links[key]["arrived"] += 1
        self._truth.delays[key].append(delay)

    def mention(self, node: str, peer: str, role: str | None) -> None:
        """It came from a node that did not tell of it: the link has a row, of nothing."""
        self._truth.links[self._hour, node, peer, role, minute(self._born)].update()

    def say(self, receivers: int, gateways: int) -> None:
        """It was said in its room to so many."""
        key = (self._hour, self._app, self._about["target"], minute(self._born))
        self._truth.rooms[key].append((1 / self._share, receivers, gateways))

    def queue(self, true: int, what: str, change: int = 0, age: int | None = None) -> None:
        key = (self._app, self._about["target"], minute(true))
        self._truth.queues[key][what] += 1
        self._truth.queues[key]["change"] += change
        if age is not None:
            self._truth.ages[key].append(age)
            self._truth.ready[key].append(true - age)

    def verdict(self, verdict: str, reason: str, node: str, at: int, *, open: bool = False) -> None:
        """The audit names it, and that it was last seen there and then."""
        self._truth.audit.append(
            {
                "hour": "open" if open else self._hour,
                "app": self._app,
                "family": self._family,
                "message": None,
                "label": None,
                "sender": "user/s",
                **self._about,
                "verdict": verdict,
                "reason": reason,
                "node": node,
                "at": at,
                "born": self._born,
            }
        )
