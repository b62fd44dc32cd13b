"""Notes of push for users of the hub: live where they have a session (P7).

A note comes as a message from `service:push`, and says by its id which one it is; whoever has shown
it says so with the op `shown`.

    <- {"op":"message", "from":"service:push", "to":"user:bob",
        "data":{"note":"p..","job":"j..","type":0,"data":ANY}}      ("data64" for what is no JSON)
    -> {"op":"shown", "id":9, "notes":["p.."]}
    <- {... "data":{"retract":"p.."}}              it was shown elsewhere, or taken back
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Protocol

import msgspec

from chappe.endpoints.application import Application
from chappe.errors import BadRequest, Unreachable
from chappe.hub.app import App
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.message import Message
from chappe.push.note import Note
from chappe.wire.ops import Reply, Shown

SENDER = "service:push"
# Seen at once; a user who comes back after a day may have so many waiting.
SHOWN_MAX = 1000
_USER = "user:"


class NotesDesk(Protocol):
    """Who knows of the notes of users."""

    def came(self, app: str, user: str) -> None:
        """A user has its first session here."""
        ...

    def joined(self, app: str, user: str, session: str) -> None:
        """A user has another session here, of that id."""
        ...

    def left(self, app: str, user: str) -> None:
        """A user has no session here any more."""
        ...

    def shown(self, app: str, user: str, ids: Sequence[str], session: str) -> None:
        """A user has seen these notes, in a session of that id."""
        ...


class _Shape(msgspec.Struct, omit_defaults=True):
    """A note, as it stands in a message."""

    note: str
    job: str
    type: int
    data: msgspec.Raw = msgspec.Raw()
    data64: str = ""


class _Retraction(msgspec.Struct):
    """A note that is to be taken back."""

    retract: str


_encode = msgspec.json.Encoder().encode


class Notes:
    """Hands notes to sessions of a hub, and hears what they have shown."""

    def __init__(self, hub: Hub, application: Application) -> None:
        self._hub = hub
        self._application = application
        self._desk: NotesDesk | None = None
        hub.serve({Shown: self.shown})
        hub.on_online.append(self._online)
        hub.on_another.append(self._another)
        hub.on_offline.append(self._offline)

    def open(self, desk: NotesDesk) -> None:
        """Begin; who is here already is told of."""
        self._desk = desk
        for app in self._hub.apps.values():
            for address in list(app.endpoints):
                self._online(app, address)

    def close(self) -> None:
        """Tell nobody any more."""
        self._desk = None

    def shown(self, session: Session, op: Shown) -> None:
        """A user says which notes it has seen."""
        if self._desk is None:
            raise Unreachable("notes: this node takes no part in push")
        if len(op.notes) > SHOWN_MAX:
            raise BadRequest(f"notes: more than {SHOWN_MAX} at once")
        if session.allowances is not None:
            session.allowances.spend(0)
        if session.address.startswith(_USER):
            user = session.address[len(_USER) :]
            self._desk.shown(session.app.name, user, op.notes, session.id)
        if op.id is not None:
            self._hub.answer(session, Reply(id=op.id, ok=True))

    def hand(self, app: str, user: str, note: Note, *, only: str | None = None) -> bool:
        """Give a note to a user's sessions, here and elsewhere, or only to the one of an id, which
        is here; False if none takes it."""
        shape = _Shape(note.id, note.job, note.type)
        if _is_json(note.content):
            shape.data = msgspec.Raw(note.content)
        else:
            shape.data64 = b64encode(note.content).decode()
        return self._give(app, user, _encode(shape), only=only)

    def retract(self, app: str, user: str, note_id: str, *, besides: str | None = None) -> None:
        """Tell a user's sessions, besides the one of an id, to take a note back."""
        self._give(app, user, _encode(_Retraction(note_id)), besides=besides)

    def online(self, app: str, user: str) -> bool:
        """Whether a user has any session, here or elsewhere."""
        found = self._hub.apps.get(app)
        to = _USER + user
        return found is not None and (to in found.endpoints or to in found.routes)

    def _give(
        self,
        app: str,
        user: str,
        payload: bytes,
        *,
        only: str | None = None,
        besides: str | None = None,
    ) -> bool:
        hub = self._hub
        hub.ensure_tick()
        message = Message(hub.ids.next(), SENDER, _USER + user, hub.now_ms, payload)
        if only is not None:
            return self._application.give_to_session(app, message, only)
        return self._application.give(app, message, besides=besides)

    def _online(self, app: App, address: str) -> None:
        if self._desk is not None and address.startswith(_USER):
            self._desk.came(app.name, address[len(_USER) :])

    def _another(self, session: Session) -> None:
        address = session.address
        if self._desk is not None and address.startswith(_USER):
            self._desk.joined(session.app.name, address[len(_USER) :], session.id)

    def _offline(self, app: App, address: str) -> None:
        if self._desk is not None and address.startswith(_USER):
            self._desk.left(app.name, address[len(_USER) :])


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError:
        return False
    return True
