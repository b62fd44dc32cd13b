"""Apps whose devices are here: when one is removed or switched off, its sessions end.

The store is asked for some apps every second, all of them in turn. So what an administrator does is
known here as soon as elsewhere (a second later where there are not very many apps), and no word of
it can get lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from chappe.errors import StorageError
from chappe.push.comet.audience import Audience
from chappe.push.comet.batch import Batch
from chappe.push.comet.counters import Counters
from chappe.push.comet.ending import UNSERVED, Ending
from chappe.push.comet.session import DeviceSession
from chappe.push.state.meta import MetaState

# Asked of the store in a second.
APPS_AT_ONCE = 256
# Sessions ended in one turn of the loop.
_SLICE = 64


class Apps:
    """Looks whether the apps of sessions are served."""

    def __init__(
        self,
        meta: MetaState,
        audience: Audience,
        counters: Counters,
        end: Callable[[DeviceSession, Ending], None],
    ) -> None:
        self._meta = meta
        self._audience = audience
        self._counters = counters
        self._end = end
        # Those that were not asked about in this round.
        self._left: deque[str] = deque()
        self._batch: Batch[None] = Batch("apps", self._work, at_once=1, most=1)

    def beat(self) -> None:
        """Look at some; every second."""
        if self._audience.apps:
            self._batch.put(None)

    async def idle(self) -> None:
        """Wait until those are looked at."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Look at no more."""
        self._batch.cancel()

    async def _work(self, _: list[None]) -> None:
        if not self._left:
            self._left.extend(self._audience.apps)
        keys = [self._left.popleft() for _ in range(min(len(self._left), APPS_AT_ONCE))]
        try:
            apps = await self._meta.apps(keys)
        except StorageError:
            # Nobody is ended because the store is away; there is another look.
            self._counters.store_failures["apps"] += 1
            return
        gone = {key for key in keys if key not in apps or not apps[key].enabled}
        if gone:
            await self._end_all(gone)

    async def _end_all(self, apps: set[str]) -> None:
        found = [each for each in self._audience.clients.values() if each.app in apps]
        for at, session in enumerate(found):
            self._end(session, UNSERVED)
            if at % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
