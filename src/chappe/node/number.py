"""A node's number: part of every message id, so no two nodes may have the same at one time.

Numbers are given out in turn, so that the one of a node that stopped, or was stopped and wakes up
again, is not given to another for as long as a thousand others have not come after it.
"""

from __future__ import annotations

import asyncio
import re
import socket

import structlog

from chappe.errors import ClusterError, ConfigError, Held
from chappe.ids import NODE_MAX, Snowflake
from chappe.registry.coordination import Coordination, Lease
from chappe.registry.registry import Registry

log = structlog.get_logger()

# How long a registry that does not answer is left alone.
_RETRY_S = 1.0
_ORDINAL = re.compile(r"-(\d{1,4})$")


class NodeNumber:
    """Claims a number for a node and keeps it."""

    def __init__(self, registry: Registry, holder: str, number: int | None, ids: Snowflake) -> None:
        self._coordination = registry.coordination
        self._kind = registry.kind
        self._holder = holder.encode()
        self._given = number
        self._ids = ids
        self._number = 0
        self._lease: Lease | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def claim(self) -> None:
        """Take a number; raises ConfigError or ClusterError."""
        if self._coordination is None:
            self._ids.renumber(self._ordinal() if self._given is None else self._given)
            return
        if self._given is not None and self._kind == "keeper":
            self._ids.renumber(self._given)  # given out by the one supervisor of all its nodes
            return
        if self._given is not None:
            await self._claim_given(self._coordination, self._given)
            return
        await self._claim(self._coordination)
        self._keeper = asyncio.get_running_loop().create_task(self._keep(self._coordination))

    def _ordinal(self) -> int:
        """The number at the end of a StatefulSet's host name."""
        found = _ORDINAL.search(socket.gethostname())
        if found is None or int(found[1]) > NODE_MAX:
            raise ConfigError(
                f"number: {self._kind}:// cannot give nodes their numbers; set one for each, or "
                "run them as a StatefulSet, whose host names end in one"
            )
        return int(found[1])

    async def _claim_given(self, coordination: Coordination, number: int) -> None:
        try:
            self._lease = await coordination.acquire(f"/numbers/{number}", self._holder)
        except Held as held:
            # Its own, from before a crash, is not somebody else's.
            if held.holder != self._holder:
                other = held.holder.decode(errors="replace")
                raise ConfigError(f"number: {number} is the number of {other}") from None
        self._ids.renumber(number)

    async def _claim(self, coordination: Coordination) -> None:
        for _ in range(NODE_MAX + 1):
            number = await coordination.next_id("/numbers") % (NODE_MAX + 1)
            try:
                self._lease = await coordination.acquire(f"/numbers/{number}", self._holder)
            except Held:
                continue
            self._number = number
            self._ids.renumber(number)
            return
        raise ClusterError(f"registry: all {NODE_MAX + 1} numbers of nodes are taken")

    async def _keep(self, coordination: Coordination) -> None:
        """Take the number again when it is lost, or another if somebody has it by now.

        A registry that forgot everything gives numbers from the first on: whoever lost theirs and
        took the next would take one that another node still uses.
        """
        while True:
            assert self._lease is not None
            await self._lease.lost()
            log.warning("number.lost", number=self._number)
            try:
                path = f"/numbers/{self._number}"
                self._lease = await coordination.acquire(path, self._holder)
            except Held:
                await self._claim_another(coordination)
            except ClusterError as error:
                log.warning("number.claim", reason=str(error))
                await asyncio.sleep(_RETRY_S)

    async def _claim_another(self, coordination: Coordination) -> None:
        try:
            await self._claim(coordination)
        except ClusterError as error:
            log.warning("number.claim", reason=str(error))
            await asyncio.sleep(_RETRY_S)

    async def release(self) -> None:
        """Give the number back."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        if self._lease is not None:
            try:
                await self._lease.release()
            except ClusterError as error:
                log.warning("number.release", reason=str(error))
