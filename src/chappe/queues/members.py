"""The members of a queue: its groups, who is registered in them, and who answers to a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.errors import BadRequest, Overload
from chappe.queues.filter import describe
from chappe.queues.group import Group
from chappe.queues.record import Registered, Unregistered

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from chappe.queues.queue import Queue


class Members:
    """Who takes from a queue, by name."""

    __slots__ = ("_queue", "holders", "unborn")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        # Groups that are not durable yet: what is asked of them waits.
        self.unborn: dict[str, None] = {}
        # Which session answers to a consumer's name.
        self.holders: dict[str, Session] = {}

    def group(self, name: str) -> Group:
        """The group of that name, made if it is not there."""
        group = self._queue.groups.get(name)
        if group is None:
            self.register(name, "", None, None)
            group = self._queue.groups[name]
        return group

    def register(
        self,
        name: str,
        consumer: str,
        tags: list[str] | None,
        headers: dict[str, str] | None,
        *,
        new: bool = False,
    ) -> bool:
        """Let there be a group with a consumer in it; whether that is new.

        Raises BadRequest for another filter than the group has, Overload when there are too many.
        """
        queue, state, limits = self._queue, self._queue.state, self._queue.limits
        known = state.groups.get(name)
        if known is not None and not known.expected:
            if (tags, headers) != (None, None) and (tags, headers) != (known.tags, known.headers):
                raise BadRequest(
                    f"tags: group {name!r} was registered with "
                    f"{describe(known.tags, known.headers)}; all of a group take the same"
                )
            if not consumer or consumer in known.consumers:
                return False
            tags, headers = known.tags, known.headers
        elif known is None and len(state.readers()) >= limits.groups_max:
            raise Overload(f"{queue.address} has {limits.groups_max} groups already")
        if known is not None and len(known.consumers) >= limits.consumers_max:
            raise Overload(f"group {name!r} has {limits.consumers_max} consumers already")
        # Somebody has to take what fills a disk.
        queue.storage.check(freeing=True)
        since_ms = queue.now_ms
        queue.add(
            Registered(
                state.number, name, consumer, tags, headers, since_ms, expected=False, new=new
            )
        )
        if name not in queue.groups:
            queue.groups[name] = Group(queue, state.groups[name])
            self.unborn[name] = None
            queue.after(lambda: self.unborn.pop(name, None))
        awaited = state.groups.get(consumer)
        if known is None and not new and awaited is not None and awaited.expected:
            # It came as a member of this group, which begins with all that waited for it.
            self.drop(consumer)
        return True

    def unregister(self, name: str, consumer: str) -> list[Session]:
        """Let a group have a consumer less, or without a name be no more; raises BadRequest.

        Returns who was a consumer of a group that is gone.
        """
        queue = self._queue
        known = queue.state.groups.get(name)
        if known is None or name.startswith("!"):
            raise BadRequest(f"group: {queue.address} has none named {name!r}")
        if consumer and consumer not in known.consumers:
            raise BadRequest(f"name: {consumer!r} is not registered in group {name!r}")
        queue.storage.check(freeing=True)
        if consumer:
            queue.add(Unregistered(queue.state.number, name, consumer))
        self.holders.pop(consumer, None)
        left = not consumer or (consumer == name and not known.consumers)
        if not left:
            return []
        for one in known.consumers:
            self.holders.pop(one, None)
        self.drop(name)
        group = queue.groups.pop(name, None)
        error = BadRequest(f"group: {name!r} was given up")
        return group.close(error) if group is not None else []

    def drop(self, name: str) -> None:
        """Let a group be no more: what only it was not done with nobody waits for."""
        queue, state = self._queue, self._queue.state
        left = state.groups[name]
        queue.add(Unregistered(state.number, name))
        others = list(state.readers())
        for lane, progress in left.progress.items():
            upto = min((one.at(lane).mark for one in others), default=0)
            seqs = range(progress.low + 1, min(upto, state.heads[lane]) + 1)
            queue.free(lane, (seq for seq in seqs if not progress.is_done(seq)))

    def consuming(self) -> list[tuple[Session, str, int]]:
        """Who is pushed messages: session, group and credit."""
        return [
            (session, name, credit)
            for name, group in self._queue.groups.items()
            for session, credit in group.takers.consuming()
        ]
