"""Routes of administrators about apps of push (P10, P12)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from chappe.edge.http.bodies import Done, read_body
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done, read
from chappe.edge.http.push_access import BODY_BYTES_MAX, PushAccess
from chappe.edge.http.push_bodies import (
    AppBody,
    AppChangeBody,
    AppMade,
    AppShown,
    AppsPage,
    AppView,
    LimitsBody,
    SecretMade,
)
from chappe.edge.http.query import As, Limit
from chappe.errors import Forbidden
from chappe.push.app import Limits, PushApp

_FAILS = (400, 401, 403, 404, 503)
After = Annotated[str, Query(max_length=64)]
_app_decoder = msgspec.json.Decoder(AppBody)
_change_decoder = msgspec.json.Decoder(AppChangeBody)


class PushAppRoutes:
    """Answers those who administer: those of operators' apps about all, others about their own."""

    def __init__(self, access: PushAccess) -> None:
        self._access = access

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/push/apps", tags=["push"])
        for path, method, route, summary, answer, body in (
            ("", "POST", self.create, "Make an app that pushes", AppMade, AppBody),
            ("", "GET", self.page, "The apps that push", AppsPage, None),
            ("/{key}", "GET", self.show, "An app", AppShown, None),
            ("/{key}", "PUT", self.change, "Change an app", AppShown, AppChangeBody),
            ("/{key}", "DELETE", self.remove, "Remove an app", Done, None),
            ("/{key}/secret", "POST", self.rotate, "Give an app a new secret", SecretMade, None),
        ):
            described = operation(summary, answer, body=body, fails=_FAILS)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def create(self, request: Request) -> Response:
        body: AppBody = read_body(_app_decoder, await read(request, BODY_BYTES_MAX))
        desk, name = self._access.scope(request, body.as_, body.app)
        if name is not None and body.name != name:
            raise Forbidden(f"name: push.desk.operators does not name {name}")
        app, secret = await desk.apps.create(body.name, open=body.open, limits=_limits(body.limits))
        return done(AppMade(ok=True, key=app.key, secret=secret, app=_view(app)))

    async def page(
        self,
        request: Request,
        as_: As = "",
        app: str | None = None,
        after: After = "",
        limit: Limit = 100,
    ) -> Response:
        desk, name = self._access.scope(request, as_, app)
        if name is None:
            apps = await desk.apps.page(after, limit)
        else:
            own = await desk.apps.named(name)
            apps = [own] if own is not None and own.key > after else []
        following = apps[-1].key if len(apps) == limit else None
        return done(AppsPage(ok=True, apps=[_view(each) for each in apps], next=following))

    async def show(
        self, request: Request, key: str, as_: As = "", app: str | None = None
    ) -> Response:
        _, found = await self._access.administer(request, as_, app, key)
        return done(AppShown(ok=True, app=_view(found)))

    async def change(self, request: Request, key: str) -> Response:
        body: AppChangeBody = read_body(_change_decoder, await read(request, BODY_BYTES_MAX))
        desk, found = await self._access.administer(request, body.as_, body.app, key)
        limits = None if body.limits is None else _limits(body.limits)
        changed = await desk.apps.change(
            found.key, open=body.open, enabled=body.enabled, limits=limits
        )
        return done(AppShown(ok=True, app=_view(changed)))

    async def rotate(
        self, request: Request, key: str, as_: As = "", app: str | None = None
    ) -> Response:
        desk, found = await self._access.administer(request, as_, app, key)
        secret = await desk.apps.rotate(found.key)
        return done(SecretMade(ok=True, key=found.key, secret=secret))

    async def remove(
        self, request: Request, key: str, as_: As = "", app: str | None = None
    ) -> Response:
        desk, found = await self._access.administer(request, as_, app, key)
        await desk.apps.remove(found.key)
        return done(Done(ok=True))


def _limits(body: LimitsBody) -> Limits:
    return Limits(**msgspec.structs.asdict(body))


def _view(app: PushApp) -> AppView:
    return AppView(
        key=app.key,
        name=app.name,
        open=app.open,
        enabled=app.enabled,
        created_ms=app.created_ms,
        limits=LimitsBody(**msgspec.structs.asdict(app.limits)),
    )
