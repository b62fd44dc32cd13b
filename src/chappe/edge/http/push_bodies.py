"""Bodies of the routes of push: what requests and responses hold."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from chappe.address import NAME_BYTES_MAX
from chappe.edge.http.bodies import App, Count, Identified
from chappe.errors import BadRequest
from chappe.push.admin.targets import Missing
from chappe.push.names import DEVICE_CHARS_MAX
from chappe.push.note import SYSTEM_TYPES

Word = Annotated[str, Meta(min_length=1, max_length=64)]
# Described, not enforced: the desk's own refusal says what is wrong.
Device = Annotated[str, Meta(extra_json_schema={"pattern": f"^[!-~]{{1,{DEVICE_CHARS_MAX}}}$"})]
_NAMED = rf"^[^\s*>#+]{{1,{NAME_BYTES_MAX}}}$"
Name = Annotated[str, Meta(extra_json_schema={"pattern": _NAMED})]
Type = Annotated[int, Meta(ge=0, lt=SYSTEM_TYPES)]
TtlS = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 28 * 24 * 3600})]
PRIORITIES = {"low": 0, "normal": 1, "high": 2}
Priority = Annotated[str, Meta(extra_json_schema={"enum": list(PRIORITIES)})]
Limit = Annotated[int, Meta(ge=0, le=2**31)]
Rate = Annotated[float, Meta(ge=0, le=1e9)]
CLICKS_MAX = 100


class Strict(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A body in which a field that nobody knows is refused by its name."""


class LimitsBody(Strict, kw_only=True):
    """What an app may use; 0: no limit."""

    sends_per_s: Rate = 1000.0
    devices_max: Limit = 0
    device_notes_per_h: Limit = 0


class AppBody(Identified, kw_only=True):
    """A new app. `open`: its devices may take tokens by themselves."""

    name: App
    open: bool = False
    limits: LimitsBody = msgspec.field(default_factory=LimitsBody)


class AppChangeBody(Identified, kw_only=True):
    """What is to be changed of an app."""

    open: bool | None = None
    enabled: bool | None = None
    limits: LimitsBody | None = None


class AppView(msgspec.Struct, kw_only=True):
    """An app. Its secret is shown when it is made, and never again."""

    key: str
    name: str
    open: bool
    enabled: bool
    created_ms: int
    limits: LimitsBody


class AppShown(msgspec.Struct, kw_only=True):
    """An app."""

    ok: bool
    app: AppView


class AppMade(AppShown, kw_only=True):
    """A new app, and what its servers sign with: shown this once."""

    key: str
    secret: str


class SecretMade(msgspec.Struct, kw_only=True):
    """What the app's servers sign with from now on: shown this once."""

    ok: bool
    key: str
    secret: str


class AppsPage(msgspec.Struct, kw_only=True):
    """Some of the apps; `next` is the `after` of the following page."""

    ok: bool
    apps: list[AppView]
    next: str | None


class DeviceBody(Strict, kw_only=True):
    """A device that asks for itself: its app's key, and the id that it made."""

    app: Word
    device: Device


class TokenBody(Strict, kw_only=True):
    """A device that an app's server asks for."""

    device: Device


class TicketView(msgspec.Struct, kw_only=True):
    """What a device needs to connect: it shows client and token to the comet, whose key has to be
    signed by the identity (Ed25519, base64)."""

    ok: bool
    client: str
    token: str
    comet: str
    identity: str
    expires_ms: int


class ClickView(Strict, kw_only=True):
    """A note that somebody looked at, as the device got it."""

    job: Word
    note: Word


class ClicksBody(Strict, kw_only=True):
    """What was clicked on a device, which shows its token."""

    client: Word
    token: Word
    clicks: Annotated[list[ClickView], Meta(min_length=1, max_length=CLICKS_MAX)]


class Counted(msgspec.Struct, kw_only=True):
    """How many were clicked for the first time."""

    ok: bool
    counted: int


class WhichBody(Strict, kw_only=True):
    """A client, by its id or by its device's."""

    client: Word | None = None
    device: Device | None = None


class RevokeTokenBody(WhichBody, kw_only=True):
    """A token that is good no more, or all of a client's."""

    token: Annotated[str, Meta(max_length=64, extra_json_schema={"minLength": 1})] | None = None


class TokensRevoked(msgspec.Struct, kw_only=True):
    """Whose tokens are refused from now on, and how many."""

    ok: bool
    client: str
    revoked: int


