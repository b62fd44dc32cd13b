"""Storage: what the queues of a broker ask of the engine that keeps them.

Nothing here waits: what takes time is told by a callback, on the loop. Records that are committed
together become durable together, or none of them does; what was committed earlier is durable
earlier. An error that says `outcome_unknown` means that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from chappe.errors import RequestError, StorageError
from chappe.queues.options import QueueOptions
from chappe.queues.record import Record, Stored
from chappe.queues.state import QueueState

# An app and the address of a queue in it.
Key = tuple[str, str]
Committed = Callable[[RequestError | None], None]


class Found(NamedTuple):
    """Messages of a lane, ascending; all others up to `upto` are no longer there."""

    messages: list[Stored]
    upto: int
    error: StorageError | None = None


class Storage(Protocol):
    """Keeps the records of queues.

    `kind` is what figures call it. An `immediate` one commits and reads before the call returns.
    One with `marks_ahead` takes marks beyond the last message of a lane.
    """

    kind: str
    immediate: bool
    marks_ahead: bool

    def open(
        self,
        key: Key,
        options: QueueOptions,
        opened: Callable[[QueueState | None, RequestError | None], None],
    ) -> None:
        """Give what is known of a queue, with its number; a new state for one that was not there.

        Such a one has no lanes yet: whoever opened it commits Made.
        """
        ...

    def known(self) -> list[QueueState]:
        """The queues that were there when this began; empty where only `open` can tell."""
        ...

    def commit(self, state: QueueState, records: Sequence[Record], done: Committed) -> None:
        """Make records durable; the state has them already.

        Raises Overload when nothing can be stored; then nothing of it has happened, and the state
        must not have been changed: look with `check` first.
        """
        ...

    def check(self, size: int = 0, *, freeing: bool = False) -> None:
        """Raise Overload when so many bytes cannot be stored now; what lets others go may still be.

        What it does not refuse, the next commit has room for.
        """
        ...

    def read(
        self, state: QueueState, lane: int, seq: int, n: int, got: Callable[[Found], None]
    ) -> None:
        """Find up to `n` messages of a lane from a seq on; told at once, or later."""
        ...

    def discard(self, state: QueueState, lane: int, seqs: list[int]) -> None:
        """Every group is done with these: nobody will read them."""
        ...

    def remove(self, state: QueueState, done: Committed) -> None:
        """Forget a queue with all it holds."""
        ...

    def forget(self, state: QueueState) -> None:
        """Keep the queue, but not for this node: it lives elsewhere now."""
        ...
