"""What becomes of a message to a room at a role, told to the node's recorder.

A node tells what passes between nodes, not what its own roles hand to each other. So a role that
hands a message to nobody but a role of its own node says nothing. Instead the op to that role says
whom the message was had from (`giver`), and the last role of the node tells of both:

what the nodes are                     what they tell
one, with all roles                    published by the hub's fan-out, and nothing else
A publisher, B proxy and broker,       A: to B. B, its broker: from A, to C. C, the hub's fan-out:
C gateway                              published, from B
B broker and gateway, C gateway        B, its broker: to C. B, the hub's fan-out: published, from B,
                                       which is itself: it came no further way

A reliable message comes several times, and each copy is told at each node that it passes; the
gateway tells which of them it had before. When a thing came, is in `recorder.came`: whoever reads
datagrams has to set that first.

who         takes an op         and calls
publisher                       passed(app, message, "", names of the proxies' nodes)
proxy       Submit              came = came_from(source.name, "")
                                Carry(.., giver=passed(app, message, came, (name,))), or dropped
broker      Carry               came = came_from(source.name, op.giver)
                                Deliver(.., giver=passed(app, message, came, names)), or dropped;
                                a room that nobody is in has no names
gateway     Deliver             came = came_from(source.name, op.giver)
                                the audience gets it, with came; or copied, or dropped; or passed to
                                no names, as no member is here
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from chappe.events.recorder import Recorder
from chappe.message import Message
from chappe.wire.rooms import RoleKind

if TYPE_CHECKING:
    from chappe.rooms.pulse import Neighbour

# How often it is told how far the clocks of others are ahead.
BEATS_S = 10.0
# Between the role that took a message from another node, and that node.
_IN_ROLE = "\0"


class Hops:
    """Tells what becomes of messages at one role of a node."""

    __slots__ = ("_name", "_recorder", "_role", "_taken_as")

    def __init__(self, recorder: Recorder, name: str, role: RoleKind) -> None:
        self._recorder = recorder
        self._name = name
        self._role = role.name.lower()
        # The role of this node that took what is handled now, if that is another.
        self._taken_as = ""

    def came_from(self, source: str, giver: str | None) -> str:
        """The node that a message came from, by the name of the node that sent the op, and by what
        the op says; none: its sender is here.

        Nothing is before a publisher: of what comes from one, `giver` is "". What is told next is
        of that message.
        """
        self._taken_as = ""
        if source != self._name or giver is None:
            return source
        self._taken_as, _, node = giver.rpartition(_IN_ROLE)
        return node

    def passed(
        self, app: str, message: Message, came_from: str, went_to: Collection[str]
    ) -> str | None:
        """A message was handed to these nodes, or to nobody as nobody is in its room.

        Returns what the ops that hand it on have to say as `giver`.
        """
        name = self._name
        if name in went_to:
            if len(went_to) == 1:
                return f"{self._taken_as or self._role}{_IN_ROLE}{came_from}" if came_from else ""
            went_to = [other for other in went_to if other != name]
        self._recorder.forwarded(
            app,
            (message,),
            came_from,
            tuple(went_to),
            promised=False,
            role=self._role,
            taken_as=self._taken_as,
        )
        return None

    def beats(self, neighbours: Iterable[Neighbour]) -> None:
        """Tell how far their clocks are ahead. A node without clients has no links that would: by
        this alone its times are told by the same clock as those of others."""
        for one in neighbours:
            if one.name != self._name:
                round_trip_us = round(one.round_trip_s * 1_000_000)
                self._recorder.link_beat(one.name, one.ahead_us, round_trip_us)

    def copied(self, app: str, message: Message, came_from: str) -> None:
        """A message came that was here before: nobody is to get it twice."""
        self._recorder.copied(app, message, came_from, self._taken_as)

    def dropped(self, app: str, message: Message, reason: str) -> None:
        """A message goes no further, though somebody may be waiting for it."""
        self._recorder.dropped(app, reason, 1, message.to, (message.id,), self._role)
