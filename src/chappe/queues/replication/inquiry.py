"""Inquiries: asking other nodes what they know of a broker, before anybody becomes its master."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from chappe.queues.replication.peers import Peers
from chappe.wire.replica import Inquire, Standing

# A node that is linked answers in a round trip; one that does not is taken for silent.
ANSWER_S = 2.0


class Inquiries:
    """Questions that are under way, by their number."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._number = 0
        self._waiting: dict[int, tuple[str, asyncio.Future[Standing]]] = {}

    async def ask(self, broker: str, nodes: Iterable[str]) -> dict[str, Standing]:
        """What these nodes know, as far as they can be reached and answer in time."""
        linked = self._peers.linked()
        asked = {node: self._ask(broker, node) for node in nodes if node in linked}
        numbers, futures = [n for n, _ in asked.values()], [f for _, f in asked.values()]
        try:
            if futures:
                await asyncio.wait(futures, timeout=ANSWER_S)
        finally:
            for number in numbers:
                self._waiting.pop(number, None)
        return {node: f.result() for node, (_, f) in asked.items() if _answered(f)}

    def answered(self, node: str, op: Standing) -> None:
        """A node has answered."""
        asked, future = self._waiting.get(op.number, ("", None))
        if future is not None and asked == node and not future.done():
            future.set_result(op)

    def lost(self, node: str) -> None:
        """A node will not answer any more."""
        for asked, future in self._waiting.values():
            if asked == node:
                future.cancel()

    def _ask(self, broker: str, node: str) -> tuple[int, asyncio.Future[Standing]]:
        self._number += 1
        future: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = (node, future)
        self._peers.tell(node, Inquire(self._number, broker))
        return self._number, future


def _answered(future: asyncio.Future[Standing]) -> bool:
    return future.done() and not future.cancelled()
