"""Routes of queues for those who hold no session: send, take, acknowledge, register (H17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from fastapi import APIRouter, Request, Response

from chappe.edge.http.access import hello_of
from chappe.edge.http.basket import Basket
from chappe.edge.http.bodies import Answer, read_body
from chappe.edge.http.description import operation
from chappe.edge.http.errand import Errands, admit
from chappe.edge.http.exchange import answered, peer_of, read
from chappe.edge.http.failure import JSON
from chappe.edge.http.options import HttpOptions
from chappe.edge.http.polling import unknown_session
from chappe.edge.http.query import As
from chappe.edge.http.question import Questions
from chappe.edge.http.queue_bodies import (
    AckBody,
    CancelBody,
    ConsumerBody,
    FetchBody,
    Fetched,
    NackBody,
    QueueSendBody,
)
from chappe.edge.http.relay import Relays
from chappe.errors import BadRequest, CloseCode, Overload
from chappe.hub.hub import Hub
from chappe.wire.ops import (
    Ack,
    Cancel,
    ClientOp,
    Fetch,
    Nack,
    Presence,
    Register,
    Send,
    Unregister,
)

_send_decoder = msgspec.json.Decoder(QueueSendBody)
_fetch_decoder = msgspec.json.Decoder(FetchBody)
_ack_decoder = msgspec.json.Decoder(AckBody)
_nack_decoder = msgspec.json.Decoder(NackBody)
_cancel_decoder = msgspec.json.Decoder(CancelBody)
_consumer_decoder = msgspec.json.Decoder(ConsumerBody)
_FAILS = (400, 401, 403, 404, 503)


class QueueRoutes:
    """Lets app servers work on queues; a consumer's session lives from a fetch to its last ack."""

    def __init__(
        self,
        hub: Hub,
        options: HttpOptions,
        errands: Errands,
        questions: Questions,
        relays: Relays,
    ) -> None:
        self._hub = hub
        self._errands = errands
        self._questions = questions
        self._relays = relays
        self._gather_s = options.answer_timeout_s
        self._bytes_max = 2 * hub.limits.message_bytes_max

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/queues/{name:path}", tags=["queues"])
        for path, route, summary, answer, body in (
            ("/send", self.send, "Send to a queue", Answer, QueueSendBody),
            ("/fetch", self.fetch, "Fetch from a queue", Fetched, FetchBody),
            ("/ack", self.ack, "Acknowledge what was fetched", Answer, AckBody),
            ("/nack", self.nack, "Hand back what was fetched", Answer, NackBody),
            ("/cancel", self.cancel, "Take back a delayed message", Answer, CancelBody),
            ("/consumers", self.register, "Register a consumer", Answer, ConsumerBody),
        ):
            described = operation(summary, answer, body=body, fails=_FAILS)
            router.add_api_route(path, route, methods=["POST"], **described)
        for path, left, summary in (
            ("/consumers/{consumer}", self.unregister, "Unregister a consumer"),
            ("/groups/{group}", self.remove_group, "Give up a group and its place"),
        ):
            described = operation(summary, Answer, fails=_FAILS)
            router.add_api_route(path, left, methods=["DELETE"], **described)
        return router

    async def send(self, request: Request, name: str) -> Response:
        body: QueueSendBody = read_body(_send_decoder, await read(request, self._bytes_max))
        # Besides who says it, a body has the fields of `send`, by the same names.
        fields = msgspec.structs.asdict(body)
        as_, app = fields.pop("as_"), fields.pop("app")
        return await self._run(request, as_, app, Send(to=f"queue:{name}", **fields))

    async def cancel(self, request: Request, name: str) -> Response:
        body: CancelBody = read_body(_cancel_decoder, await read(request, self._bytes_max))
        op = Cancel(message=body.message, to=f"queue:{name}")
        return await self._run(request, body.as_, body.app, op)

    async def register(self, request: Request, name: str) -> Response:
        body: ConsumerBody = read_body(_consumer_decoder, await read(request, self._bytes_max))
        fields = msgspec.structs.asdict(body)
        as_, app = fields.pop("as_"), fields.pop("app")
        return await self._run(request, as_, app, Register(to=f"queue:{name}", **fields))

    async def unregister(
        self,
        request: Request,
        name: str,
        consumer: str,
        group: str | None = None,
        as_: As = "",
        app: str | None = None,
    ) -> Response:
        await self._check_no_queue(request, as_, app, f"queue:{name}/consumers/{consumer}")
        op = Unregister(to=f"queue:{name}", name=consumer, group=group)
        return await self._run(request, as_, app, op)

    async def remove_group(
        self, request: Request, name: str, group: str, as_: As = "", app: str | None = None
    ) -> Response:
        await self._check_no_queue(request, as_, app, f"queue:{name}/groups/{group}")
        op = Unregister(to=f"queue:{name}", group=group)
        return await self._run(request, as_, app, op)

    async def _check_no_queue(
        self, request: Request, as_: str, app: str | None, address: str
    ) -> None:
        """A name may hold slashes: refuse a path that may mean a queue; raises BadRequest."""
        hello = hello_of(request, as_, app)
        answer = await self._errands.run(hello, peer_of(request), Presence(to=address))
        if answer.ok and answer.online:
            raise BadRequest(
                f"path: {address} is a queue, too; say `delete` or `unregister` over a session"
            )

    async def fetch(self, request: Request, name: str) -> Response:
        data = await read(request, self._bytes_max)
        body: FetchBody = read_body(_fetch_decoder, data)
        if body.session is not None:
            if (node := self._relays.node_of(request, body.session)) is not None:
                return await self._relays.forward(node, request, data)
            answer, items = await self._fetch(self._find(body.session), name, body)
            return _fetched(answer, items, body.session)
        basket = self._open(request, body)
        items = b""
        try:
            answer, items = await self._fetch(basket, name, body)
        finally:
            if not items:
                self._hub.lost(basket.session, CloseCode.NORMAL)
        return _fetched(answer, items, basket.session.id if items else None)

    async def ack(self, request: Request, name: str) -> Response:
        data = await read(request, self._bytes_max)
        body: AckBody = read_body(_ack_decoder, data)
        return await self._settle(request, data, body, lambda each: Ack(message=each))

    async def nack(self, request: Request, name: str) -> Response:
        data = await read(request, self._bytes_max)
        body: NackBody = read_body(_nack_decoder, data)
        delay_ms = body.delay_ms
        return await self._settle(
            request, data, body, lambda each: Nack(message=each, delay_ms=delay_ms)
        )

    async def _settle(
        self, request: Request, data: bytes, body: AckBody, said_of: Callable[[str], ClientOp]
    ) -> Response:
        if (node := self._relays.node_of(request, body.session)) is not None:
            return await self._relays.forward(node, request, data)
        basket = self._find(body.session)
        ids = body.message if isinstance(body.message, list) else [body.message]
        ask = self._questions.ask
        answers = await asyncio.gather(*(ask(basket, said_of(each)) for each in ids))
        if body.leave:
            self._hub.close(basket.session, CloseCode.NORMAL, "closed by its client")
        failed = [answer for answer in answers if not answer.ok]
        return answered(failed[0] if failed else Answer(ok=True, n=len(ids)))

    async def _run(self, request: Request, as_: str, app: str | None, op: ClientOp) -> Response:
        hello = hello_of(request, as_, app)
        return answered(await self._errands.run(hello, peer_of(request), op))

    def _open(self, request: Request, body: FetchBody) -> Basket:
        hub = self._hub
        basket = Basket(hub)
        hello = hello_of(request, body.as_, body.app)
        basket.session = admit(
            hub,
            "fetch",
            self._questions.items,
            basket,
            peer_of(request),
            hello,
            lease_s=hub.options.poll_lease_s,
            listed=False,
        )
        return basket

    async def _fetch(self, basket: Basket, name: str, body: FetchBody) -> tuple[Answer, bytes]:
        if basket.busy:
            raise Overload("session: a fetch of it is under way")
        op = Fetch(
            to=f"queue:{name}",
            n=body.n,
            wait_ms=body.wait_ms,
            group=body.group,
            tags=body.tags,
            headers=body.headers,
            name=body.name,
        )
        basket.busy = True
        try:
            answer = await self._questions.ask(basket, op)
            return answer, await basket.gather(answer.n or 0, self._gather_s)
        finally:
            basket.busy = False

    def _find(self, id: str) -> Basket:
        session = self._hub.sessions.get(id)
        if session is None or not isinstance(session.sink, Basket):
            raise unknown_session()
        return session.sink


def _fetched(answer: Answer, items: bytes, session: str | None) -> Response:
    if not answer.ok and not items:
        return answered(answer)
    # The items are JSON already; decoding them to encode them again would cost ten times this.
    head = msgspec.json.encode(session)
    content = b'{"ok":true,"session":%b,"messages":[%b]}' % (head, items.removesuffix(b","))
    return Response(content, 200, media_type=JSON)
