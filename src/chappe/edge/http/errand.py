"""Errands: ops of clients that hold no session, each with one for as long as its op takes."""

from __future__ import annotations

import asyncio

from chappe.edge.http.bodies import Answer
from chappe.edge.http.failure import Unauthorized
from chappe.edge.http.question import Questions
from chappe.errors import CloseCode, Forbidden, RequestError
from chappe.hub.allowance import Allowances
from chappe.hub.hub import Hub
from chappe.hub.session import Session, Sink
from chappe.wire.encoding import Encoding
from chappe.wire.ops import ClientOp, Hello

# How many identities' rates are remembered; the one that has been silent longest is forgotten.
_REMEMBERED_MAX = 10_000


def admit(
    hub: Hub,
    edge: str,
    encoding: Encoding,
    sink: Sink,
    peer: str,
    hello: Hello,
    *,
    lease_s: float | None = None,
    listed: bool = True,
) -> Session:
    """Open a paused session and say hello for it.

    Raises Unauthorized, BadRequest, or Overload when the node takes nobody.
    """
    session = hub.open(edge, encoding, sink, peer, lease_s=lease_s, paused=True)
    try:
        hub.admit(session, hello, listed=listed)
    except RequestError as error:
        hub.lost(session, CloseCode.UNAUTHORIZED)
        if isinstance(error, Forbidden):
            raise Unauthorized(error.reason) from None
        raise
    return session


class Errand:
    """The sink of a session that lasts for one op: nothing is written to it."""

    __slots__ = ("asking", "ended", "session")

    session: Session

    def __init__(self) -> None:
        self.asking = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        """Nobody reads."""

    def ping(self) -> None:
        """The request that waits is the sign of life."""
        self.session.beats_missed = 0

    def close(self, code: int, reason: str) -> None:
        self.ended.set_result(None)

    def abort(self) -> None:
        """Nothing to drop."""


class Errands:
    """Carries out ops for identities that come and go with each request."""

    def __init__(self, hub: Hub, questions: Questions) -> None:
        self._hub = hub
        self._questions = questions
        self._remembered: dict[tuple[str, str], Allowances] = {}

    async def run(self, hello: Hello, peer: str, op: ClientOp) -> Answer:
        """Say hello, carry out one op, leave; raises Unauthorized, BadRequest or Overload.

        Cancelling it leaves at once.
        """
        errand = self.open(hello, peer)
        try:
            return await self._questions.ask(errand, op)
        finally:
            self.leave(errand)

    def open(self, hello: Hello, peer: str) -> Errand:
        """Say hello for a request that needs several ops; it has to `leave`.

        Raises Unauthorized, BadRequest or Overload.
        """
        hub, errand = self._hub, Errand()
        # It takes no messages: found at its address it would swallow what others send there, and
        # make its own user look online.
        errand.session = admit(
            hub, "http", self._questions.items, errand, peer, hello, listed=False
        )
        self._remember_allowances(errand.session)
        return errand

    async def ask(self, errand: Errand, op: ClientOp) -> Answer:
        """Carry out one op more; raises Overload when no answer comes in time."""
        return await self._questions.ask(errand, op)

    def leave(self, errand: Errand) -> None:
        """All of it is done."""
        self._hub.lost(errand.session, CloseCode.NORMAL)

    def _remember_allowances(self, session: Session) -> None:
        """A session's rate would begin anew with each request; an identity's goes on."""
        if session.allowances is None:
            return
        key = (session.app.name, session.address)
        session.allowances = self._remembered.pop(key, session.allowances)
        self._remembered[key] = session.allowances
        if len(self._remembered) > _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
