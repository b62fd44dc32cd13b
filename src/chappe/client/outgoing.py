"""What a client's user asks for: requests that await their replies, and what waits to be sent.

Both are bounded. A request is known by its number; it waits in order until it is written, and then
for its reply.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from chappe.client.form import CarryKind, Form, PayloadKind, Receivers
from chappe.client.options import ClientOptions
from chappe.client.request import Answered, Request, Settle
from chappe.errors import BadRequest, ConnectionClosed, Overload
from chappe.wire.ops import ClientOp, Reply

# As of an answer that came too late: nobody knows whether it was done.
_LOST = "outcome unknown: the connection was lost"


class Outgoing:
    """Requests, posts, and their order.

    A request without a `due` time is failed by whoever made it.
    """

    def __init__(self, form: Form, options: ClientOptions) -> None:
        self._form = form
        self._options = options
        self._last_id = 0
        # The due ones, in the order of their times because all wait equally long; and the others.
        self._requests: dict[int, Request] = {}
        self._patient: dict[int, Request] = {}
        # By number, so that an abandoned request leaves no empty place behind.
        self._queue: OrderedDict[int, Request | bytes] = OrderedDict()
        self._reason: ConnectionClosed | None = None
        self.bytes = 0
        self.in_flight = 0

    def __len__(self) -> int:
        """How many requests await their replies."""
        return len(self._requests) + len(self._patient)

    @property
    def waiting(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._queue)

    def next_id(self) -> int:
        """A number that no other request has."""
        self._last_id += 1
        return self._last_id

    def ask(
        self, op: ClientOp, due: float | None, settle: Settle, answered: Answered | None = None
    ) -> Request:
        """Queue an op that awaits a reply until `due`; raises Overload, or BadRequest."""
        self._check_room()
        op.id = self._last_id + 1
        return self._add(self._form.encode(op), due, settle, answered)

    def ask_payload(
        self,
        kind: PayloadKind,
        to: Receivers,
        payload: bytes,
        binary: bool,
        due: float | None,
        settle: Settle,
    ) -> Request:
        """Queue a send or publish that awaits a reply; raises Overload, or BadRequest."""
        self._check_room()
        body = self._form.encode_payload(kind, self._last_id + 1, to, payload, binary)
        return self._add(body, due, settle, None)

    def ask_carrying(
        self,
        kind: CarryKind,
        fields: dict[str, Any],
        payload: bytes,
        binary: bool,
        due: float | None,
        settle: Settle,
    ) -> Request:
        """Queue any op with a payload that awaits a reply; raises Overload, or BadRequest."""
        self._check_room()
        fields["id"] = self._last_id + 1
        return self._add(self._carry(kind, fields, payload, binary), due, settle, None)

    def say_payload(self, kind: PayloadKind, to: Receivers, payload: bytes, binary: bool) -> None:
        """Queue a send or publish that gets no reply; raises Overload, or BadRequest."""
        self._say(self._form.encode_payload(kind, None, to, payload, binary))

    def say_carrying(
        self, kind: CarryKind, fields: dict[str, Any], payload: bytes, binary: bool
    ) -> None:
        """Queue any op with a payload that gets no reply; raises Overload, or BadRequest."""
        self._say(self._carry(kind, fields, payload, binary))

    def _say(self, body: bytes) -> None:
        if self._reason is not None:
            raise self._reason.again()
        self.check_body(body)
        self._last_id += 1
        self._queue[self._last_id] = body
        self.bytes += len(body)

    def take(self, bodies: list[bytes], bytes_max: int) -> None:
        """Add what to write now, up to about so many bytes; requests among it count as written."""
        queue, size = self._queue, 0
        while queue and size < bytes_max:
            _, item = queue.popitem(last=False)
            if isinstance(item, Request):
                item.written = True
                self.in_flight += 1
                item = item.body
            size += len(item)
            bodies.append(item)
        self.bytes -= size

    def answered(self, reply: Reply) -> Request | None:
        """The request that a reply is for, which awaits nothing any more."""
        request = self._requests.pop(reply.id, None) or self._patient.pop(reply.id, None)
        if request is not None:
            self._release(request)
        return request

    def abandon(self, request: Request) -> None:
        """Forget a request whose reply nobody awaits any longer; unwritten, it is not sent."""
        kept = self._requests if request.due is not None else self._patient
        if kept.pop(request.id, None) is not None:
            self._release(request)

    def expire(self, now: float) -> float | None:
        """Fail the requests that were due; return when the next one is, or None."""
        while self._requests:
            request = next(iter(self._requests.values()))
            assert request.due is not None
            if request.due > now:
                return request.due
            self.time_out(request)
        return None

    def time_out(self, request: Request) -> None:
        """Fail a request whose time is over."""
        self.abandon(request)
        what = "answer" if request.written else "connection"
        request.settle(Overload(f"no {what} in time", outcome_unknown=request.written))

    def lose(self) -> None:
        """The link is gone: what was written and not answered has an unknown outcome."""
        for request in [r for r in self._all() if r.written]:
            self.abandon(request)
            request.settle(Overload(_LOST, outcome_unknown=True))

    def end(self, reason: ConnectionClosed) -> None:
        """It is over: fail everything that waits, and refuse more."""
        self._reason = reason
        for request in self._all():
            self.abandon(request)
            request.settle(reason.again())
        self._queue.clear()
        self.bytes = 0

    def check_body(self, body: bytes) -> None:
        """Raise BadRequest for what is too large, Overload when too much waits."""
        if len(body) > self._options.message_bytes_max:
            raise BadRequest(
                f"data: {len(body)} bytes, envelope included; "
                f"{self._options.message_bytes_max} are allowed"
            )
        if self.bytes + len(body) > self._options.outgoing_bytes_max:
            raise Overload(f"{self.bytes} bytes wait to be sent already")

    def _all(self) -> list[Request]:
        return [*self._requests.values(), *self._patient.values()]

    def _add(
        self, body: bytes, due: float | None, settle: Settle, answered: Answered | None
    ) -> Request:
        self.check_body(body)
        self._last_id += 1
        request = Request(self._last_id, body, due, settle, answered)
        if due is None:
            self._patient[request.id] = request
        else:
            self._requests[request.id] = request
        self._queue[request.id] = request
        self.bytes += len(body)
        return request

    def _carry(
        self, kind: CarryKind, fields: dict[str, Any], payload: bytes, binary: bool
    ) -> bytes:
        try:
            return self._form.carry(kind, fields, payload, binary)
        except UnicodeEncodeError as error:
            raise BadRequest(f"{error.object[:40]!a} is not Unicode text") from None

    def _check_room(self) -> None:
        if self._reason is not None:
            raise self._reason.again()
        count = len(self._requests) + len(self._patient)
        if count >= self._options.requests_max:
            raise Overload(f"{count} requests await their answers already")

    def _release(self, request: Request) -> None:
        if request.written:
            self.in_flight -= 1
        else:
            del self._queue[request.id]
            self.bytes -= len(request.body)
