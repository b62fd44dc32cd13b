"""Queues as text: everything in one out as JSON lines, and JSON lines in (Q12).

    {"queue": {"queue": "queue:jobs", "options": {...}, ...}}      how it was made
    {"group": {"group": "g", "consumers": ["a"], ...}}             who takes from it
    {"message": {"message": "ID", "data": ..., "key": ..., ...}}   what waits, lane by lane
    {"delayed": {...}}                                             what is not due yet
    {"dead": {...}}                                                dead letters
    {"end": {"messages": 1, ...}}                                  without it, it is not whole

An import takes such lines, any of them, and does what they say in their order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from chappe.edge.http.connection import Connection
from chappe.edge.http.description import operation
from chappe.edge.http.errand import Errand, Errands
from chappe.edge.http.exchange import answered, peer_of
from chappe.edge.http.failure import JSON, STATUS, TooLarge, headers_of
from chappe.edge.http.queue_administration import Asking, read_page
from chappe.edge.http.queue_bodies import Imported
from chappe.edge.http.queue_import import Import
from chappe.edge.http.stream import connection_of
from chappe.errors import RequestError, request_error
from chappe.hub.hub import Hub
from chappe.wire.ops import Inspect

LINES = "application/x-ndjson"
VERSION = 1
# Messages asked for at once.
_PAGE = 100
_FAILS = (400, 401, 403, 404, 413, 503)
_encode = msgspec.json.encode
_LINES_SCHEMA = {LINES: {"schema": {"type": "string"}}}
FirstLine = Annotated[int, Query(ge=1, le=2**62)]


class _Figures(msgspec.Struct):
    options: dict[str, Any]
    lanes: list[dict[str, int]]
    groups: list[dict[str, Any]]


_read_figures = msgspec.json.Decoder(_Figures).decode


class QueueTransferRoutes:
    """Writes queues down for administrators, and reads what was written."""

    def __init__(self, hub: Hub, errands: Errands) -> None:
        self._hub = hub
        self._errands = errands
        self._line_bytes_max = 2 * hub.limits.message_bytes_max

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/queues/{name:path}", tags=["queues"])
        described = operation("Write a queue down as JSON lines", fails=_FAILS)
        described["responses"][200]["content"] = _LINES_SCHEMA
        router.add_api_route("/export", self.export, methods=["GET"], **described)
        described = operation("Read what was written down", Imported, fails=_FAILS)
        described["openapi_extra"]["requestBody"] = {"required": True, "content": _LINES_SCHEMA}
        router.add_api_route("/import", self.import_, methods=["POST"], **described)
        return router

    async def export(self, name: str, asker: Asking) -> Response:
        errand = self._errands.open(asker.hello(), peer_of(asker.request))
        try:
            answer = await self._errands.ask(errand, Inspect(to=f"queue:{name}"))
        except BaseException:
            self._errands.leave(errand)
            raise
        if not answer.ok:
            self._errands.leave(errand)
            return answered(answer)
        figures = _read_figures(answer.data)  # type: ignore[arg-type]
        lines = self._lines(errand, f"queue:{name}", figures)
        return _Lines(lines, lambda: self._errands.leave(errand))

    async def import_(
        self,
        name: str,
        asker: Asking,
        line: FirstLine = 1,
        producer: str | None = None,
        dead: bool = False,
    ) -> Response:
        errand = self._errands.open(asker.hello(), peer_of(asker.request))
        run = Import(
            lambda op: self._errands.ask(errand, op),
            f"queue:{name}",
            self._hub.clock.wall_ms,
            line=line,
            producer=producer,
            dead=dead,
        )
        try:
            async for text in self._read_lines(asker.request):
                await run.take(text)
            await run.finish()
        except RequestError as error:
            return _imported(run.counts, error)
        finally:
            self._errands.leave(errand)
        return _imported(run.counts, None)

    async def _lines(self, errand: Errand, to: str, figures: _Figures) -> AsyncIterator[bytes]:
        counts = {"groups": 0, "messages": 0, "delayed": 0, "dead": 0}
        yield _line(
            "queue",
            {
                "version": VERSION,
                "queue": to,
                "exported_ms": self._hub.clock.wall_ms(),
                "options": figures.options,
            },
        )
        for group in figures.groups:
            counts["groups"] += 1
            yield _line("group", group)
        shown = [
            (b"message", "messages", Inspect(to=to, lane=lane["lane"])) for lane in figures.lanes
        ]
        shown.append((b"delayed", "delayed", Inspect(to=to, delayed=True)))
        shown.append((b"dead", "dead", Inspect(to=to, dead=True)))
        for kind, counted, op in shown:
            async for page in self._browse(errand, op):
                counts[counted] += len(page)
                yield b"".join(b'{"%b":%b}\n' % (kind, bytes(message)) for message in page)
        yield _line("end", counts)

    async def _browse(self, errand: Errand, op: Inspect) -> AsyncIterator[list[msgspec.Raw]]:
        """All that a queue shows of one kind, page by page."""
        op.n = _PAGE
        while True:
            answer = await self._errands.ask(errand, op)
            if not answer.ok:
                raise request_error(answer.error or "", answer.reason or "")
            page = read_page(answer.data)
            yield page.messages
            if page.next is None:
                return
            op.after = page.next

    async def _read_lines(self, request: Request) -> AsyncIterator[bytes]:
        """The lines of a body, each bounded; the body itself may be of any length."""
        connection = connection_of(request.scope)
        rest = b""
        async for chunk in request.stream():
            *whole, rest = (rest + chunk).split(b"\n")
            for text in whole:
                yield text
            if whole and isinstance(connection, Connection):
                connection.extend()
            if len(rest) > self._line_bytes_max:
                raise TooLarge(f"body: a line of more than {self._line_bytes_max} bytes")
        if rest:
            yield rest


class _Lines(StreamingResponse):
    """Lines for as long as there are more; cut off, it lacks its end and is not taken for whole."""

    def __init__(self, content: AsyncIterator[bytes], left: Callable[[], object]) -> None:
        super().__init__(content, 200, media_type=LINES)
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except RequestError:
            connection_of(scope).abort()
        finally:
            self._left()


def _line(kind: str, value: Any) -> bytes:
    return _encode({kind: value}) + b"\n"


def _imported(counts: dict[str, Any], error: RequestError | None) -> Response:
    if error is None:
        return Response(_encode(Imported(ok=True, **counts)), 200, media_type=JSON)
    status = 413 if isinstance(error, TooLarge) else STATUS[error.code]
    body = Imported(
        ok=False,
        **counts,
        error=error.code,
        reason=error.reason,
        outcome="unknown" if error.outcome_unknown else None,
    )
    return Response(_encode(body), status, headers_of(status), JSON)
