"""Routes of those who watch a node, as the API describes them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from chappe.edge.http.bodies import Done
from chappe.edge.http.description import operation
from chappe.edge.http.probes import Probes


class HealthRoutes:
    """Answers probes and scrapes, which carry no token."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router, probes = APIRouter(tags=["health"]), self._probes
        router.add_api_route(
            "/healthz",
            probes.alive,
            methods=["GET"],
            **operation("The process lives, and does all it is to do", Done, fails=(503,)),
        )
        router.add_api_route(
            "/readyz",
            probes.ready,
            methods=["GET"],
            **operation("The node takes traffic", Done, fails=(503,)),
        )
        # Probes that want no body; the description tells of the same route once.
        for path, route in (("/healthz", probes.alive), ("/readyz", probes.ready)):
            router.add_api_route(path, route, methods=["HEAD"], include_in_schema=False)
        described = operation("Metrics for Prometheus", fails=())
        described["responses"][200]["content"] = {"text/plain": {"schema": {"type": "string"}}}
        router.add_api_route(
            "/metrics", probes.metrics, methods=["GET"], response_class=Response, **described
        )
        return router
