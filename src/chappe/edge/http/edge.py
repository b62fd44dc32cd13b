"""The HTTP edge: FastAPI, in the hub's own event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version

from fastapi import FastAPI
from prometheus_client.core import Metric

from chappe.edge.acceptor import AcceptCounters
from chappe.edge.http.access import Administration
from chappe.edge.http.administration import AdministrationRoutes, Revocations
from chappe.edge.http.api import finish_api, make_api
from chappe.edge.http.bodies import Status
from chappe.edge.http.directory import DirectoryRoutes
from chappe.edge.http.errand import Errands
from chappe.edge.http.gate import Gate
from chappe.edge.http.health import HealthRoutes
from chappe.edge.http.messages import MessageRoutes
from chappe.edge.http.metrics import HubCollector, sessions_by_edge
from chappe.edge.http.nodes import LinkView, NodeRoutes, NodeView
from chappe.edge.http.options import HttpOptions
from chappe.edge.http.polling import PollingRoutes
from chappe.edge.http.probes import Failures, Gather, Probes
from chappe.edge.http.push_access import Desk, PushAccess, no_push
from chappe.edge.http.push_routes import include_push
from chappe.edge.http.question import Questions
from chappe.edge.http.queue_administration import (
    QueueAdministrationRoutes,
    QueuesOf,
    no_queues,
)
from chappe.edge.http.queue_transfer import QueueTransferRoutes
from chappe.edge.http.queues import QueueRoutes
from chappe.edge.http.relay import Elsewhere, Parts, Relayed, Relays
from chappe.edge.http.relayed import serve_relayed
from chappe.edge.http.rooms_admin import Reporting, RoomsAdministrationRoutes, no_rooms
from chappe.edge.http.serving import Serving
from chappe.edge.origin import Origins
from chappe.errors import CloseCode
from chappe.events.counting import CountingRecorder
from chappe.hub.grant import Authenticator
from chappe.hub.hub import Hub

_EDGES = ("poll", "sse", "fetch")


class HttpEdge(Serving):
    """The HTTP API of a hub."""

    def __init__(
        self,
        hub: Hub,
        authenticator: Authenticator,
        revocations: Revocations,
        origins: Origins,
        *,
        dev: bool,
        recorder: CountingRecorder,
        accept_counters: AcceptCounters,
        addresses: Callable[[], dict[str, str]],
        options: HttpOptions | None = None,
        elsewhere: Elsewhere | None = None,
        links: Callable[[], list[LinkView]] = list,
        metrics: Callable[[], Iterable[Metric]] = tuple,
        gather: Gather | None = None,
        queues: QueuesOf = no_queues,
        rooms: Reporting = no_rooms,
        failures: Failures = tuple,
        push: Desk = no_push,
    ) -> None:
        self._hub = hub
        self._push = push
        self._rooms = rooms
        self._failures = failures
        self._queues = queues
        self._recorder = recorder
        self._addresses = addresses
        self._options = options or HttpOptions()
        self._version = version("chappe")
        self._links = links
        self.collector = HubCollector(
            hub, recorder, accept_counters, self._uptime_s, self._counts, metrics
        )
        self.app = self._make_app(authenticator, revocations, elsewhere, gather)
        gate = Gate(self.app, origins, dev=dev, header_bytes_max=self._options.header_bytes_max)
        super().__init__(gate, self._options, hub.clock)

    async def stop(self) -> None:
        """Close polled sessions and idle connections, let running requests finish within a bound,
        drop the rest."""
        for session in list(self._hub.sessions.values()):
            if session.edge in _EDGES:
                self._hub.close(session, CloseCode.GOING_AWAY, "the node stopped")
        await super().stop()

    def relayed(self, request: Relayed) -> Parts:
        """Answer a request that another node sent on, since it is about a session of this one."""
        return serve_relayed(self.app, request)

    def status(self) -> Status:
        """How the node is doing."""
        hub, kept = self._hub, self._recorder
        apps = hub.apps.values()
        return Status(
            ok=True,
            node=hub.node or "node",
            version=self._version,
            uptime_s=round(self._uptime_s(), 3),
            draining=hub.draining,
            addresses=self._addresses(),
            sessions=sessions_by_edge(hub),
            apps=len(apps),
            endpoints=sum(len(app.endpoints) for app in apps),
            topics=sum(len(app.topics) for app in apps),
            rooms=sum(len(app.rooms) for app in apps),
            held_bytes=hub.outboxes.held_bytes,
            counters={
                "opened": dict(kept.opened),
                "closed": {str(code): count for code, count in kept.closed.items()},
                "messages": kept.messages,
                "deliveries": kept.deliveries,
                "refusals": dict(kept.refusals),
                "drops": dict(kept.drops),
            },
        )

    def _make_app(
        self,
        authenticator: Authenticator,
        revocations: Revocations,
        elsewhere: Elsewhere | None,
        gather: Gather | None,
    ) -> FastAPI:
        app = make_api()
        hub, options = self._hub, self._options
        probes = Probes(self._ready, self._failures, self.collector, gather)
        app.include_router(HealthRoutes(probes).router())
        questions = Questions(hub, options)
        errands = Errands(hub, questions)
        relays = Relays(hub, options, elsewhere)
        app.include_router(MessageRoutes(hub, errands).router())
        app.include_router(PollingRoutes(hub, options, questions, relays).router())
        app.include_router(QueueRoutes(hub, options, errands, questions, relays).router())
        administration = Administration(authenticator)
        app.include_router(
            RoomsAdministrationRoutes(
                hub, administration, self._rooms, self._peers, elsewhere
            ).router()
        )
        include_push(app, PushAccess(administration, self._push))
        app.include_router(QueueTransferRoutes(hub, errands).router())
        app.include_router(
            QueueAdministrationRoutes(errands, administration, self._queues).router()
        )
        app.include_router(DirectoryRoutes(errands).router())
        app.include_router(
            AdministrationRoutes(hub, administration, revocations, self.status).router()
        )
        app.include_router(NodeRoutes(hub, administration, self._view, elsewhere).router())
        finish_api(app, self._recorder)
        return app

    def _view(self) -> NodeView:
        apps = self._hub.apps.values()
        return NodeView(
            name=self._hub.node or "node",
            version=self._version,
            sessions=len(self._hub.sessions),
            endpoints=sum(len(app.endpoints) for app in apps),
            topics=sum(len(app.topics) for app in apps),
            routes=sum(len(app.routes) for app in apps),
            watched=sum(len(app.watchers) for app in apps),
            links=self._links(),
        )

    def _peers(self) -> list[str]:
        return [link.peer for link in self._links()]

    def _ready(self) -> bool:
        return self._started and not self._hub.draining
