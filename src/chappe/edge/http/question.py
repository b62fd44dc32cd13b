"""Questions: ops that HTTP requests wait for, answered now or later.

Whatever HTTP asks for goes the hub's ordinary way: a session, an op, a reply put into the session's
encoding. The encodings made here catch that reply on its way into bytes and hand it to the request,
so that nothing of it gets into the session's outbox, whenever it comes:

    request: ask --> hub.receive ... (this tick, or seconds later) ... <-- encoding.op(Reply)

Every op on a session with such an encoding comes through `ask`, which gives it an id of its own.
All sessions of an edge share the encodings: a message is still encoded once for all of them.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Protocol

from chappe.edge.http.bodies import Answer
from chappe.edge.http.options import HttpOptions
from chappe.errors import BadRequest, Overload
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.wire.encoding import EVENT_STREAM, JSON_ITEMS, Encoding
from chappe.wire.ops import ClientOp, Fetch, Op, Pong, Reply, Request


class Asker(Protocol):
    """The sink of a session that asks."""

    session: Session
    # How many of its ops are under way: each is a sign of life.
    asking: int

    @property
    def ended(self) -> asyncio.Future[None]:
        """Done when the session was closed."""
        ...


class Questions:
    """The ops of an edge that are under way, by id; as many as it has requests at most."""

    def __init__(self, hub: Hub, options: HttpOptions) -> None:
        self._hub = hub
        self._answer_timeout_s = options.answer_timeout_s
        self._wait_ms_max = options.poll_wait_ms_max
        self._ids = count(1)
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self.items = self._catching(JSON_ITEMS)
        self.events = self._catching(EVENT_STREAM)

    def __len__(self) -> int:
        return len(self._asked)

    async def ask(self, asker: Asker, op: ClientOp) -> Answer:
        """Carry out an op on a session with an encoding of this edge, and give its reply.

        Raises BadRequest for one that may wait for too long, and Overload with its outcome unknown
        when no reply comes in time or the session is closed meanwhile. Cancelling it leaves the op
        to be carried out, and its reply to nobody.
        """
        session = asker.session
        limit_s = self._bound(op)
        op.id = next(self._ids)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[op.id] = answer
        asker.asking += 1
        try:
            self._hub.receive(session, op)
            if not answer.done() and not session.closed:
                await asyncio.wait(
                    (answer, asker.ended), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
                )
            if answer.done():
                return answer.result()
        finally:
            asker.asking -= 1
            del self._asked[op.id]
        reason = "the session was closed meanwhile" if session.closed else "no answer in time"
        raise Overload(reason, outcome_unknown=True)

    def _bound(self, op: ClientOp) -> float:
        """Hold what an op may wait for to what a request may; returns how long that is.

        Raises BadRequest for a fetch that is to wait for longer.
        """
        wait_ms = 0
        if isinstance(op, Fetch):
            wait_ms = op.wait_ms
            if wait_ms > self._wait_ms_max:
                raise BadRequest(f"wait_ms: must be between 0 and {self._wait_ms_max} over HTTP")
        elif isinstance(op, Request):
            wait_ms = self._wait_ms_max
            if op.timeout_ms is not None:
                wait_ms = op.timeout_ms = min(op.timeout_ms, wait_ms)
        return self._answer_timeout_s + max(wait_ms, 0) / 1000

    def _catching(self, plain: Encoding) -> Encoding:
        def op(op: Op) -> bytes:
            if isinstance(op, Reply):
                return self._caught(op.id, _answer_of(op))
            if isinstance(op, Pong) and op.id is not None:
                return self._caught(op.id, Answer(ok=True))
            return plain.op(op)

        def accepted(request: int, message: int) -> bytes:
            return self._caught(request, Answer(ok=True, message=str(message)))

        def ok(request: int) -> bytes:
            return self._caught(request, Answer(ok=True))

        name = f"{plain.name}-unanswered"
        return Encoding(name, op, plain.messages, accepted, ok, plain.message_id)

    def _caught(self, id: int, answer: Answer) -> bytes:
        """Hand an answer over; one that comes too late is nobody's."""
        asked = self._asked.get(id)
        if asked is not None and not asked.done():
            asked.set_result(answer)
        return b""


def _answer_of(reply: Reply) -> Answer:
    told: dict[str, Any] = {name: getattr(reply, name) for name in _TOLD}
    if told["message"] is not None:
        told["message"] = str(told["message"])
    return Answer(**told)


_TOLD = tuple(name for name in Answer.__struct_fields__ if name in Reply.__struct_fields__)
