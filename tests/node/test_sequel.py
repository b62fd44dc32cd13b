"""The sequel: what a life before had no time to tell is told, and then said to be."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from chappe.events.eventlog import EventLog
from chappe.events.queuerecorder import QueueRecorder
from chappe.events.tail import Tail
from chappe.node.sequel import Sequel
from chappe.queues.broker import Broker
from chappe.queues.local import LocalStorage
from chappe.queues.untold import Untold
from tests.events.test_eventlog import KeptLog, StepTimer


class Storage:
    """A journal in which a message was acknowledged behind what was told."""

    journal = SimpleNamespace(end=9)

    def untold(self, position: int, until_ms: int, epoch: int | None) -> Iterator[Untold]:
        message: Any = SimpleNamespace(id=70)
        assert (position, epoch) == (3, 7)
        yield Untold("acked", "shop", "queue:jobs", 1, message, "all", 1)


def test_what_was_told_of_a_broker_is_said_at_once_so_that_no_life_tells_it_again() -> None:
    log, tail = KeptLog(), Tail()
    tail.marks, tail.epochs = (1_000_000, {"jobs": 3, "mail": 4}), {"jobs": 7, "mail": 2}
    events = EventLog("a", log, StepTimer(), lambda: 2_000_000)
    events.resume(tail, lambda: {"jobs": 9}, lambda: {"jobs": 8})
    sequel = Sequel(tail, QueueRecorder(events, lambda: 2_000_000))
    none = cast(Broker, SimpleNamespace(queues={}))
    sequel.read("jobs", cast(LocalStorage, Storage()))
    sequel.tell("jobs", none)
    assert log.kinds() == ["acked"]
    after = Tail()
    after.take(b"\x91" + events.opening()[0])
    assert (after.position("jobs"), after.position("mail")) == (9, 4)
    assert after.epochs == {"jobs": 8, "mail": 2}
    assert after.heard == set()
