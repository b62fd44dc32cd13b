"""Those around a queue: who carries out what it decides, and who looks after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from chappe.errors import RequestError
from chappe.events.recorder import Recorder
from chappe.queues.consumer import Item, Loans
from chappe.queues.options import QueueLimits
from chappe.queues.record import Stored

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from chappe.queues.queue import Queue


class Outlet(Protocol):
    """Where a queue's decisions are carried out."""

    # Told of what becomes of messages.
    recorder: Recorder

    def deliver(self, session: Session, items: Sequence[Item]) -> bool:
        """Hand messages of one group to a consumer; False when there is no room for them."""
        ...

    def fetched(self, session: Session, request: int | None, n: int) -> None:
        """A fetch is over and brought so many."""
        ...

    def refused(self, session: Session, request: int | None, error: RequestError) -> None:
        """A fetch that waited is answered with an error."""
        ...

    def dropped(self, reason: str, messages: int) -> None:
        """Messages were lost, and why."""
        ...

    def died(self, queue: str, letter: Stored) -> None:
        """A message is a dead letter: its sender is to be told."""
        ...


class Keeper(Protocol):
    """Whoever looks after a queue: the broker."""

    limits: QueueLimits
    loans: Loans
    name: str
    # About how many bytes this turn has brought to all its queues.
    adding: int

    @property
    def now(self) -> float:
        """The loop's time."""
        ...

    @property
    def now_ms(self) -> int:
        """The wall time."""
        ...

    def wake(self, queue: Queue) -> None:
        """Run a queue at the end of this turn."""
        ...

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn."""
        ...

    def settle(self) -> None:
        """Run queues whose commits take no time, now instead of at the end of the turn."""
        ...

    def arm(self) -> None:
        """Ring in time for the deadlines that were added."""
        ...

    def failed(self, queue: Queue, error: RequestError) -> None:
        """A commit of a queue failed: what it knows is not what is stored."""
        ...
