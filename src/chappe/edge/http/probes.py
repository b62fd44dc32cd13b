"""What those who watch a node ask: is it alive, does it take traffic, what has it counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from chappe.edge.http.bodies import Done
from chappe.edge.http.exchange import done
from chappe.edge.http.failure import failed
from chappe.errors import ErrorCode

# Adds to a node's own counts those of the processes that share its port.
Gather = Callable[[Iterable[Metric]], Awaitable[Iterable[Metric]]]
# What a node was to do for as long as it lives, and does no more by its own mistake.
Failures = Callable[[], Sequence[str]]
# Of which an answer names so many.
_NAMED_MAX = 8


class Probes:
    """Answers probes and scrapes, which carry no token."""

    def __init__(
        self,
        ready: Callable[[], bool],
        failures: Failures,
        collector: Collector,
        gather: Gather | None = None,
    ) -> None:
        self._ready = ready
        self._failures = failures
        self._collector = collector
        self._gather = gather

    async def alive(self) -> Response:
        """Who restarts processes asks this: one that drains is well, one that has failed is not."""
        if failures := self._failures():
            what = ", ".join(failures[:_NAMED_MAX])
            more = f" and {left} more" if (left := len(failures) - _NAMED_MAX) > 0 else ""
            reason = f"this node has failed and is to be restarted: {what}{more}"
            return failed(503, ErrorCode.OVERLOAD, reason)
        return done(Done(ok=True))

    async def ready(self) -> Response:
        if not self._ready():
            return failed(503, ErrorCode.OVERLOAD, "this node does not take traffic now")
        return await self.alive()

    async def metrics(self) -> Response:
        families = self._collector.collect()
        if self._gather is not None:
            families = await self._gather(families)
        registry = CollectorRegistry()
        registry.register(_Collected(families))
        return Response(generate_latest(registry), 200, media_type=CONTENT_TYPE_LATEST)


class _Collected(Collector):
    """Families that were collected before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families
