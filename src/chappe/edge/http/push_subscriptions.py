"""Routes of browsers: subscriptions to Web Push, its public key, notes that were too large for it.

A browser shows its client and token in the body, as devices do: addresses end up in logs.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Meta

from chappe.edge.http.bodies import read_body
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done, read
from chappe.edge.http.push_access import PushAccess
from chappe.edge.http.push_bodies import Strict, Word
from chappe.errors import Unreachable
from chappe.push.webpush.subscription import ENDPOINT_CHARS_MAX
from chappe.push.webpush.subscriptions import SubscriptionDesk

# A URL, two keys, and whatever else browsers say.
_BODY_BYTES_MAX = 8 * 1024
_FAILS = (400, 401, 403, 404, 503)
Endpoint = Annotated[str, Meta(min_length=1, max_length=ENDPOINT_CHARS_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=256)]


class KeysBody(msgspec.Struct, kw_only=True):
    """A browser's keys, in base64url."""

    p256dh: Key
    auth: Key


class SubscriptionView(msgspec.Struct, kw_only=True):
    """What `PushSubscription.toJSON()` gives; other fields are not looked at."""

    endpoint: Endpoint
    keys: KeysBody


class BrowserBody(Strict):
    """A client that shows its token."""

    client: Word
    token: Word


class SubscribedBody(BrowserBody):
    """Where a browser takes messages from now on."""

    subscription: SubscriptionView


class FetchBody(BrowserBody):
    """Which note it has no content of."""

    note: Word


class VapidView(msgspec.Struct, kw_only=True):
    """The `applicationServerKey` to subscribe with, in base64url."""

    ok: bool
    key: str


class SubscriptionKept(msgspec.Struct, kw_only=True):
    """It is kept for this client."""

    ok: bool
    client: str


class SubscriptionRemoved(msgspec.Struct, kw_only=True):
    """Whether there was one."""

    ok: bool
    removed: bool


class NoteFetched(msgspec.Struct, kw_only=True):
    """A note with its content, in base64."""

    ok: bool
    id: str
    job: str
    type: int
    data64: str


_subscribed_decoder = msgspec.json.Decoder(SubscribedBody)
_browser_decoder = msgspec.json.Decoder(BrowserBody)
_fetch_decoder = msgspec.json.Decoder(FetchBody)


class PushSubscriptionRoutes:
    """Answers pages and service workers of the origins that the node allows."""

    def __init__(self, access: PushAccess) -> None:
        self._access = access

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/push", tags=["push"])
        keep, remove = "Keep a browser's subscription", "Forget a browser's subscription"
        for path, method, route, summary, answer, body in (
            ("/vapid", "GET", self.vapid, "The key to subscribe with", VapidView, None),
            ("/subscriptions", "POST", self.keep, keep, SubscriptionKept, SubscribedBody),
            ("/subscriptions", "DELETE", self.remove, remove, SubscriptionRemoved, BrowserBody),
            ("/fetch", "POST", self.fetch, "A note's content", NoteFetched, FetchBody),
        ):
            described = operation(summary, answer, body=body, fails=_FAILS)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def vapid(self) -> Response:
        return done(VapidView(ok=True, key=self._desk().public_text))

    async def keep(self, request: Request) -> Response:
        body: SubscribedBody = read_body(_subscribed_decoder, await read(request, _BODY_BYTES_MAX))
        given, keys = body.subscription, body.subscription.keys
        await self._desk().subscribe(
            body.client, body.token, given.endpoint, keys.p256dh, keys.auth
        )
        return done(SubscriptionKept(ok=True, client=body.client))

    async def remove(self, request: Request) -> Response:
        body: BrowserBody = read_body(_browser_decoder, await read(request, _BODY_BYTES_MAX))
        removed = await self._desk().unsubscribe(body.client, body.token)
        return done(SubscriptionRemoved(ok=True, removed=removed))

    async def fetch(self, request: Request) -> Response:
        body: FetchBody = read_body(_fetch_decoder, await read(request, _BODY_BYTES_MAX))
        note = await self._desk().fetch(body.client, body.token, body.note)
        data64 = b64encode(note.content).decode()
        view = NoteFetched(ok=True, id=note.id, job=note.job, type=note.type, data64=data64)
        return done(view)

    def _desk(self) -> SubscriptionDesk:
        desk = self._access.desk().subscriptions
        if desk is None:
            raise Unreachable("push: Web Push is switched off here")
        return desk
