"""What push remembers, in one form wherever it is kept: to be carried from a place to another.

Each record is whole in itself; those of a state are given and taken in the order of `KINDS`, as a
token needs its client. Routes are none of them: who is connected, connects again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

import msgspec

from chappe.push.app import PushApp
from chappe.push.job import Job, Tally
from chappe.push.note import Note
from chappe.push.state.meta import JOB_MS


class _Record(msgspec.Struct, frozen=True, array_like=True):
    @property
    def until_ms(self) -> int:
        """When it is forgotten; 0: never."""
        return 0

    @property
    def size(self) -> int:
        """How many it counts for."""
        return 1


class App(_Record, frozen=True, tag="app"):
    """An app; its secret is sealed, and stays so."""

    app: PushApp


class JobDone(_Record, frozen=True, tag="job"):
    """A job and its tally."""

    job: Job
    tally: Tally

    @property
    def until_ms(self) -> int:
        """When it is forgotten."""
        return self.job.created_ms + JOB_MS


class _Expiring(_Record, frozen=True):
    @property
    def until_ms(self) -> int:
        """When it is forgotten; 0: never."""
        expires_ms: int = self.expires_ms  # type: ignore[attr-defined]
        return expires_ms


class Click(_Expiring, frozen=True, tag="click"):
    """A client clicked a note."""

    client: str
    note: str
    expires_ms: int


class Nonce(_Expiring, frozen=True, tag="nonce"):
    """A signed request was seen."""

    nonce: str
    expires_ms: int


class Named(_Expiring, frozen=True, tag="record"):
    """A small record."""

    name: str
    value: bytes
    expires_ms: int


class Use(_Expiring, frozen=True, tag="use"):
    """How often something was used."""

    name: str
    count: int
    expires_ms: int


class Owner(_Record, frozen=True, tag="client"):
    """A client, its device, and its user."""

    id: str
    app: str
    device: str
    user: str | None


class Token(_Expiring, frozen=True, tag="token"):
    """Whose a token is: known by its digest only."""

    digest: bytes
    client: str
    expires_ms: int


class Bridge(_Record, frozen=True, tag="bridge"):
    """How a client is reached while it is not connected; sealed, and stays so."""

    client: str
    way: str
    value: bytes


class Body(_Record, frozen=True, tag="body"):
    """A note."""

    note: Note

    @property
    def until_ms(self) -> int:
        """When it is forgotten."""
        return self.note.expires_ms


class Wait(msgspec.Struct, frozen=True, array_like=True):
    """A note that waits; to the second, as stores keep no more of it: its body is more exact."""

    note: str
    expires_s: int
    collapse: bytes


class Waiting(_Record, frozen=True, tag="waiting"):
    """What waits for a client, oldest first."""

    client: str
    notes: tuple[Wait, ...]

    @property
    def size(self) -> int:
        """How many wait."""
        return len(self.notes)


class Topic(_Record, frozen=True, tag="topic"):
    """A topic, and its last position."""

    app: str
    topic: str
    position: int


class TopicNote(_Expiring, frozen=True, tag="topic note"):
    """A note in a topic."""

    app: str
    topic: str
    position: int
    note: str
    expires_ms: int
    collapse: bytes


class Marked(msgspec.Struct, frozen=True, array_like=True):
    """How far a subscriber has got in a topic."""

    topic: str
    position: int
    beyond: tuple[int, ...]


class Subscriber(_Record, frozen=True, tag="subscription"):
    """The topics of a client, by name."""

    app: str
    client: str
    marks: tuple[Marked, ...]

    @property
    def size(self) -> int:
        """How many topics."""
        return len(self.marks)


Record = Union[
    App,
    JobDone,
    Click,
    Nonce,
    Named,
    Use,
    Owner,
    Token,
    Bridge,
    Body,
    Waiting,
    Topic,
    TopicNote,
    Subscriber,
]

KINDS: dict[str, tuple[type[Record], ...]] = {
    "meta": (App, JobDone, Click, Nonce, Named, Use),
    "user": (Owner, Token, Bridge),
    "message": (Body, Waiting),
    "topic": (Topic, TopicNote, Subscriber),
}


def kind_of(record: Record | type[Record]) -> str:
    """What it is called."""
    return str(record.__struct_config__.tag)


def sifted(records: Iterable[Record], now_ms: int) -> tuple[list[Record], list[Record]]:
    """Those that are not forgotten by then, and those that are."""
    kept: list[Record] = []
    gone: list[Record] = []
    for record in records:
        if isinstance(record, Waiting):
            _sift_waiting(record, now_ms, kept, gone)
        elif 0 < record.until_ms <= now_ms:
            gone.append(record)
        else:
            kept.append(record)
    return kept, gone


def _sift_waiting(record: Waiting, now_ms: int, kept: list[Record], gone: list[Record]) -> None:
    living = tuple(note for note in record.notes if note.expires_s * 1000 > now_ms)
    if living:
        kept.append(msgspec.structs.replace(record, notes=living))
    if len(living) < len(record.notes):
        dead = tuple(note for note in record.notes if note not in living)
        gone.append(msgspec.structs.replace(record, notes=dead))
