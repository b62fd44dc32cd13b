"""What is there, and then what is there each time it has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import structlog

from chappe.errors import ClusterError
from chappe.registry.bell import Bell, rung

log = structlog.get_logger()

T = TypeVar("T")
# Beyond the moment at which something runs out: clocks count in steps.
_SLACK_S = 0.01
_NEVER: object = object()


async def changes(
    bell: Bell,
    path: str,
    look: Callable[[], Awaitable[tuple[T, float | None]]],
    poll_s: float,
) -> AsyncIterator[T]:
    """Look, then look again at every ring, at every poll and when something may have run out.

    Gives what differs from what was given last. Waits while the ledger cannot be reached.
    """
    last: object = _NEVER
    with bell.listening(path) as event:
        while True:
            event.clear()
            pause = poll_s
            try:
                found, fresh_s = await look()
            except ClusterError as error:
                log.debug("registry cannot be read", path=path, reason=str(error))
            else:
                if fresh_s is not None:
                    pause = min(poll_s, fresh_s + _SLACK_S)
                if last is _NEVER or found != last:
                    last = found
                    yield found
            await rung(event, pause)
