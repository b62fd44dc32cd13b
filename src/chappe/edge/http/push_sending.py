"""Routes of app servers that send: notes, and the jobs that count what becomes of them (P8, P9)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from chappe.edge.http.bodies import read_body
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done
from chappe.edge.http.push_access import PushAccess
from chappe.edge.http.push_bodies import (
    PRIORITIES,
    Cancelled,
    JobShown,
    JobsPage,
    JobView,
    PushBody,
    Pushed,
    RatiosView,
    ReplaceBody,
)
from chappe.edge.http.query import Limit
from chappe.errors import BadRequest
from chappe.push.admin.jobs import ratios
from chappe.push.admin.notes import Change
from chappe.push.admin.order import Aim, Order
from chappe.push.admin.sending import Sent
from chappe.push.job import Job, Tally

_FAILS = (400, 401, 403, 404, 503)
_SEND_FAILS = (*_FAILS, 429)
# 10,000 ids or names of a hundred bytes, or the largest content in base64 and half as many.
_SEND_BYTES_MAX = 1024 * 1024
Before = Annotated[str | None, Query(max_length=64)]
_push_decoder = msgspec.json.Decoder(PushBody)
_replace_decoder = msgspec.json.Decoder(ReplaceBody)


class PushSendingRoutes:
    """Carries orders of app servers."""

    def __init__(self, access: PushAccess) -> None:
        self._access = access

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/push", tags=["push"])
        replace, cancel = "Send another in a note's place", "Take a note back"
        for path, method, route, summary, answer, body, fails in (
            ("/send", "POST", self.send, "Push a note", Pushed, PushBody, _SEND_FAILS),
            ("/jobs", "GET", self.page, "The app's jobs", JobsPage, None, _FAILS),
            ("/jobs/{job}", "GET", self.show, "How a job does", JobShown, None, _FAILS),
            ("/jobs/{job}/cancel", "POST", self.cancel_job, cancel, Cancelled, None, _FAILS),
            ("/notes/{note}/cancel", "POST", self.cancel, cancel, Cancelled, None, _FAILS),
            (
                "/notes/{note}/replace",
                "POST",
                self.replace,
                replace,
                Pushed,
                ReplaceBody,
                _SEND_FAILS,
            ),
        ):
            described = operation(summary, answer, body=body, fails=fails, signed=True)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def send(self, request: Request) -> Response:
        desk, app, said = await self._access.ask(request, _SEND_BYTES_MAX)
        body: PushBody = read_body(_push_decoder, said)
        return _pushed(await desk.sending.send(app, _order(body)))

    async def page(self, request: Request, before: Before = None, limit: Limit = 100) -> Response:
        desk, app, _ = await self._access.ask(request)
        jobs = await desk.jobs.page(app, before, limit)
        following = jobs[-1][0].id if len(jobs) == limit else None
        return done(JobsPage(ok=True, jobs=[_view(*each) for each in jobs], next=following))

    async def show(self, request: Request, job: str) -> Response:
        desk, app, _ = await self._access.ask(request)
        return done(JobShown(ok=True, job=_view(*await desk.jobs.find(app, job))))

    async def cancel_job(self, request: Request, job: str) -> Response:
        desk, app, _ = await self._access.ask(request)
        found, _ = await desk.jobs.find(app, job)
        return done(Cancelled(ok=True, withdrawn=await desk.notes.cancel(app, found.note)))

    async def cancel(self, request: Request, note: str) -> Response:
        desk, app, _ = await self._access.ask(request)
        return done(Cancelled(ok=True, withdrawn=await desk.notes.cancel(app, note)))

    async def replace(self, request: Request, note: str) -> Response:
        desk, app, said = await self._access.ask(request, _SEND_BYTES_MAX)
        body: ReplaceBody = read_body(_replace_decoder, said)
        change = Change(content=body.content(), type=body.type, ttl_s=body.ttl_s)
        return _pushed(await desk.notes.replace(app, note, change))


def _order(body: PushBody) -> Order:
    aim = Aim(
        clients=_listed(body.client),
        devices=_listed(body.device),
        users=_listed(body.user),
        topic=body.topic,
    )
    return Order(
        aim=aim,
        content=body.content(),
        type=body.type,
        ttl_s=body.ttl_s,
        priority=_priority(body.priority),
        collapse=body.collapse,
        once=body.once,
        name=body.name,
        repeat=body.idempotency_key,
    )


def _priority(word: str) -> int:
    if word not in PRIORITIES:
        raise BadRequest(f"priority: must be one of {', '.join(PRIORITIES)}")
    return PRIORITIES[word]


def _listed(named: str | list[str] | None) -> tuple[str, ...]:
    if named is None:
        return ()
    return (named,) if isinstance(named, str) else tuple(dict.fromkeys(named))


def _pushed(sent: Sent) -> Response:
    return done(Pushed(ok=True, **msgspec.structs.asdict(sent)))


def _view(job: Job, tally: Tally) -> JobView:
    return JobView(
        job=job.id,
        note=job.note,
        name=job.name,
        aim=job.aim,
        target=job.target,
        created_ms=job.created_ms,
        expires_ms=job.expires_ms,
        cancelled_ms=job.cancelled_ms,
        ratios=RatiosView(**ratios(tally)._asdict()),
        **msgspec.structs.asdict(tally),
    )
