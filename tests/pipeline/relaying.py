"""What four nodes tell of messages to a room, with kinds that the schema does not have.

Run as a process of its own, where it has them: `python -m tests.pipeline.relaying FOLDER`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from chappe.events.eventlog import EventLog
from chappe.events.eventrecorder import EventRecorder
from chappe.events.parquet import EventTable
from chappe.ids import EPOCH_MS
from tests.events.test_eventlog import StepTimer
from tests.pipeline.traffic import DAY, MINUTE, SECOND, Row, save

# To be put into the schema.
KINDS = """
    "relayed": Kind(
        "a message to a room left a node: to sessions, or to other nodes",
        (*_MESSAGE, "came", "came_from", "went_to", "n", "bytes"),
        part="publish",
        family="room",
        told="sampled",
    ),
    "shed": Kind(
        "a node had no place for a message to a room",
        ("app", "message", "target", "n", "reason"),
        part="drop",
        told="sampled",
    ),
    "read": Kind("somebody looked at it", ("app", "message"), part="note", told="sampled"),
"""
SHARE = 0.5
ROOM = "room:42"
_FIRST = (DAY // 1000 - EPOCH_MS) << 22
# Of these the second is not among those that are sampled.
WHOLE, UNSEEN = _FIRST, _FIRST + 1
# A second later.
SHED = ((DAY // 1000 + 1000 - EPOCH_MS) << 22) + 1


class Role:
    """A node that tells what it did, into a list."""

    def __init__(self, name: str) -> None:
        self.rows: list[Row] = []
        self._now = DAY - SECOND
        self._table = EventTable(lambda _hour, rows: self.rows.extend(rows.to_pylist()))
        self._events = EventLog(name, self, StepTimer(), lambda: self._now)
        self._recorder = EventRecorder(self._events, SHARE, lambda: self._now)
        self._events.start()

    def append(self, record: bytes, _done: Callable[..., None], *, idle: bool) -> None:
        assert not idle or self._table.rows, "a life begins with a word"
        assert self._table.take(b"\x91" + record)

    def tell(self, at: int, kind: str, **columns: object) -> None:
        self._now = at
        self._recorder.tell(kind, "chat", **columns)

    def relay(self, message: int, came: int, took: int, **columns: object) -> None:
        known = {"message": message, "sender": "user:a", "target": ROOM, "bytes": 9, "n": 0}
        self.tell(came + took, "relayed", **known | {"came": came} | columns)

    def stop(self) -> None:
        self._now = DAY + 2 * MINUTE
        self._events.stop()
        self._table.flush()


def tell_all() -> list[Row]:
    """One message that comes to all in a room, one that is not sampled, one that is lost."""
    proxy, broker, east, west = roles = [Role(name) for name in ("proxy", "broker", "east", "west")]
    for message in (WHOLE, UNSEEN):
        proxy.relay(message, DAY, 100, went_to=["broker"])
        broker.relay(message, DAY + 300, 50, came_from="proxy", went_to=["east", "west"])
        east.relay(message, DAY + 600, 100, came_from="broker", n=3)
        west.relay(message, DAY + 650, 250, came_from="broker", n=2)
        west.tell(DAY + 5000, "read", message=message)
    proxy.relay(SHED, DAY + SECOND, 100, went_to=["broker"])
    about = {"message": SHED, "target": ROOM, "n": 1, "reason": "slow_link"}
    broker.tell(DAY + SECOND + 400, "shed", **about)
    for role in roles:
        role.stop()
    return [row for role in roles for row in role.rows]


if __name__ == "__main__":
    save(tell_all(), Path(sys.argv[1]))
