"""Routes of app servers about topics of push (P6, P8)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from chappe.edge.http.bodies import read_body
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done
from chappe.edge.http.push_access import PushAccess
from chappe.edge.http.push_bodies import (
    SubscribeBody,
    SubscribersPage,
    TopicsChanged,
    TopicsPage,
    TopicView,
)
from chappe.edge.http.query import Limit
from chappe.push.admin.clients import Which

_FAILS = (400, 401, 403, 404, 503)
After = Annotated[str, Query(max_length=255)]
_subscribe_decoder = msgspec.json.Decoder(SubscribeBody)


class PushTopicRoutes:
    """Answers app servers, each about its own topics."""

    def __init__(self, access: PushAccess) -> None:
        self._access = access

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/push/topics", tags=["push"])
        subscribe, unsubscribe = "Subscribe a client to topics", "Unsubscribe a client"
        for path, method, route, summary, answer, body in (
            ("", "GET", self.page, "The app's topics", TopicsPage, None),
            ("/subscribe", "POST", self.subscribe, subscribe, TopicsChanged, SubscribeBody),
            ("/unsubscribe", "POST", self.unsubscribe, unsubscribe, TopicsChanged, SubscribeBody),
            (
                "/{topic:path}/clients",
                "GET",
                self.subscribers,
                "How many subscribe, and who",
                SubscribersPage,
                None,
            ),
        ):
            described = operation(summary, answer, body=body, fails=_FAILS, signed=True)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def page(self, request: Request, after: After = "", limit: Limit = 100) -> Response:
        desk, app, _ = await self._access.ask(request)
        topics = await desk.topics.page(app.key, after, limit)
        views = [TopicView(topic=topic, subscribers=count) for topic, count in topics]
        following = topics[-1][0] if len(topics) == limit else None
        return done(TopicsPage(ok=True, topics=views, next=following))

    async def subscribe(self, request: Request) -> Response:
        desk, app, said = await self._access.ask(request)
        body: SubscribeBody = read_body(_subscribe_decoder, said)
        which = Which(body.client, body.device)
        client = await desk.topics.subscribe(app.key, which, body.topics)
        return done(TopicsChanged(ok=True, client=client))

    async def unsubscribe(self, request: Request) -> Response:
        desk, app, said = await self._access.ask(request)
        body: SubscribeBody = read_body(_subscribe_decoder, said)
        which = Which(body.client, body.device)
        client = await desk.topics.unsubscribe(app.key, which, body.topics)
        return done(TopicsChanged(ok=True, client=client))

    async def subscribers(
        self, request: Request, topic: str, after: After = "", limit: Limit = 100
    ) -> Response:
        desk, app, _ = await self._access.ask(request)
        count, clients = await desk.topics.subscribers(app.key, topic, after, limit)
        following = clients[-1] if len(clients) == limit else None
        page = SubscribersPage(
            ok=True, topic=topic, subscribers=count, clients=clients, next=following
        )
        return done(page)
