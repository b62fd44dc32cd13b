"""Routes of administrators about the cluster: its nodes, their links, who is where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain

import msgspec
from fastapi import APIRouter, Request, Response

from chappe.edge.http.access import Administration
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done
from chappe.edge.http.neighbours import came_from_a_node, maybe_ask
from chappe.edge.http.query import As, Limit, Start, cut_page
from chappe.edge.http.relay import Elsewhere
from chappe.hub.app import App
from chappe.hub.hub import Hub

_FAILS = (400, 401, 403)


class LinkView(msgspec.Struct, kw_only=True):
    """A link to another node, as its own end sees it."""

    peer: str
    up_s: float
    round_trip_ms: float | None
    clock_offset_ms: float | None
    bytes_in: int
    bytes_out: int
    waiting_bytes: int
    pending: int


class NodeView(msgspec.Struct, kw_only=True):
    """A node, as it sees itself."""

    name: str
    ok: bool = True
    version: str = ""
    sessions: int = 0
    endpoints: int = 0
    topics: int = 0
    routes: int = 0
    watched: int = 0
    links: list[LinkView] = []


class NodesBody(msgspec.Struct, kw_only=True):
    """All nodes that this one knows; one that did not answer is not `ok`."""

    ok: bool
    nodes: list[NodeView]


class RouteView(msgspec.Struct, kw_only=True):
    """Where a user is."""

    address: str
    nodes: list[str]


class RoutesPage(msgspec.Struct, kw_only=True):
    """A page of an app's users, with where they are."""

    ok: bool
    routes: list[RouteView]
    next: int | None = None


_read_nodes = msgspec.json.Decoder(NodesBody).decode


class NodeRoutes:
    """Answers those who administer an app. What is told across apps is numbers only."""

    def __init__(
        self,
        hub: Hub,
        administration: Administration,
        view: Callable[[], NodeView],
        elsewhere: Elsewhere | None,
    ) -> None:
        self._hub = hub
        self._administration = administration
        self._view = view
        self._elsewhere = elsewhere

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1", tags=["administration"])
        for path, route, summary, answer in (
            ("/nodes", self.nodes, "The nodes of the cluster and their links", NodesBody),
            ("/routes", self.routes, "On which nodes an app's users are", RoutesPage),
        ):
            described = operation(summary, answer, fails=_FAILS)
            router.add_api_route(path, route, methods=["GET"], **described)
        return router

    async def nodes(self, request: Request, as_: As = "", app: str | None = None) -> Response:
        self._administration.grant(request, as_, app)
        own = self._view()
        nodes = [own]
        if not came_from_a_node(request):
            asked = (self._ask(link.peer, request) for link in own.links)
            nodes += await asyncio.gather(*asked)
        return done(NodesBody(ok=True, nodes=sorted(nodes, key=lambda node: node.name)))

    async def _ask(self, name: str, request: Request) -> NodeView:
        assert self._elsewhere is not None
        answer = await maybe_ask(self._elsewhere, name, request)
        try:
            return _read_nodes(answer or b"").nodes[0]
        except msgspec.MsgspecError:
            return NodeView(name=name, ok=False)

    async def routes(
        self,
        request: Request,
        as_: As = "",
        app: str | None = None,
        start: Start = 0,
        limit: Limit = 100,
    ) -> Response:
        grant = self._administration.grant(request, as_, app)
        found = self._hub.apps.get(grant.app)
        if found is None:
            return done(RoutesPage(ok=True, routes=[]))
        elsewhere = (address for address in found.routes if address not in found.endpoints)
        page, following = cut_page(chain(found.endpoints, elsewhere), start, limit)
        routes = [self._route(found, address) for address in page]
        return done(RoutesPage(ok=True, routes=routes, next=following))

    def _route(self, app: App, address: str) -> RouteView:
        here = [self._hub.node or "node"] if address in app.endpoints else []
        there = sorted(relay.name for relay in app.routes.get(address, ()))
        return RouteView(address=address, nodes=here + there)
