"""The HTTP edge of a node that has no API: for those who watch it, and nobody else.

It does without FastAPI, which a process of many small connections would rather not carry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from chappe.clock import Clock
from chappe.edge.acceptor import AcceptCounters
from chappe.edge.http.failure import answer_failures
from chappe.edge.http.gate import Gate
from chappe.edge.http.options import HttpOptions
from chappe.edge.http.probes import Failures, Gather, Probes
from chappe.edge.http.serving import Serving
from chappe.edge.origin import Origins
from chappe.events.recorder import Recorder

# No page has any business here.
NOWHERE = Origins(())


class WatchEdge(Serving):
    """Says whether a node lives, whether it works, and what it has counted."""

    def __init__(
        self,
        *,
        dev: bool,
        options: HttpOptions,
        clock: Clock,
        recorder: Recorder,
        accept_counters: AcceptCounters,
        metrics: Callable[[], Iterable[Metric]],
        failures: Failures,
        gather: Gather | None = None,
        origins: Origins = NOWHERE,
    ) -> None:
        self._accepts = accept_counters
        self._metrics = metrics
        self.draining = False
        self.collector = _Collector(self._collect)
        probes = Probes(self._ready, failures, self.collector, gather)
        app = self._make_app(probes, recorder)
        gate = Gate(app, origins, dev=dev, header_bytes_max=options.header_bytes_max)
        super().__init__(gate, options, clock)

    def _make_app(self, probes: Probes, recorder: Recorder) -> ASGIApp:
        routes = {"/healthz": probes.alive, "/readyz": probes.ready, "/metrics": probes.metrics}
        app = Starlette(
            routes=[Route(path, _route(answer), methods=["GET"]) for path, answer in routes.items()]
        )
        app.router.redirect_slashes = False
        answer_failures(app, recorder)
        return app

    def _ready(self) -> bool:
        return self._started and not self.draining

    def _collect(self) -> Iterator[Metric]:
        http = self._counts()
        for name, documentation, value in (
            ("draining", "1 while the node sends its clients elsewhere", int(self.draining)),
            ("uptime_seconds", "Seconds since the start", self._uptime_s()),
            ("http_connections", "HTTP connections open now", http["connections"]),
        ):
            yield GaugeMetricFamily(f"chappe_{name}", documentation, value=value)
        for name, documentation, value in (
            ("accepted", "Connections accepted", self._accepts.accepted),
            ("accept_failures", "Connections lost while opening", self._accepts.failed),
            ("accept_pauses", "Times descriptors ran out", self._accepts.pauses),
            ("turned_away", "Connections above an address's rate", self._accepts.turned_away),
            ("http_requests", "HTTP requests answered", http["requests"]),
        ):
            yield CounterMetricFamily(f"chappe_{name}", documentation, value=value)
        yield from self._metrics()


class _Collector(Collector):
    """What `/metrics` says, as those who gather it ask for it."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def _route(answer: Callable[[], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        return await answer()

    return route
