"""The post: takes what roles say to each other and brings it there, in this process or another.

What goes to this process itself waits in a queue, unencoded, until the process drains it: no role
is called from within another. What goes to others is encoded once, gathered until the tick ends,
and leaves as few datagrams.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from chappe.rooms.options import RoomsOptions
from chappe.rooms.role import Endpoint, Source
from chappe.wire.rooms import RoomOp

# Where a datagram came from, as the socket has it: IPv6 has four parts.
Address = tuple[str, int] | tuple[str, int, int, int]
# What one tick may leave for this process itself.
LOCAL_OPS_MAX = 262_144


class LocalPost:
    """The post of a process that is alone: all its roles are here.

    `on_waiting` is called when something begins to wait after a flush; so who calls `drain_local`
    until nothing comes, and then `flush`, is called again for whatever is said later.
    """

    # When `flush` is to be called even if nothing is said.
    due = math.inf

    def __init__(self, *, me: Endpoint, name: str, on_waiting: Callable[[], None]) -> None:
        self.me = me
        self.dropped: Counter[str] = Counter()
        self._source = Source(me, name)
        self._on_waiting = on_waiting
        self._stirred = False
        self._local: list[tuple[RoomOp, Source]] = []

    def send(self, to: Endpoint, op: RoomOp) -> None:
        """Say something to one."""
        if to == self.me:
            self._keep(op)
        else:
            self.dropped["nowhere"] += 1

    def send_all(self, to: Iterable[Endpoint], op: RoomOp) -> None:
        """Say the same to many."""
        for endpoint in to:
            self.send(endpoint, op)

    def drain_local(self) -> list[tuple[RoomOp, Source]]:
        """What was said to this process itself since the last call, in order."""
        said, self._local = self._local, []
        return said

    def take(self, data: bytes, source: Address, now: float) -> list[tuple[RoomOp, Source]]:
        """What a datagram says; nothing if it is not to be believed."""
        return []

    def flush(self, now: float) -> list[tuple[Address, bytes]]:
        """End the tick: the datagrams to be sent, and where to."""
        self._stirred = False
        if self._local:
            self._stir()
        return []

    def _keep(self, op: RoomOp) -> None:
        if len(self._local) >= LOCAL_OPS_MAX:
            self.dropped["local_full"] += 1
            return
        self._local.append((op, self._source))
        self._stir()

    def _stir(self) -> None:
        if not self._stirred:
            self._stirred = True
            self._on_waiting()


class Post(LocalPost):
    """The post of a process among others; knows the cluster's secret, and proves it."""

    def __init__(
        self,
        *,
        options: RoomsOptions,
        me: Endpoint,
        name: str,
        secret: bytes,
        cluster: str,
        entropy: Callable[[int], bytes],
        on_waiting: Callable[[], None],
    ) -> None:
        super().__init__(me=me, name=name, on_waiting=on_waiting)
        self._options = options
