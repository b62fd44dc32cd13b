"""Consuming: which sessions take from which groups of queues, and what they say of messages.

The answer to a `fetch` comes behind the messages it brought and says how many those are: at once
if there are any or it does not wait; else with the first that come, or when the wait is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chappe.errors import BadRequest, Overload, RequestError
from chappe.hub.permission import permit
from chappe.queues.broker import Standing
from chappe.queues.check import check_filter, check_group, check_name, check_range, number_of
from chappe.queues.consumer import Item, Loans
from chappe.queues.group import Group
from chappe.queues.queue import Queue
from chappe.queues.replies import Replies
from chappe.wire.ops import Ack, ClientOp, Consume, Fetch, Nack, Register, Unregister

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session
    from chappe.queues.ops import Queues


class Consuming:
    """What sessions take."""

    def __init__(
        self,
        queues: Queues,
        hub: Hub,
        loop: asyncio.AbstractEventLoop,
        loans: Loans,
        replies: Replies,
    ) -> None:
        self._queues = queues
        self._hub = hub
        self._loop = loop
        self._loans = loans
        self._replies = replies
        self._visited: dict[Session, dict[Queue, set[str]]] = {}
        hub.on_left.append(self._left)

    def fetch(self, session: Session, op: Fetch) -> None:
        """Give a session what there is, or let it wait; raises RequestError."""
        check_range("n", op.n, 1, self._queues.limits.unacked_max)
        check_range("wait_ms", op.wait_ms, 0, self._queues.limits.wait_ms_max)
        group, changed = self._group(session, op, "fetch from")

        def begin() -> None:
            if session.closed:
                return
            try:
                if group.closed:
                    raise Overload(f"group: {group.state.name!r} was given up meanwhile")
                group.fetch(session, op.id, op.n, op.wait_ms / 1000, self._loop.time())
            except RequestError as error:
                self._hub.refuse(session, op.id, error)
            self._hub.ensure_tick()

        if changed:
            group.queue.after(begin, self._replies.refuser(session, op))
        else:
            group.fetch(session, op.id, op.n, op.wait_ms / 1000, self._loop.time())
        self._queues.settle()

    def consume(self, session: Session, op: Consume) -> None:
        """Push a session messages while it has fewer than its credit; raises RequestError."""
        check_range("credit", op.credit, 0, self._queues.limits.unacked_max)
        group, changed = self._group(session, op, "consume from")

        def begin() -> None:
            if not session.closed:
                self._replies.ok(session, op)
                if not group.closed:
                    group.consume(session, op.credit, self._loop.time())
                if op.credit == 0 and group.release(session):
                    self._visited.get(session, {}).get(group.queue, set()).discard(group.state.name)
                self._hub.ensure_tick()

        if changed:
            group.queue.after(begin, self._replies.refuser(session, op))
        else:
            begin()
        self._queues.settle()

    def _group(self, session: Session, op: Fetch | Consume, verb: str) -> tuple[Group, bool]:
        """The group that a session takes from; made, and joined by name, if that is asked for; and
        whether something of that is new."""
        permit(session.grant.subscribe, verb, op.to)
        queue = self._queues.find(session.app.name, op.to)
        name = op.group if op.group is not None else (op.name or "")
        check_group(name)
        groups = self._visited.setdefault(session, {}).setdefault(queue, set())
        if groups and name not in groups:
            raise BadRequest(
                f"group: this session takes from {op.to} as group {next(iter(groups))!r} already"
            )
        changed = name not in queue.groups or name in queue.members.unborn
        if op.tags is not None or op.headers is not None or op.name is not None:
            joined = self._register(session, queue, name, op.name or "", op.tags, op.headers)
            changed = changed or joined
        group = queue.members.group(name)
        groups.add(name)
        return group, changed

    def _register(
        self,
        session: Session,
        queue: Queue,
        group: str,
        name: str,
        tags: list[str] | None,
        headers: dict[str, str] | None,
        *,
        new: bool = False,
    ) -> bool:
        check_group(group)
        check_filter(tags, headers, self._queues.limits)
        if name:
            check_name(name)
            holder = queue.members.holders.get(name)
            if holder is not None and holder is not session and not holder.closed:
                raise BadRequest(f"name: {name!r} is held by a session that still answers")
        changed = queue.members.register(group, name, tags, headers, new=new)
        if name:
            queue.members.holders[name] = session
            self._visited.setdefault(session, {}).setdefault(queue, set())
        return changed

    def register(self, session: Session, op: Register) -> None:
        """Let a session be a consumer by a name; raises RequestError."""
        permit(session.grant.subscribe, "register with", op.to)
        queue = self._queues.find(session.app.name, op.to)
        if not op.name:
            raise BadRequest("name: a consumer registers by one")
        group = op.name if op.group is None else op.group
        self._register(session, queue, group, op.name, op.tags, op.headers, new=op.new)
        self._when_stored(session, op, queue)

    def unregister(self, session: Session, op: Unregister) -> None:
        """Let a consumer, or a whole group, be no more; raises RequestError."""
        permit(session.grant.subscribe, "unregister from", op.to)
        queue = self._queues.find(session.app.name, op.to)
        group = op.group if op.group is not None else op.name
        known = queue.state.groups.get(group)
        names = [op.name] if op.name or known is None else list(known.consumers)
        holders = [queue.members.holders[name] for name in names if name in queue.members.holders]
        taking = [] if op.name or group not in queue.groups else queue.groups[group].sessions()
        if any(one is not session and not one.closed for one in (*holders, *taking)):
            permit(session.grant.administer, "unregister others from", op.to)
        for one in queue.members.unregister(group, op.name):
            self._visited.get(one, {}).get(queue, set()).discard(group)
        self._when_stored(session, op, queue)

    def ack(self, session: Session, op: Ack) -> None:
        """Take it that a session is done with a message; raises BadRequest if it has it not."""
        item = self._lent(session, op)
        queue = item.group.queue
        queue.storage.check(freeing=True)
        item.group.ack(item, self._loop.time())
        if op.id is not None:
            queue.after(self._replies.teller(session, op), self._replies.refuser(session, op))
        self._queues.volatile.settle()

    def nack(self, session: Session, op: Nack) -> None:
        """Hand a message to the next; raises BadRequest if the session has it not."""
        item = self._lent(session, op)
        delay_ms = op.delay_ms or 0
        check_range("delay_ms", delay_ms, 0, self._queues.limits.delay_ms_max)
        self._replies.ok(session, op)
        item.group.give_back(item, self._loop.time(), delay_s=delay_ms / 1000)
        self._queues.settle()

    def _left(self, session: Session) -> None:
        """Give what a session had not acknowledged to the next."""
        visited = self._visited.pop(session, None)
        if visited is None:
            return
        now = self._loop.time()
        for queue, groups in visited.items():
            for name in [one for one, holder in queue.members.holders.items() if holder is session]:
                del queue.members.holders[name]
            for name in groups:
                group = queue.groups.get(name)
                if group is not None:
                    group.leave(session, now)
        self._queues.settle()

    def gone(self, queue: Queue, sessions: list[Session]) -> None:
        """A queue is not here any more."""
        for visited in self._visited.values():
            visited.pop(queue, None)

    def back(self, queue: Queue, standing: list[Standing]) -> None:
        """A queue was opened anew: who consumed it before goes on."""
        for session, name, credit in standing:
            if session.closed:
                continue
            try:
                group = queue.members.group(name)
            except RequestError as error:  # it was made in the commit that failed
                self._hub.refuse(session, None, error)
                continue
            self._visited.setdefault(session, {}).setdefault(queue, set()).add(name)
            group.consume(session, credit, self._loop.time())
        self._queues.settle()

    def _lent(self, session: Session, op: Ack | Nack) -> Item:
        message = number_of(op.message)
        item = self._loans.lent.get((session, message))
        if item is None:
            raise BadRequest(
                f"message: {message} is not with this session: it was acknowledged or handed back "
                "already, its time ran out, its queue was removed, or it was never delivered here"
            )
        return item

    def _when_stored(self, session: Session, op: ClientOp, queue: Queue) -> None:
        """Answer once all that was done so far is durable."""
        if op.id is not None:
            queue.after(self._replies.teller(session, op), self._replies.refuser(session, op))
        self._queues.settle()
