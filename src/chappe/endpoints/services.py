"""The services of a node: carries out what sessions ask of them, on a hub (H18).

A request's id, as its provider sees it, is `HOME.N`: the node where the service lives, and a number
that it never gives again, so that an answer which comes too late meets nobody else's request.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from chappe.endpoints.limits import ServiceLimits
from chappe.endpoints.provider import Call, Calls
from chappe.endpoints.service import Service
from chappe.errors import BadRequest, ErrorCode, Overload, RequestError, Unreachable
from chappe.hub.deadline import Alarm, Timer
from chappe.hub.permission import check_kind, permit
from chappe.wire.ops import (
    ClientOp,
    Op,
    PayloadOp,
    Provide,
    Reply,
    Request,
    Respond,
    Unprovide,
)

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

_Filled = TypeVar("_Filled", Request, Reply)
_CODES = frozenset(ErrorCode)
# A sentence or two: what is longer is data.
REASON_CHARACTERS_MAX = 1_000
# Where sessions come in that stand for those of other nodes.
LINK = "link"


class Services:
    """All services of a hub, those of each app apart."""

    def __init__(self, hub: Hub, timer: Timer, limits: ServiceLimits | None = None) -> None:
        self._hub = hub
        self._timer = timer
        self._limits = limits or ServiceLimits()
        self._calls = Calls()
        self._alarm = Alarm(timer, self._calls.deadlines)
        self._exchange = _HubExchange(hub)
        self._services: dict[tuple[str, str], Service] = {}
        self._provided: dict[Session, dict[Service, None]] = {}
        hub.on_left.append(self.session_closed)

    def handlers(self) -> dict[type[Op], Callable[[Session, Any], None]]:
        """What sessions may say of services."""
        return {
            Provide: self.provide,
            Unprovide: self.unprovide,
            Request: self.request,
            Respond: self.respond,
        }

    def online(self, app: str, address: str) -> bool:
        """Whether a service has a provider (H8)."""
        return (app, address) in self._services

    def provide(self, session: Session, op: Provide) -> None:
        """Let a session take requests, and make the service if it is the first; raises
        RequestError."""
        permit(session.grant.provide, "provide", op.to)
        service = self._services.get((session.app.name, op.to)) or self._new(session, op.to)
        provided = self._provided.setdefault(session, {})
        if service not in provided:
            self._make_room(session, provided)
        self._services[session.app.name, op.to] = service
        provided[service] = None
        self._ok(session, op)
        service.provide(session, self._timer.time())
        self._alarm.set()

    def unprovide(self, session: Session, op: Unprovide) -> None:
        """Let a session take no more requests; raises BadRequest if it does not provide."""
        service = self._services.get((session.app.name, op.to))
        if service is None or not service.withdraw(session):
            check_kind(op.to, "service")
            raise BadRequest(f"to: this session does not provide {op.to}")
        if session not in service:
            del self._provided[session][service]
        self._maybe_reclaim(session.app.name, service)
        self._ok(session, op)

    def request(self, session: Session, op: Request) -> None:
        """Ask a provider, or let it wait for one; raises RequestError."""
        permit(session.grant.send, "request from", op.to)
        came_from = _carried_by(session, op)
        service = self._services.get((session.app.name, op.to))
        if service is None:
            check_kind(op.to, "service")
            raise Unreachable(f"{op.to} has no provider")
        timeout_s = self._timeout_s(op)
        if len(self._calls.by_requester.get(session, ())) >= self._limits.requests_max:
            raise Overload(f"this session has {self._limits.requests_max} requests open already")
        payload, binary = self._hub.take(session, op)
        number = op.request if op.request is not None else self._number()
        recorder, size, request = self._hub.recorder, len(payload), op.id
        call = Call(
            service,
            number,
            session,
            request,
            payload,
            binary,
            op.idempotent,
            recorder.came,
            came_from,
        )
        service.request(call, session, timeout_s, self._timer.time())
        app, sender = session.app.name, session.address
        recorder.asked(app, number, sender, op.to, session.id, size, call.came, came_from)
        self._alarm.set()

    def respond(self, session: Session, op: Respond) -> None:
        """Answer who asked; raises BadRequest unless this session has the request in hand,
        Unreachable if who asked is gone."""
        call = self._calls.by_id.get(op.request)
        if call is None or call.provider is None or call.provider.session is not session:
            raise BadRequest(
                "request: not in this session's hands: it was answered already, its time ran out, "
                "or it was never given to it"
            )
        reply = self._reply(session, op, call)
        requester = call.requester
        call.service.answered(call, self._timer.time())
        if requester is None:
            raise Unreachable("request: whoever asked is gone")
        reason = op.error or ""
        refusal = self._answer(call, requester, reply)
        if refusal is not None:
            reason = f"{refusal.code}, outcome unknown"
        # Nothing of a tick leaves before its end: this is told first.
        self._hub.recorder.answered(requester.app.name, call.id, call.came, reason, call.came_from)
        self._ok(session, op)

    def _number(self) -> str:
        """A request's id, by which other nodes find the one that it lives on."""
        tag, number = self._hub.tag, self._hub.ids.next()
        return f"{tag}.{number}" if tag else str(number)

    def session_closed(self, session: Session) -> None:
        """Forget what a session asked, and let others take what it was asked."""
        for call in self._calls.of(session):
            call.service.abandon(call)
            self._hub.recorder.answered(
                session.app.name, call.id, call.came, "abandoned", call.came_from
            )
        now = self._timer.time()
        for service in self._provided.pop(session, ()):
            service.leave(session, now)
            self._maybe_reclaim(session.app.name, service)
        self._alarm.set()

    def stop(self) -> None:
        """Let no deadline pass any more."""
        self._alarm.stop()

    def _new(self, session: Session, to: str) -> Service:
        check_kind(to, "service")
        if len(self._services) >= self._limits.services_max:
            raise Overload(f"this node holds {self._limits.services_max} services already")
        return Service(to, self._limits, self._calls, self._exchange)

    def _make_room(self, session: Session, provided: dict[Service, None]) -> None:
        """Raise Overload if a session provides as many services as it may."""
        if len(provided) >= self._limits.services_per_provider_max:
            for service in [service for service in provided if session not in service]:
                del provided[service]
        if len(provided) >= self._limits.services_per_provider_max:
            raise Overload(f"a session provides {len(provided)} services at most")

    def _maybe_reclaim(self, app: str, service: Service) -> None:
        key = (app, service.address)
        if not service.active and self._services.get(key) is service:
            del self._services[key]

    def _timeout_s(self, op: Request) -> float:
        most = self._limits.timeout_s
        if op.timeout_ms is None:
            return most
        if not 1 <= op.timeout_ms <= most * 1000:
            raise BadRequest(f"timeout_ms: must be between 1 and {most * 1000:.0f}")
        return op.timeout_ms / 1000

    def _reply(self, session: Session, op: Respond, call: Call) -> Reply:
        """What a respond says to who asked; raises RequestError, and the call stays open."""
        request = call.request or 0
        if op.error is None and op.reason is None:
            payload, binary = self._hub.take(session, op)
            return _filled(Reply(id=request, ok=True), payload, binary)
        if op.error not in _CODES:
            raise BadRequest("error: must be one of " + ", ".join(sorted(_CODES)))
        if op.reason is not None and len(op.reason) > REASON_CHARACTERS_MAX:
            raise BadRequest(f"reason: more than {REASON_CHARACTERS_MAX} characters")
        if _has_payload(op):
            raise BadRequest("data: an error has none")
        return Reply(id=request, ok=False, error=op.error, reason=op.reason or "")

    def _answer(self, call: Call, requester: Session, reply: Reply) -> Overload | None:
        """Tell who asked, if it wants to know; or why it was told that nobody knows."""
        if call.request is None:
            return None
        outboxes = self._hub.outboxes
        if outboxes.put_promised(requester, requester.encoding.op(reply)):
            return None
        error = Overload("no room for the response in this outbox", outcome_unknown=True)
        self._hub.refuse(requester, call.request, error)
        return error

    def _ok(self, session: Session, op: ClientOp) -> None:
        if op.id is not None:
            self._hub.answer(session, Reply(id=op.id, ok=True))


