"""Routes of those who watch a node: is it alive, does it take traffic, what has it counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from chappe.edge.http.bodies import Done
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done
from chappe.edge.http.failure import failed
from chappe.errors import ErrorCode

# Adds to a node's own counts those of the processes that share its port.
Gather = Callable[[Iterable[Metric]], Awaitable[Iterable[Metric]]]


class HealthRoutes:
    """Answers probes and scrapes, which carry no token."""

    def __init__(
        self, ready: Callable[[], bool], collector: Collector, gather: Gather | None = None
    ) -> None:
        self._ready = ready
        self._collector = collector
        self._gather = gather

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(tags=["health"])
        router.add_api_route(
            "/healthz",
            self.alive,
            methods=["GET"],
            **operation("The process lives", Done, fails=()),
        )
        router.add_api_route(
            "/readyz",
            self.ready,
            methods=["GET"],
            **operation("The node takes traffic", Done, fails=(503,)),
        )
        # Probes that want no body; the description tells of the same route once.
        for path, route in (("/healthz", self.alive), ("/readyz", self.ready)):
            router.add_api_route(path, route, methods=["HEAD"], include_in_schema=False)
        described = operation("Metrics for Prometheus", fails=())
        described["responses"][200]["content"] = {"text/plain": {"schema": {"type": "string"}}}
        router.add_api_route(
            "/metrics", self.metrics, methods=["GET"], response_class=Response, **described
        )
        return router

    async def alive(self) -> Response:
        return done(Done(ok=True))

    async def ready(self) -> Response:
        if not self._ready():
            return failed(503, ErrorCode.OVERLOAD, "this node does not take traffic now")
        return done(Done(ok=True))

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
