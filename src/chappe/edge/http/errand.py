"""Errands: sessions that an HTTP request opens, and ops that are answered within it.

Whatever HTTP asks for goes the hub's ordinary way: a session, an op, a reply in its outbox. The
reply is taken back out of the outbox at once, since the request waits for it.
"""

from __future__ import annotations

import msgspec

from chappe.edge.http.bodies import Answer
from chappe.edge.http.failure import Unauthorized
from chappe.errors import CloseCode, Forbidden, Overload, RequestError
from chappe.hub.allowance import Allowances
from chappe.hub.hub import Hub
from chappe.hub.session import Session, Sink
from chappe.wire.encoding import JSON_ITEMS
from chappe.wire.ops import ClientOp, Hello, Ping

# How many identities' rates are remembered; the one that has been silent longest is forgotten.
_REMEMBERED_MAX = 10_000

_read_answer = msgspec.json.Decoder(Answer).decode


def admit(
    hub: Hub, edge: str, sink: Sink, peer: str, hello: Hello, *, lease_s: float | None = None
) -> Session:
    """Open a paused session and say hello for it.

    Raises Unauthorized, BadRequest, or Overload when the node takes nobody.
    """
    session = hub.open(edge, JSON_ITEMS, sink, peer, lease_s=lease_s, paused=True)
    try:
        hub.admit(session, hello)
    except RequestError as error:
        hub.lost(session, CloseCode.UNAUTHORIZED)
        if isinstance(error, Forbidden):
            raise Unauthorized(error.reason) from None
        raise
    return session


def ask(hub: Hub, session: Session, op: ClientOp) -> Answer:
    """Carry out an op on a session whose encoding is JSON_ITEMS, and give its reply."""
    if op.id is None:
        op.id = 0
    hub.receive(session, op)
    if session.closed:
        raise Overload("the session was closed meanwhile")
    # The hub puts the reply behind whatever the op itself brought.
    reply = session.outbox.pop()
    if isinstance(op, Ping):
        return Answer(ok=True)
    return _read_answer(reply.removesuffix(b","))


class _Nowhere:
    """The sink of a session that ends before anything could be written to it."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """The end of the tick finds its outbox emptied."""

    def ping(self) -> None:
        """Nobody to ask."""

    def close(self, code: int, reason: str) -> None:
        """Nobody to tell."""

    def abort(self) -> None:
        """Nothing to drop."""


_NOWHERE = _Nowhere()


class Errands:
    """Ops of clients that hold no session: each gets one for as long as its op takes."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._remembered: dict[tuple[str, str], Allowances] = {}

    def run(self, hello: Hello, peer: str, op: ClientOp) -> Answer:
        """Say hello, carry out one op, leave; raises Unauthorized, BadRequest or Overload."""
        hub = self._hub
        session = admit(hub, "http", _NOWHERE, peer, hello)
        try:
            # It takes no messages: found at its address it would swallow what others send there,
            # and make its own user look online.
            session.app.endpoints.unbind(session.address, session)
            self._remember_allowances(session)
            return ask(hub, session, op)
        finally:
            hub.lost(session, CloseCode.NORMAL)

    def _remember_allowances(self, session: Session) -> None:
        """A session's rate would begin anew with each request; an identity's goes on."""
        if session.allowances is None:
            return
        key = (session.app.name, session.address)
        session.allowances = self._remembered.pop(key, session.allowances)
        self._remembered[key] = session.allowances
        if len(self._remembered) > _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
