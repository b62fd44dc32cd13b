"""Routes of administrators about queues: how they do, what lies in them, dead letters (Q9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from chappe.edge.http.access import Administration, hello_of
from chappe.edge.http.bodies import Answer, read_body
from chappe.edge.http.depth import deep
from chappe.edge.http.description import operation
from chappe.edge.http.errand import Errand, Errands
from chappe.edge.http.exchange import answered, done, peer_of, read
from chappe.edge.http.failure import JSON
from chappe.edge.http.query import As, Limit, Start, cut_page
from chappe.edge.http.queue_bodies import (
    MESSAGES_MAX,
    Figures,
    LettersBody,
    MessageShown,
    MessagesPage,
    QueuesPage,
)
from chappe.errors import Overload, Unreachable
from chappe.wire.ops import ClientOp, Hello, Inspect, Letters, Promote

# The addresses of the queues that an app has, wherever they live.
QueuesOf = Callable[[str], Iterable[str]]

_BODY_BYTES_MAX = 128 * 1024
_FAILS = (400, 401, 403, 404, 503)
_letters_decoder = msgspec.json.Decoder(LettersBody)
Place = Annotated[int | None, Query(ge=-(2**63), le=2**63 - 1)]
N = Annotated[int, Query(ge=1, le=MESSAGES_MAX)]


class Asker:
    """Who asks, where no token says it, and about which app."""

    def __init__(self, request: Request, as_: As = "", app: str | None = None) -> None:
        self.request = request
        self.as_ = as_
        self.app = app

    def hello(self) -> Hello:
        """What is said in its name; raises Unauthorized."""
        return hello_of(self.request, self.as_, self.app)


class Cut:
    """Which of the messages to show: so many, from a place on."""

    def __init__(self, n: N = 100, after: Place = None, reverse: bool = False) -> None:
        self.n = n
        self.after = after
        self.reverse = reverse


Asking = Annotated[Asker, Depends()]
Cutting = Annotated[Cut, Depends()]


class _Named(msgspec.Struct):
    message: str


class Page(msgspec.Struct):
    """What `inspect` answers when it shows messages."""

    messages: list[msgspec.Raw]
    next: int | None = None
    error: str | None = None


_read_page = deep(msgspec.json.Decoder(Page).decode)
_read_id = deep(msgspec.json.Decoder(_Named).decode)


def read_page(data: Any) -> Page:
    """A page as the queue told it; raises Overload when it cannot read its own messages now."""
    page = _read_page(data)
    if page.error is not None:
        raise Overload(page.error)
    return page


def no_queues(app: str) -> Iterable[str]:
    """Where nobody knows of any."""
    return ()


class QueueAdministrationRoutes:
    """Says by request what a session would say with `inspect`, `letters` and `promote`."""

    def __init__(
        self, errands: Errands, administration: Administration, queues_of: QueuesOf
    ) -> None:
        self._errands = errands
        self._administration = administration
        self._queues_of = queues_of

    def router(self) -> APIRouter:
        """The routes, ready to be included: the one that takes any name comes last."""
        router = APIRouter(prefix="/v1", tags=["queues"])
        one = "/queues/{name:path}"
        for path, method, route, summary, answer, body in (
            ("/queues", "GET", self.queues, "The queues of an app", QueuesPage, None),
            (f"{one}/messages", "GET", self.messages, "Browse", MessagesPage, None),
            (f"{one}/delayed", "GET", self.delayed, "What is not due yet", MessagesPage, None),
            (f"{one}/dead", "GET", self.dead, "The dead letters", MessagesPage, None),
            (f"{one}/dead/{{message}}", "GET", self.letter, "A dead letter", MessageShown, None),
            (f"{one}/dead/replay", "POST", self.replay, "Send again", Answer, LettersBody),
            (f"{one}/dead/purge", "POST", self.purge, "Throw away", Answer, LettersBody),
            (one, "GET", self.figures, "How a queue is doing", Figures, None),
            ("/brokers/{broker}/promote", "POST", self.promote, "Promote", Answer, None),
        ):
            described = operation(summary, answer, body=body, fails=_FAILS)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def queues(
        self, asker: Asking, start: Start = 0, limit: Limit = 100, prefix: str = ""
    ) -> Response:
        grant = self._administration.grant(asker.request, asker.as_, asker.app)
        known = (queue for queue in self._queues_of(grant.app) if queue[6:].startswith(prefix))
        page, following = cut_page(sorted(known), start, limit)
        errand = self._errands.open(asker.hello(), peer_of(asker.request))
        try:
            told = await asyncio.gather(*(self._tell(errand, queue) for queue in page))
        finally:
            self._errands.leave(errand)
        return done(QueuesPage(ok=True, queues=told, next=following))

    async def figures(self, name: str, asker: Asking) -> Response:
        return await self._inspect(asker, Inspect(to=f"queue:{name}"))

    async def messages(
        self, name: str, asker: Asking, cut: Cutting, lane: Place = None
    ) -> Response:
        return await self._browse(asker, Inspect(to=f"queue:{name}", lane=lane), cut)

    async def delayed(self, name: str, asker: Asking, cut: Cutting) -> Response:
        return await self._browse(asker, Inspect(to=f"queue:{name}", delayed=True), cut)

    async def dead(self, name: str, asker: Asking, cut: Cutting) -> Response:
        return await self._browse(asker, Inspect(to=f"queue:{name}", dead=True), cut)

    async def letter(self, name: str, message: str, asker: Asking) -> Response:
        to = f"queue:{name}"
        errand = self._errands.open(asker.hello(), peer_of(asker.request))
        try:
            after: int | None = None
            while True:
                op = Inspect(to=to, dead=True, n=MESSAGES_MAX, after=after)
                answer = await self._errands.ask(errand, op)
                if not answer.ok:
                    return answered(answer)
                page = read_page(answer.data)
                for letter in page.messages:
                    if _read_id(letter).message == message:
                        content = b'{"ok":true,"message":%b}' % bytes(letter)
                        return Response(content, 200, media_type=JSON)
                if (after := page.next) is None:
                    break
        finally:
            self._errands.leave(errand)
        raise Unreachable(f"message: {message} is not among the dead letters of {to}")

    async def replay(self, request: Request, name: str) -> Response:
        return await self._deal(request, name, "replay")

    async def purge(self, request: Request, name: str) -> Response:
        return await self._deal(request, name, "purge")

    async def promote(self, broker: str, asker: Asking, force: bool = False) -> Response:
        return answered(await self._run(asker, Promote(broker=broker, force=force)))

    async def _deal(self, request: Request, name: str, do: str) -> Response:
        body: LettersBody = read_body(_letters_decoder, await read(request, _BODY_BYTES_MAX))
        op = Letters(to=f"queue:{name}", do=do, messages=body.messages)  # type: ignore[arg-type]
        return answered(await self._run(Asker(request, body.as_, body.app), op))

    async def _browse(self, asker: Asker, op: Inspect, cut: Cut) -> Response:
        op.n, op.after, op.reverse = cut.n, cut.after, cut.reverse
        return await self._inspect(asker, op)

    async def _inspect(self, asker: Asker, op: Inspect) -> Response:
        answer = await self._run(asker, op)
        if not answer.ok:
            return answered(answer)
        # What the queue tells is a JSON object already.
        content = b'{"ok":true,%b' % bytes(answer.data).lstrip()[1:]  # type: ignore[arg-type]
        return Response(content, 200, media_type=JSON)

    async def _tell(self, errand: Errand, queue: str) -> Any:
        """A queue's figures, or why there are none: one node that hangs must not hide the rest."""
        try:
            answer = await self._errands.ask(errand, Inspect(to=queue))
        except Overload as error:
            return {"queue": queue, "error": error.code, "reason": error.reason}
        if not answer.ok:
            return {"queue": queue, "error": answer.error, "reason": answer.reason}
        return answer.data

    async def _run(self, asker: Asker, op: ClientOp) -> Answer:
        return await self._errands.run(asker.hello(), peer_of(asker.request), op)