class _HubExchange:
    """Carries out on a hub what services decide."""

    __slots__ = ("_hub",)

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def hand_over(self, session: Session, call: Call) -> bool:
        op = _filled(Request(request=call.id, to=call.service.address), call.payload, call.binary)
        return self._hub.outboxes.put_promised(session, session.encoding.op(op))

    def failed(self, call: Call, error: RequestError, *, outcome_unknown: bool) -> None:
        requester = call.requester
        assert requester is not None, "only who is there can be told"
        app, reason = requester.app.name, str(error.code)
        self._hub.recorder.refused(app, error.code)
        if outcome_unknown:
            reason += ", outcome unknown"
        self._hub.recorder.answered(app, call.id, call.came, reason, call.came_from)
        if call.request is not None:
            reply = Reply(id=call.request, ok=False, error=error.code, reason=error.reason)
            reply.outcome = "unknown" if outcome_unknown else None
            self._hub.answer(requester, reply)


def _carried_by(session: Session, op: Request) -> str:
    """The node that gave a request its id; none if this one is to. Raises BadRequest."""
    if op.request is None:
        return ""
    if session.edge != LINK:
        raise BadRequest("request: the hub gives it; a requester's own number is `id`")
    return session.peer


def _filled(op: _Filled, payload: bytes, binary: bool) -> _Filled:
    """Put a payload into an op, in the form that every encoding takes."""
    if binary:
        op.data64 = b64encode(payload).decode()
    else:
        op.data = msgspec.Raw(payload)
    return op


def _has_payload(op: PayloadOp) -> bool:
    # Packed, what is not there is None, and data64 only says what data is.
    data: Any = op.data
    return isinstance(op.data64, str) or not (data is None or data is UNSET)
