"""Routes of administrators about the cluster: its nodes, their links, who is where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from itertools import chain, islice
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from chappe.edge.http.access import Administration
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done, peer_of
from chappe.edge.http.relay import Elsewhere, Relayed
from chappe.errors import RequestError
from chappe.hub.hub import Hub

PAGE_MAX = 1000
# How long the other nodes may take: one that hangs must not hide those that do not.
_ANSWER_S = 3.0
_ANSWER_BYTES_MAX = 1024 * 1024
_As = Annotated[str, Query(alias="as")]


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
        fails = (400, 401, 403)
        router.add_api_route(
            "/nodes",
            self.nodes,
            methods=["GET"],
            **operation("The nodes of the cluster and their links", NodesBody, fails=fails),
        )
        router.add_api_route(
            "/routes",
            self.routes,
            methods=["GET"],
            **operation("On which nodes an app's users are", RoutesPage, fails=fails),
        )
        return router

    async def nodes(self, request: Request, as_: _As = "", app: str | None = None) -> Response:
        self._administration.grant(request, as_, app)
        own = self._view()
        nodes = [own]
        if "relayed" not in request.scope["state"]:
            asked = (self._ask(link.peer, request) for link in own.links)
            nodes += await asyncio.gather(*asked)
        return done(NodesBody(ok=True, nodes=sorted(nodes, key=lambda node: node.name)))

    async def _ask(self, name: str, request: Request) -> NodeView:
        assert self._elsewhere is not None
        headers = {n: request.headers[n] for n in ("authorization",) if n in request.headers}
        scope = request.scope
        question = Relayed(
            "GET", scope["path"], scope["query_string"], headers, b"", peer_of(request)
        )
        body = bytearray()
        try:
            async with (
                asyncio.timeout(_ANSWER_S),
                aclosing(self._elsewhere.relay(name, question)) as parts,
            ):
                async for part in parts:
                    body += part.body
                    if len(body) > _ANSWER_BYTES_MAX:
                        break
            return _read_nodes(bytes(body)).nodes[0]
        except (TimeoutError, RequestError, msgspec.MsgspecError):
            return NodeView(name=name, ok=False)

    async def routes(
        self,
        request: Request,
        as_: _As = "",
        app: str | None = None,
        start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    ) -> Response:
        grant = self._administration.grant(request, as_, app)
        found = self._hub.apps.get(grant.app)
        page: list[RouteView] = []
        if found is not None:
            elsewhere = (address for address in found.routes if address not in found.endpoints)
            addresses = islice(chain(found.endpoints, elsewhere), start, start + limit)
            page = [self._route(grant.app, address) for address in addresses]
        following = start + limit if len(page) == limit else None
        return done(RoutesPage(ok=True, routes=page, next=following))

    def _route(self, app: str, address: str) -> RouteView:
        found = self._hub.apps[app]
        here = [self._hub.node or "node"] if address in found.endpoints else []
        there = sorted(relay.name for relay in found.routes.get(address, ()))
        return RouteView(address=address, nodes=here + there)
