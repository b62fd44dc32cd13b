"""Asking: requests to services that live on other nodes, told of at this end as well.

The node of whoever asks gives a request its id, so that both nodes tell of it by one name. What
it says of the end is what counts: when the home dies, it is the only one that knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from chappe.cluster.peer import Peer
from chappe.errors import BadRequest, ErrorCode
from chappe.wire.ops import Reply, Request

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session


class Asking:
    """Requests of this node's sessions that other nodes were asked."""

    def __init__(self, hub: Hub, tag_of: Callable[[str], str]) -> None:
        self._hub = hub
        self._tag_of = tag_of
        # The id of each, and when it was asked.
        self._asked: dict[tuple[Session, int], tuple[str, int]] = {}

    def begin(self, peer: Peer, session: Session, op: Request, size: int) -> None:
        """Give a request that is about to be carried an id, and tell of it; raises BadRequest.

        One that asks for no answer is told of by its home alone.
        """
        if op.request is not None:
            raise BadRequest("request: the hub gives it; a requester's own number is `id`")
        if op.id is None:
            return
        hub = self._hub
        # By its beginning, whoever answers finds the home.
        op.request = f"{self._tag_of(peer.name)}.{hub.ids.next()}"
        came = hub.recorder.came
        self._asked[session, op.id] = (op.request, came)
        hub.recorder.asked(
            session.app.name,
            op.request,
            session.address,
            op.to,
            session.id,
            size,
            came,
            went_to=(peer.name,),
        )

    def answered(self, session: Session, reply: Reply) -> None:
        """A session is told what became of something that it may have asked."""
        reason = "" if reply.ok else reply.error or ""
        if reply.outcome is not None:
            reason += f", outcome {reply.outcome}"
        self._end(session, reply.id, reason)

    def unanswered(self, session: Session, request: int) -> None:
        """A session is told that nobody knows."""
        self._end(session, request, f"{ErrorCode.OVERLOAD}, outcome unknown")

    def abandoned(self, session: Session, requests: Iterable[int]) -> None:
        """A session has gone, and does not want to know."""
        for request in requests:
            self._end(session, request, "abandoned")

    def _end(self, session: Session, request: int, reason: str) -> None:
        asked = self._asked.pop((session, request), None)
        if asked is not None:
            self._hub.recorder.answered(session.app.name, *asked, reason)
