"""The HTTP edge of a node that has no clients: for those who watch it, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

from fastapi import FastAPI
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from chappe.clock import Clock
from chappe.edge.acceptor import AcceptCounters
from chappe.edge.http.failure import answer_failures
from chappe.edge.http.gate import Gate
from chappe.edge.http.health import Gather, HealthRoutes
from chappe.edge.http.options import HttpOptions
from chappe.edge.http.serving import Serving
from chappe.edge.origin import Origins
from chappe.events.recorder import Recorder


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
        gather: Gather | None = None,
    ) -> None:
        self._accepts = accept_counters
        self._metrics = metrics
        self.draining = False
        self.collector = _Collector(self._collect)
        app = FastAPI(
            title="Chappe",
            version=version("chappe"),
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            redirect_slashes=False,
            telemetry={"tracing": False, "metrics": False, "logs": False},
        )
        app.include_router(HealthRoutes(self._ready, self.collector, gather).router())
        answer_failures(app, recorder)
        origins = Origins(())
        gate = Gate(app, origins, dev=dev, header_bytes_max=options.header_bytes_max)
        super().__init__(gate, options, clock)

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
