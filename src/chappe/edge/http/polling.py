"""Routes of sessions without a connection of their own: polling and server-sent events (H3)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from chappe.edge.http.access import hello_of
from chappe.edge.http.bodies import Answer, Batch, Done, Opened, PollBody, PolledOp, read_body
from chappe.edge.http.description import operation
from chappe.edge.http.errand import admit
from chappe.edge.http.exchange import answered, done, peer_of, read
from chappe.edge.http.failure import JSON
from chappe.edge.http.mailbox import Mailbox, Poll
from chappe.edge.http.options import HttpOptions
from chappe.edge.http.query import As
from chappe.edge.http.question import Questions
from chappe.edge.http.relay import Relays
from chappe.edge.http.stream import EventStream, connection_of, own_events, polled_events
from chappe.errors import CloseCode, Unreachable
from chappe.hub.hub import Hub
from chappe.wire.ops import ClientOp, Join, Subscribe

_poll_decoder = msgspec.json.Decoder(PollBody)
_op_decoder = msgspec.json.Decoder(PolledOp)
_FAILS = (400, 401, 403, 404, 503)


class PollingRoutes:
    """Opens sessions, hands out what came for them, and carries out their ops."""

    def __init__(
        self, hub: Hub, options: HttpOptions, questions: Questions, relays: Relays
    ) -> None:
        self._hub = hub
        self._questions = questions
        self._relays = relays
        self._wait_ms_max = options.poll_wait_ms_max
        self._bytes_max = 2 * hub.limits.message_bytes_max

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1", tags=["sessions"])
        router.add_api_route(
            "/poll",
            self.poll,
            methods=["POST"],
            **operation(
                "Open a session, or take what came", Opened, Batch, body=PollBody, fails=_FAILS
            ),
        )
        router.add_api_route(
            "/poll/{session}/ops",
            self.op,
            methods=["POST"],
            **operation("Carry out an op on a session", Answer, body=PolledOp, fails=_FAILS),
        )
        router.add_api_route(
            "/poll/{session}",
            self.close,
            methods=["DELETE"],
            **operation("Close a session", Done, fails=(400, 403, 404)),
        )
        described = operation("Stream what comes as server-sent events", fails=_FAILS)
        described["responses"][200]["content"] = {
            "text/event-stream": {"schema": {"type": "string"}}
        }
        router.add_api_route(
            "/events", self.events, methods=["GET"], response_class=EventStream, **described
        )
        return router

    async def poll(self, request: Request) -> Response:
        data = await read(request, self._bytes_max)
        body: PollBody = read_body(_poll_decoder, data)
        if body.session is None:
            return self._open(request, body)
        if (node := self._relays.node_of(request, body.session)) is not None:
            return await self._relays.forward(node, request, data)
        poll = self._find(body.session)
        wait_s = min(body.wait_ms, self._wait_ms_max) / 1000
        batch, items = await poll.poll(body.ack, wait_s)
        if not items and poll.session.closed:
            raise unknown_session()
        # The items are JSON already; decoding them to encode them again would cost ten times this.
        content = b'{"ok":true,"batch":%d,"messages":[%b]}' % (batch, items.removesuffix(b","))
        return Response(content, 200, media_type=JSON)

    async def op(self, request: Request, session: str) -> Response:
        data = await read(request, self._bytes_max)
        if (node := self._relays.node_of(request, session)) is not None:
            return await self._relays.forward(node, request, data)
        op = read_body(_op_decoder, data)
        return answered(await self._questions.ask(self._find(session), op))

    async def close(self, request: Request, session: str) -> Response:
        if (node := self._relays.node_of(request, session)) is not None:
            return await self._relays.forward(node, request)
        self._hub.close(self._find(session).session, CloseCode.NORMAL, "closed by its client")
        return done(Done(ok=True))

    async def events(
        self,
        request: Request,
        session: str | None = None,
        subscribe: Annotated[list[str] | None, Query()] = None,
        join: Annotated[list[str] | None, Query()] = None,
        as_: As = "",
        app: str | None = None,
    ) -> Response:
        wishes: list[ClientOp] = [Subscribe(to=topic) for topic in subscribe or ()]
        wishes += [Join(to=room) for room in join or ()]
        if session is None:
            return await self._stream(request, wishes, as_, app)
        if (node := self._relays.node_of(request, session)) is not None:
            return await self._relays.forward(node, request)
        poll = self._find(session)
        for wish in wishes:
            answer = await self._questions.ask(poll, wish)
            if not answer.ok:
                return answered(answer)
        poll.session.beats_missed = 0
        connection = poll.connection = connection_of(request.scope)

        def left() -> None:
            if poll.connection is connection:
                poll.connection = None

        return EventStream(polled_events(poll), left)

    def _open(self, request: Request, body: PollBody) -> Response:
        hub = self._hub
        hello = hello_of(request, body.as_, body.app, body.token)
        poll = Poll(hub)
        lease_s = hub.options.poll_lease_s
        poll.session = admit(
            hub, "poll", self._questions.items, poll, peer_of(request), hello, lease_s=lease_s
        )
        heartbeat_s = hub.options.heartbeat_s
        opened = Opened(ok=True, session=poll.session.id, heartbeat_s=heartbeat_s, lease_s=lease_s)
        return done(opened)

    async def _stream(
        self, request: Request, wishes: list[ClientOp], as_: str, app: str | None
    ) -> Response:
        hub, questions = self._hub, self._questions
        mailbox = Mailbox(hub)
        mailbox.connection = connection_of(request.scope)
        hello = hello_of(request, as_, app)
        # Its bytes go into the stream as they are.
        session = admit(hub, "sse", questions.events, mailbox, peer_of(request), hello)
        mailbox.session = session
        refused: Response | None = None
        try:
            for wish in wishes:
                answer = await questions.ask(mailbox, wish)
                if not answer.ok:
                    refused = answered(answer)
                    break
        except BaseException:
            hub.lost(session)
            raise
        if refused is not None:
            hub.lost(session, CloseCode.NORMAL)
            return refused
        return EventStream(own_events(mailbox), lambda: hub.lost(session))

    def _find(self, id: str) -> Poll:
        session = self._hub.sessions.get(id)
        if session is None or not isinstance(session.sink, Poll):
            raise unknown_session()
        return session.sink


def unknown_session() -> Unreachable:
    """The error for a session that is nowhere."""
    return Unreachable("session: unknown, closed, or not polled in time; open another one")
