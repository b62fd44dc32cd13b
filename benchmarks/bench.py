"""A run: the servers under measurement, the load, and how far it has got."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.figure import Figure, Table, figure
from benchmarks.load import Figures, Load
from benchmarks.server import Recipe, Server


@dataclass(frozen=True)
class Subject:
    """A server spoken to in one of its protocols."""

    label: str
    server: str
    protocol: str

    @property
    def ours(self) -> bool:
        return self.server == "chappe"


JSON = Subject("Chappe, JSON on WebSocket", "chappe", "json")
PACKED = Subject("Chappe, packed on TCP", "chappe", "packed")
SINGLE = Subject("Chappe, packed, one op a frame", "chappe", "packed-single")
NATS = Subject("NATS", "nats", "nats")
REDIS = Subject("Redis pub/sub", "redis", "redis")
MOSQUITTO = Subject("Mosquitto", "mosquitto", "mqtt")
SUBJECTS = (JSON, PACKED, NATS, REDIS, MOSQUITTO)

# Repetition by repetition, for each subject.
Samples = dict[Subject, list[Figures]]


class Measurement(Protocol):
    """Something that can be measured on its own, by name."""

    @property
    def name(self) -> str: ...

    def steps(self, bench: Bench) -> int:
        """How many times it will call `bench.advance`."""
        ...

    def measure(self, bench: Bench) -> list[Table]:
        """Measure, and say what was found."""
        ...


@dataclass
class Bench:
    """What a measurement works with. Servers start when first used and stop with the run."""

    load: Load
    recipes: dict[str, Recipe]
    # How to start Chappe, for those who want more of it than one server.
    chappe: str
    quick: bool
    advance: Callable[[str], None]
    # Whether other servers are measured beside it.
    peers: bool = True

    def __post_init__(self) -> None:
        self._running: dict[str, Server] = {}

    def present(self, wanted: Iterable[Subject] = SUBJECTS) -> list[Subject]:
        """Those subjects whose server is there."""
        return [subject for subject in wanted if subject.server in self.recipes]

    def server(self, subject: Subject) -> Server:
        """The subject's server, shared by all measurements that may share it."""
        if subject.server not in self._running:
            self._running[subject.server] = self.recipes[subject.server].start()
        return self._running[subject.server]

    def repeat(
        self,
        times: int,
        subjects: Sequence[Subject],
        title: str,
        once: Callable[[Subject], Figures],
    ) -> Samples:
        """Measure each subject in turn, several times over: drift then meets them all alike."""
        samples: Samples = {subject: [] for subject in subjects}
        for _ in range(times):
            for subject in subjects:
                self.advance(f"{title}: {subject.label}")
                samples[subject].append(once(subject))
        return samples

    def rest(self, seconds: float) -> None:
        """Let heartbeats and timers do what they do."""
        time.sleep(min(seconds, 1.0) if self.quick else seconds)

    def stop(self) -> None:
        """Stop every server that was started."""
        for server in self._running.values():
            server.stop()
        self._running.clear()


def pick(samples: Samples, subject: Subject, name: str) -> Figure:
    """One figure of one subject over all repetitions."""
    return figure([figures[name] for figures in samples[subject]])
