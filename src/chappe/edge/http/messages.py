"""Routes of those who hold no session: send, publish, request, presence, who is in a room."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from chappe.edge.http.access import hello_of
from chappe.edge.http.bodies import Answer, PublishBody, RequestBody, SendBody, read_body
from chappe.edge.http.description import operation
from chappe.edge.http.errand import Errands
from chappe.edge.http.exchange import answered, peer_of, read
from chappe.edge.http.query import As, Who
from chappe.hub.hub import Hub
from chappe.wire.ops import Members, Presence, Publish, Send
from chappe.wire.ops import Request as ServiceRequest

_send_decoder = msgspec.json.Decoder(SendBody)
_publish_decoder = msgspec.json.Decoder(PublishBody)
_request_decoder = msgspec.json.Decoder(RequestBody)
_FAILS = (400, 401, 403, 404, 503)


class MessageRoutes:
    """Carries ops of clients that come and go with each request."""

    def __init__(self, hub: Hub, errands: Errands) -> None:
        self._bytes_max = 2 * hub.limits.message_bytes_max
        self._errands = errands

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1", tags=["messages"])
        router.add_api_route(
            "/send",
            self.send,
            methods=["POST"],
            **operation("Send to endpoints", Answer, body=SendBody, fails=_FAILS),
        )
        router.add_api_route(
            "/publish",
            self.publish,
            methods=["POST"],
            **operation("Publish to a topic or a room", Answer, body=PublishBody, fails=_FAILS),
        )
        router.add_api_route(
            "/services/{name:path}/request",
            self.request,
            methods=["POST"],
            **operation("Ask a service", Answer, body=RequestBody, fails=_FAILS),
        )
        router.add_api_route(
            "/presence",
            self.presence,
            methods=["GET"],
            **operation("Ask whether an endpoint is online", Answer, fails=_FAILS),
        )
        router.add_api_route(
            # Not the bare name: rooms may be called as what administrators ask for.
            "/rooms/{name:path}/members",
            self.members,
            methods=["GET"],
            **operation("Ask how many are in a room, and who", Answer, fails=_FAILS),
        )
        return router

    async def send(self, request: Request) -> Response:
        body: SendBody = read_body(_send_decoder, await read(request, self._bytes_max))
        op = Send(to=body.to, data=body.data, data64=body.data64)
        hello = hello_of(request, body.as_, body.app)
        return answered(await self._errands.run(hello, peer_of(request), op))

    async def publish(self, request: Request) -> Response:
        body: PublishBody = read_body(_publish_decoder, await read(request, self._bytes_max))
        op = Publish(to=body.to, data=body.data, data64=body.data64, reliable=body.reliable)
        hello = hello_of(request, body.as_, body.app)
        return answered(await self._errands.run(hello, peer_of(request), op))

    async def request(self, request: Request, name: str) -> Response:
        body: RequestBody = read_body(_request_decoder, await read(request, self._bytes_max))
        op = ServiceRequest(
            to=f"service:{name}",
            data=body.data,
            data64=body.data64,
            idempotent=body.idempotent,
            timeout_ms=body.timeout_ms,
        )
        hello = hello_of(request, body.as_, body.app)
        return answered(await self._errands.run(hello, peer_of(request), op))

    async def presence(
        self,
        request: Request,
        to: str,
        as_: As = "",
        app: str | None = None,
    ) -> Response:
        hello = hello_of(request, as_, app)
        return answered(await self._errands.run(hello, peer_of(request), Presence(to=to)))

    async def members(
        self, request: Request, name: str, who: Who = 0, as_: As = "", app: str | None = None
    ) -> Response:
        hello = hello_of(request, as_, app)
        op = Members(to=f"room:{name}", n=who)
        answer = await self._errands.run(hello, peer_of(request), op)
        if answer.reason is not None and answer.reason.startswith("n: "):
            # It is called so by those who say it as an op.
            answer.reason = "who" + answer.reason.removeprefix("n")
        return answered(answer)
