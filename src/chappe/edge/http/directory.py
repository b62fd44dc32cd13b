"""Routes of administrators and managers: topics, queues and avatars, made and removed by ops."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from chappe.edge.http.access import hello_of
from chappe.edge.http.bodies import Answer, AvatarBody, TopicBody, read_body
from chappe.edge.http.description import operation
from chappe.edge.http.errand import Errands
from chappe.edge.http.exchange import answered, peer_of, read
from chappe.edge.http.query import As
from chappe.edge.http.queue_bodies import QueueBody
from chappe.wire.ops import Avatar, ClientOp, Create, Delete, Presence

_BODY_BYTES_MAX = 16 * 1024
_FAILS = (400, 401, 403, 404, 503)
_topic_decoder = msgspec.json.Decoder(TopicBody)
_queue_decoder = msgspec.json.Decoder(QueueBody)
_avatar_decoder = msgspec.json.Decoder(AvatarBody)


class DirectoryRoutes:
    """Says by request what a session would say with `create`, `delete` and `avatar`."""

    def __init__(self, errands: Errands) -> None:
        self._errands = errands

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1", tags=["directory"])
        for path, method, route, summary, body in (
            ("/topics/{name:path}", "PUT", self.make_topic, "Make a topic", TopicBody),
            ("/topics/{name:path}", "GET", self.topic, "Ask for a topic's subscribers", None),
            ("/topics/{name:path}", "DELETE", self.remove_topic, "Remove a topic", None),
            ("/queues/{name:path}", "PUT", self.make_queue, "Make a queue", QueueBody),
            ("/queues/{name:path}", "DELETE", self.remove_queue, "Remove a queue", None),
            ("/avatars/{name:path}", "PUT", self.add_avatar, "Give a user an avatar", AvatarBody),
            ("/avatars/{name:path}", "DELETE", self.remove_avatar, "Take an avatar away", None),
        ):
            described = operation(summary, Answer, body=body, fails=_FAILS)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def make_topic(self, request: Request, name: str) -> Response:
        return await self._make(request, f"topic:{name}", _topic_decoder)

    async def topic(
        self, request: Request, name: str, as_: As = "", app: str | None = None
    ) -> Response:
        return await self._run(request, as_, app, Presence(to=f"topic:{name}"))

    async def remove_topic(
        self, request: Request, name: str, as_: As = "", app: str | None = None
    ) -> Response:
        return await self._run(request, as_, app, Delete(to=f"topic:{name}"))

    async def make_queue(self, request: Request, name: str) -> Response:
        return await self._make(request, f"queue:{name}", _queue_decoder)

    async def remove_queue(
        self, request: Request, name: str, as_: As = "", app: str | None = None
    ) -> Response:
        return await self._run(request, as_, app, Delete(to=f"queue:{name}"))

    async def add_avatar(self, request: Request, name: str) -> Response:
        body: AvatarBody = read_body(_avatar_decoder, await read(request, _BODY_BYTES_MAX))
        op = Avatar(do="add", avatar=f"avatar:{name}", user=body.user)
        return await self._run(request, body.as_, body.app, op)

    async def remove_avatar(
        self,
        request: Request,
        name: str,
        user: str = "",
        as_: As = "",
        app: str | None = None,
    ) -> Response:
        op = Avatar(do="remove", avatar=f"avatar:{name}", user=user)
        return await self._run(request, as_, app, op)

    async def _make(
        self, request: Request, to: str, decoder: msgspec.json.Decoder[Any]
    ) -> Response:
        body = read_body(decoder, await read(request, _BODY_BYTES_MAX))
        # Besides who says it, a body has the options of `create`, by the same names.
        options = msgspec.structs.asdict(body)
        as_, app = options.pop("as_"), options.pop("app")
        return await self._run(request, as_, app, Create(to=to, **options))

    async def _run(self, request: Request, as_: str, app: str | None, op: ClientOp) -> Response:
        hello = hello_of(request, as_, app)
        return answered(await self._errands.run(hello, peer_of(request), op))
