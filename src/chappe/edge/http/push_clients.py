"""Routes of app servers about devices: tokens, clients, and the users they belong to (P8, P10)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from chappe.edge.http.bodies import read_body
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done
from chappe.edge.http.push_access import PushAccess
from chappe.edge.http.push_bodies import (
    BindBody,
    ClientSeen,
    ClientShown,
    ClientView,
    RevokeTokenBody,
    TicketView,
    TokenBody,
    TokensRevoked,
    UserShown,
    WhichBody,
)
from chappe.errors import BadRequest
from chappe.push.admin.clients import Which
from chappe.push.state.user import Client

_FAILS = (400, 401, 403, 404, 503)
ClientId = Annotated[str | None, Query(max_length=64)]
DeviceId = Annotated[str | None, Query(max_length=128)]
UserName = Annotated[str, Query(min_length=1, max_length=255)]
_token_decoder = msgspec.json.Decoder(TokenBody)
_revoke_decoder = msgspec.json.Decoder(RevokeTokenBody)
_bind_decoder = msgspec.json.Decoder(BindBody)
_which_decoder = msgspec.json.Decoder(WhichBody)


class PushClientRoutes:
    """Answers app servers, each about its own devices."""

    def __init__(self, access: PushAccess) -> None:
        self._access = access

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/push", tags=["push"])
        for path, method, route, summary, answer, body, more in (
            ("/tokens", "POST", self.give, "A token for a device", TicketView, TokenBody, (429,)),
            (
                "/tokens/revoke",
                "POST",
                self.revoke,
                "Refuse a token, or all of a client, and end its connection",
                TokensRevoked,
                RevokeTokenBody,
                (),
            ),
            ("/users", "GET", self.user, "The clients of a user", UserShown, None, ()),
            ("/users/bind", "POST", self.bind, "Say whose it is", ClientShown, BindBody, ()),
            ("/users/unbind", "POST", self.unbind, "Nobody's now", ClientShown, WhichBody, ()),
            ("/clients", "GET", self.look, "What is known of a client", ClientSeen, None, ()),
            ("/clients", "DELETE", self.remove, "Forget a client", ClientShown, None, ()),
        ):
            fails = (*_FAILS, *more)
            described = operation(summary, answer, body=body, fails=fails, signed=True)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def give(self, request: Request) -> Response:
        desk, app, said = await self._access.ask(request)
        body: TokenBody = read_body(_token_decoder, said)
        ticket = await desk.tokens.give(app, body.device)
        return done(TicketView(ok=True, **ticket._asdict()))

    async def revoke(self, request: Request) -> Response:
        desk, app, said = await self._access.ask(request)
        body: RevokeTokenBody = read_body(_revoke_decoder, said)
        if body.token is None:
            client, count = await desk.tokens.revoke_all(app, _which(body))
        elif not body.token:
            raise BadRequest("token: must not be empty")
        elif body.client is None and body.device is None:
            client, count = await desk.tokens.revoke(app, body.token), 1
        else:
            raise BadRequest("token: either it, or a client, or a device is named")
        return done(TokensRevoked(ok=True, client=client, revoked=count))

    async def user(self, request: Request, user: UserName) -> Response:
        desk, app, _ = await self._access.ask(request)
        clients = await desk.clients.of_user(app.key, user)
        return done(UserShown(ok=True, user=user, clients=[_view(each) for each in clients]))

    async def bind(self, request: Request) -> Response:
        desk, app, said = await self._access.ask(request)
        body: BindBody = read_body(_bind_decoder, said)
        client = await desk.clients.bind(app.key, body.user, _which(body))
        return done(ClientShown(ok=True, client=_view(client)))

    async def unbind(self, request: Request) -> Response:
        """Answers with whose it was."""
        desk, app, said = await self._access.ask(request)
        body: WhichBody = read_body(_which_decoder, said)
        client = await desk.clients.unbind(app.key, _which(body))
        return done(ClientShown(ok=True, client=_view(client)))

    async def look(
        self, request: Request, client: ClientId = None, device: DeviceId = None
    ) -> Response:
        desk, app, _ = await self._access.ask(request)
        seen = await desk.clients.look(app.key, Which(client, device))
        view = _view(seen.client)
        return done(ClientSeen(ok=True, client=view, comet=seen.server, topics=seen.topics))

    async def remove(
        self, request: Request, client: ClientId = None, device: DeviceId = None
    ) -> Response:
        desk, app, _ = await self._access.ask(request)
        gone = await desk.clients.remove(app.key, Which(client, device))
        return done(ClientShown(ok=True, client=_view(gone)))


def _which(body: WhichBody) -> Which:
    return Which(body.client, body.device)


def _view(client: Client) -> ClientView:
    return ClientView(client=client.id, device=client.device, user=client.user)