class BindBody(WhichBody, kw_only=True):
    """Whose client it is."""

    user: Name


class ClientView(msgspec.Struct, kw_only=True):
    """A device of the app."""

    client: str
    device: str
    user: str | None = None


class ClientShown(msgspec.Struct, kw_only=True):
    """One client."""

    ok: bool
    client: ClientView


class ClientSeen(ClientShown, kw_only=True):
    """One client, the server number of the comet that it is on, and its topics."""

    comet: int | None
    topics: list[str]


class UserShown(msgspec.Struct, kw_only=True):
    """The clients of a user."""

    ok: bool
    user: str
    clients: list[ClientView]


class SubscribeBody(WhichBody, kw_only=True):
    """Topics for a client."""

    topics: Annotated[list[Name], Meta(min_length=1, max_length=100)]


class TopicsChanged(msgspec.Struct, kw_only=True):
    """Whose topics were changed."""

    ok: bool
    client: str


class TopicView(msgspec.Struct, kw_only=True):
    """A topic, and how many subscribe to it."""

    topic: str
    subscribers: int


class TopicsPage(msgspec.Struct, kw_only=True):
    """Some of the app's topics; `next` is the `after` of the following page."""

    ok: bool
    topics: list[TopicView]
    next: str | None


class SubscribersPage(msgspec.Struct, kw_only=True):
    """How many subscribe to a topic, and some of them."""

    ok: bool
    topic: str
    subscribers: int
    clients: list[str]
    next: str | None


class ContentBody(Strict, kw_only=True):
    """What a device is given: `data`, any JSON, as its text; or `data64`, bytes in base64."""

    data: Raw | UnsetType = UNSET
    data64: str | None = None

    def content(self) -> bytes:
        """The bytes; raises BadRequest."""
        if (self.data is UNSET) == (self.data64 is None):
            raise BadRequest("data: either it (any JSON) or data64 (base64) is given")
        if isinstance(self.data, Raw):
            return bytes(self.data)
        try:
            return b64decode(self.data64 or "", validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("data64: not base64") from None


class PushBody(ContentBody, kw_only=True):
    """A note to clients, by their ids, their devices or their users; or to a topic."""

    client: Device | list[Device] | None = None
    device: Device | list[Device] | None = None
    user: Name | list[Name] | None = None
    topic: Name | None = None
    type: Type = 0
    ttl_s: TtlS | None = None
    priority: Priority = "normal"
    # Of notes with one of these that a device has not got yet, the last one counts.
    collapse: Word | None = None
    # To a user: seen on one device, it is taken back on the others.
    once: bool = False
    name: Annotated[str, Meta(max_length=255)] = ""
    # The same within a day is the same send, and is answered as it was.
    idempotency_key: Word | None = None


class ReplaceBody(ContentBody, kw_only=True):
    """What stands in a note's place."""

    type: Type | None = None
    ttl_s: TtlS | None = None


class Pushed(msgspec.Struct, kw_only=True):
    """The job that counts what becomes of it, and what did so far: handed to connections, and
    connected nowhere (these get it when they come). Who was named and is not there is `missing`;
    clients that had their notes for this hour are `limited`."""

    ok: bool
    job: str
    note: str
    aimed: int
    sent: int
    offline: int
    missing: Missing
    limited: list[str]


class Cancelled(msgspec.Struct, kw_only=True):
    """Taken back, from so many that it waited for; 0: nobody waited for it any more."""

    ok: bool
    withdrawn: int


class RatiosView(msgspec.Struct, kw_only=True):
    """Shares of those that a job was aimed at; `clicked`, of those that it arrived at."""

    sent: float
    arrived: float
    clicked: float
    offline: float
    dropped: float


class JobView(msgspec.Struct, kw_only=True):
    """A send, and what became of it."""

    job: str
    note: str
    name: str
    # client, device, user, many or topic; and which, or how many.
    aim: str
    target: str
    created_ms: int
    expires_ms: int
    cancelled_ms: int
    aimed: Count
    sent: Count
    arrived: Count
    clicked: Count
    offline: Count
    dropped: Count
    ratios: RatiosView


class JobShown(msgspec.Struct, kw_only=True):
    """One job."""

    ok: bool
    job: JobView


class JobsPage(msgspec.Struct, kw_only=True):
    """Some of the app's jobs, the newest first; `next` is the `before` of the following page."""

    ok: bool
    jobs: list[JobView]
    next: str | None
