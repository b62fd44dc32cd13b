"""Storage in memory: for volatile queues, whose messages end with their node (Q11's off)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chappe.errors import RequestError
from chappe.queues.consumer import Loans
from chappe.queues.options import QueueOptions
from chappe.queues.record import Record, Stored
from chappe.queues.state import QueueState
from chappe.queues.storage import Committed, Found, Key

_Lane = dict[int, Stored]


class MemoryStorage:
    """Keeps messages until every group is done with them, and nothing longer."""

    kind = "memory"
    immediate = True
    marks_ahead = True

    def __init__(self, loans: Loans | None = None) -> None:
        self._loans = loans or Loans()
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._numbers = 0

    def open(
        self,
        key: Key,
        options: QueueOptions,
        opened: Callable[[QueueState | None, RequestError | None], None],
    ) -> None:
        self._numbers += 1
        opened(QueueState(self._numbers, *key, options), None)

    def known(self) -> list[QueueState]:
        return []

    def check(self, size: int = 0, *, freeing: bool = False) -> None:
        """There is room: the queue itself looks after it."""

    def commit(self, state: QueueState, records: Sequence[Record], done: Committed) -> None:
        for record in records:
            if type(record) is Stored:
                self._lane(state, record.lane)[record.seq] = record
                self._loans.bytes_held += len(record.payload) + record.extra
        done(None)

    def read(
        self, state: QueueState, lane: int, seq: int, n: int, got: Callable[[Found], None]
    ) -> None:
        messages = self._lane(state, lane)
        head = state.heads.get(lane, 0)
        found: list[Stored] = []
        upto = seq - 1
        # What is there lies close together, or there is little of it.
        if head - seq > 4 * len(messages):
            found = sorted(
                (one for one in messages.values() if one.seq >= seq), key=lambda one: one.seq
            )
            upto = head if len(found) <= n else found[n - 1].seq
            found = found[:n]
        else:
            while upto < head and len(found) < n:
                upto += 1
                message = messages.get(upto)
                if message is not None:
                    found.append(message)
        got(Found(found, upto))

    def discard(self, state: QueueState, lane: int, seqs: list[int]) -> None:
        messages = self._lane(state, lane)
        for seq in seqs:
            message = messages.pop(seq, None)
            if message is not None:
                self._loans.bytes_held -= len(message.payload) + message.extra

    def remove(self, state: QueueState, done: Committed) -> None:
        self.forget(state)
        done(None)

    def forget(self, state: QueueState) -> None:
        for number, lane in [key for key in self._lanes if key[0] == state.number]:
            for message in self._lanes.pop((number, lane)).values():
                self._loans.bytes_held -= len(message.payload) + message.extra

    def _lane(self, state: QueueState, lane: int) -> _Lane:
        return self._lanes.setdefault((state.number, lane), {})
