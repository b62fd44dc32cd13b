"""Routes of devices: a token and a comet for those of open apps, and what was clicked (P1, P9)."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from chappe.edge.http.bodies import read_body
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done, read
from chappe.edge.http.push_access import BODY_BYTES_MAX, PushAccess
from chappe.edge.http.push_bodies import ClicksBody, Counted, DeviceBody, TicketView
from chappe.push.web.clicks import Click

_device_decoder = msgspec.json.Decoder(DeviceBody)
_clicks_decoder = msgspec.json.Decoder(ClicksBody)


class PushDeviceRoutes:
    """Answers devices, and pages of the origins that the node allows."""

    def __init__(self, access: PushAccess) -> None:
        self._access = access

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/push", tags=["push"])
        router.add_api_route(
            "/devices",
            self.connect,
            methods=["POST"],
            **operation(
                "Take a token, and a comet to connect to",
                TicketView,
                body=DeviceBody,
                fails=(400, 403, 404, 429, 503),
            ),
        )
        router.add_api_route(
            "/clicks",
            self.click,
            methods=["POST"],
            **operation(
                "Tell what was clicked",
                Counted,
                body=ClicksBody,
                fails=(400, 401, 403, 404, 503),
            ),
        )
        return router

    async def connect(self, request: Request) -> Response:
        body: DeviceBody = read_body(_device_decoder, await read(request, BODY_BYTES_MAX))
        desk = self._access.desk()
        app = await desk.apps.usable(body.app)
        ticket = await desk.tokens.give_open(app, body.device)
        return done(TicketView(ok=True, **ticket._asdict()))

    async def click(self, request: Request) -> Response:
        body: ClicksBody = read_body(_clicks_decoder, await read(request, BODY_BYTES_MAX))
        clicks = [Click(each.job, each.note) for each in body.clicks]
        counted = await self._access.desk().clicks.click(body.client, body.token, clicks)
        return done(Counted(ok=True, counted=counted))
