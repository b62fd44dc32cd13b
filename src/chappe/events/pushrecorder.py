"""What push tells of notes, in the words of push: who tells it need not know which columns.

A note to clients is told client by client: each with a row, many of them in one run, which costs a
list of their ids. A topic's note is told by counts: of a broadcast to 70,000 devices one row, and
of their acknowledgements one for each batch that is settled. So what is counted is exact either
way, and what is written down is as much as a comet has to remember anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from chappe.events.recorder import Recorder

# How a note came to a connection: while the device was there, because it waited when the device
# logged in, or again, as it had not been acknowledged.
Why = Literal["live", "login", "again"]
# Why somebody does not get a note any more.
Reason = Literal["expired", "cancelled", "crowded_out", "collapsed", "removed", "withdrawn"]

EDGE: Final = "device"


class Told(NamedTuple):
    """A note, as events name it."""

    app: str
    id: str
    job: str


class Ack(NamedTuple):
    """A first acknowledgement: by whom, of what, how it had come there, and when this was read."""

    client: str
    note: Told
    why: Why
    came_us: int


def is_of_topic(id: str) -> bool:
    """Whether a note is a topic's: those are told by counts."""
    return id.startswith("m")


class PushRecorder:
    """Tells a recorder of notes. Times are microseconds since 1970."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def sent(
        self,
        note: Told,
        target: str,
        aimed: int,
        size: int,
        came_us: int,
        expires_us: int,
        offline: int | None = None,
        went_to: Sequence[str] = (),
    ) -> None:
        """Admin: a note is kept, and is about to go to these comets. Before that is answered.

        `target` is `client:ID`, `device:ID`, `user:NAME`, `topic:NAME` or `many:`. Of a topic it is
        not known how many are offline.
        """
        self._recorder.tell(
            "push_sent",
            note.app,
            label=note.id,
            job=note.job,
            target=target,
            came=came_us,
            went_to=list(went_to) or None,
            n=aimed,
            offline=offline,
            bytes=size,
            expires=expires_us,
        )

    def handed(
        self,
        note: Told,
        clients: Sequence[str],
        why: Why,
        came_us: int | None = None,
        came_from: str = "",
    ) -> None:
        """Comet: a note was written to connections of clients.

        `came_us` and `came_from`: when, and from which node, it came to this comet, if it did so
        just now. A comet that was handed a note for clients tells so, though none of them is there.
        """
        if is_of_topic(note.id) or not clients:
            self.broadcast(note, len(clients), why, came_us, came_from)
        else:
            told = {"came": came_us, "came_from": came_from or None}
            self._each("push_handed", note, clients, reason=why, **told)

    def broadcast(
        self,
        note: Told,
        count: int,
        why: Why = "live",
        came_us: int | None = None,
        came_from: str = "",
    ) -> None:
        """Comet: a topic's note was written to so many connections."""
        told = {"came": came_us, "came_from": came_from or None}
        self._tell("push_handed", note, n=count, reason=why, **told)

    def absent(self, note: Told, count: int, came_from: str = "") -> None:
        """Comet: so many of the clients that it was to hand a note to are not there."""
        self._tell("push_absent", note, n=count, came_from=came_from or None)

    def acked(self, acks: Iterable[Ack]) -> None:
        """Comet: a batch of acknowledgements is settled. Of each client and note the first one
        only, as the store says; in the same turn of the loop in which that is known."""
        counts: dict[tuple[Told, Why], list[int]] = {}
        singly: dict[str, list[Ack]] = {}
        for ack in acks:
            if is_of_topic(ack.note.id):
                counts.setdefault((ack.note, ack.why), []).append(ack.came_us)
            else:
                singly.setdefault(ack.note.app, []).append(ack)
        for (note, why), came in counts.items():
            mean = sum(came) // len(came)
            self._tell("push_acked", note, n=len(came), reason=why, came=mean)
        for app, some in singly.items():
            each: dict[str, Sequence[object]] = {
                "label": [ack.note.id for ack in some],
                "job": [ack.note.job for ack in some],
                "client": [ack.client for ack in some],
                "reason": [ack.why for ack in some],
                "came": [ack.came_us for ack in some],
            }
            self._recorder.tell_each("push_acked", app, len(some), each)

    def clicked(self, note: Told, client: str) -> None:
        """A note was clicked on a device for the first time."""
        self._tell("push_clicked", note, client=client)

    def dropped(
        self, note: Told, reason: Reason, clients: Sequence[str] = (), count: int | None = None
    ) -> None:
        """These clients, or so many, do not get a note any more; without either, all that have not
        acknowledged it."""
        if clients and not is_of_topic(note.id):
            self._each("push_dropped", note, clients, reason=reason)
        else:
            self._tell("push_dropped", note, n=len(clients) or count, reason=reason)

    def bridged(self, note: Told, clients: Sequence[str], outcome: str) -> None:
        """A provider: a note for clients that are not connected was `handed` to a platform's push
        service, or what else became of it there. It waits for them either way."""
        if is_of_topic(note.id):
            self._tell("push_bridged", note, n=len(clients), reason=outcome)
        else:
            self._each("push_bridged", note, clients, reason=outcome)

    def retracted(self, note: Told, clients: Sequence[str], reason: str) -> None:
        """Comet: devices were told to take a note back."""
        if is_of_topic(note.id):
            self._tell("push_retracted", note, n=len(clients), reason=reason)
        else:
            self._each("push_retracted", note, clients, reason=reason)

    def _tell(self, kind: str, note: Told, **columns: object) -> None:
        self._recorder.tell(kind, note.app, label=note.id, job=note.job, **columns)

    def _each(self, kind: str, note: Told, clients: Sequence[str], **columns: object) -> None:
        named = {"client": list(clients)}
        told = {"label": note.id, "job": note.job, **columns}
        self._recorder.tell_each(kind, note.app, len(clients), named, **told)
