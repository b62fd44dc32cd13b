"""Routes of administrators: how the node is doing, who is there, tokens that are good no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from fastapi import APIRouter, Request, Response

from chappe.edge.http.access import Administration
from chappe.edge.http.bodies import (
    RevokeBody,
    Revoked,
    SessionsPage,
    SessionView,
    Status,
    read_body,
)
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done, read
from chappe.edge.http.query import As, Limit, Start, cut_page
from chappe.hub.hub import Hub
from chappe.hub.session import Session

_BODY_BYTES_MAX = 16 * 1024
_FAILS = (400, 401, 403)
_revoke_decoder = msgspec.json.Decoder(RevokeBody)


class Revocations(Protocol):
    """Remembers the tokens that are good no more."""

    def revoke(self, app: str, token_id: str, expires_at: float) -> None:
        """Refuse a token from now on; raises Forbidden when there is no room for another."""
        ...


class AdministrationRoutes:
    """Answers those who administer an app. What is told across apps is numbers only."""

    def __init__(
        self,
        hub: Hub,
        administration: Administration,
        revocations: Revocations,
        status: Callable[[], Status],
    ) -> None:
        self._hub = hub
        self._administration = administration
        self._revocations = revocations
        self._status = status

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1", tags=["administration"])
        for path, method, route, summary, answer, body in (
            ("/status", "GET", self.status, "How the node is doing", Status, None),
            ("/sessions", "GET", self.sessions, "The sessions of an app", SessionsPage, None),
            ("/tokens/revoke", "POST", self.revoke, "Revoke a token", Revoked, RevokeBody),
        ):
            described = operation(summary, answer, body=body, fails=_FAILS)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def status(self, request: Request, as_: As = "", app: str | None = None) -> Response:
        self._administration.grant(request, as_, app)
        return done(self._status())

    async def sessions(
        self,
        request: Request,
        as_: As = "",
        app: str | None = None,
        start: Start = 0,
        limit: Limit = 100,
    ) -> Response:
        grant = self._administration.grant(request, as_, app)
        own = (s for s in self._hub.sessions.values() if s.address and s.app.name == grant.app)
        page, following = cut_page(own, start, limit)
        views = [_view(session) for session in page]
        return done(SessionsPage(ok=True, sessions=views, next=following))

    async def revoke(self, request: Request) -> Response:
        body: RevokeBody = read_body(_revoke_decoder, await read(request, _BODY_BYTES_MAX))
        grant = self._administration.grant(request, body.as_, body.app)
        self._revocations.revoke(grant.app, body.jti, body.exp)
        closed = self._hub.close_token(grant.app, body.jti)
        return done(Revoked(ok=True, closed=closed))


def _view(session: Session) -> SessionView:
    return SessionView(
        address=session.address,
        edge=session.edge,
        peer=session.peer,
        topics=len(session.topics or ()),
        rooms=len(session.rooms),
        held_bytes=session.backlog_bytes,
        paused=session.paused,
    )
