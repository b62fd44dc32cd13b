"""Bodies: what requests and responses of the HTTP API hold.

These types are read and written by msgspec, and `/openapi.json` describes them from the same
source. A payload stays the bytes it came as: it is never decoded on its way through.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Union

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from chappe.address import KINDS, NAME_BYTES_MAX
from chappe.errors import BadRequest, RemoteProtocolError
from chappe.wire.ops import CLIENT_OPS, Hello, Pong
from chappe.wire.refusal import UNREADABLE, refusal
from chappe.wire.websocket import check_text

Name = Annotated[str, Meta(min_length=1, max_length=255)]
# Described, not enforced: the hub's own refusal of an address says what is wrong with it.
_NAME = rf"[^\s*>#+]{{1,{NAME_BYTES_MAX}}}"
Target = Annotated[str, Meta(extra_json_schema={"pattern": f"^({'|'.join(KINDS)}):{_NAME}$"})]
User = Annotated[str, Meta(extra_json_schema={"pattern": f"^(user:{_NAME})?$"})]
App = Annotated[str, Meta(extra_json_schema={"pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"})]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# What careless encoders write, and JSON does not have.
_NO_NUMBER = re.compile(rb'"(\w+)"\s*:\s*(NaN|-?Infinity)\b')
# What a session may be asked to do between polls.
PolledOp: Any = Union[tuple(op for op in CLIENT_OPS if op not in (Hello, Pong))]


class Identified(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Who asks, where no token says it. A field that nobody knows is refused by its name."""

    as_: User = field(name="as", default="")
    app: App | None = None


class SendBody(Identified, kw_only=True):
    """A message to one endpoint, or to each of a list."""

    to: Target | list[Target]
    data: Raw | UnsetType = UNSET
    data64: str | None = None


class PublishBody(Identified, kw_only=True):
    """A message to a topic or a room; to a room, it may go by several ways at once."""

    to: Target
    data: Raw | UnsetType = UNSET
    data64: str | None = None
    reliable: bool = False


class RequestBody(Identified, kw_only=True):
    """What a service is asked."""

    data: Raw | UnsetType = UNSET
    data64: str | None = None
    idempotent: bool = False
    timeout_ms: Count | None = None


class TopicBody(Identified, kw_only=True):
    """Whether a topic shows who published, and what it keeps for those who come back."""

    anonymous: bool | None = None
    history: Count | None = None
    history_s: Annotated[float, Meta(ge=0)] | None = None


class AvatarBody(Identified, kw_only=True):
    """Whose avatar it is."""

    user: Target


class PollBody(Identified, kw_only=True):
    """Without `session`, opens one; with it, asks for what has come since."""

    token: str | None = None
    session: str | None = None
    wait_ms: Count = 0
    # The last batch that arrived; until it is named here it is given again.
    ack: Count | None = None


class RevokeBody(Identified, kw_only=True):
    """A token that is good no more: its id, and when it would have expired."""

    jti: Name
    exp: Annotated[float, Meta(ge=0)]


class Answer(msgspec.Struct, omit_defaults=True):
    """The hub's reply to an op."""

    ok: bool
    error: str | None = None
    reason: str | None = None
    outcome: str | None = None
    message: str | None = None
    online: bool | None = None
    nodes: int | None = None
    verdicts: dict[str, str] | None = None
    data: Raw | UnsetType = UNSET
    data64: str | None = None
    epoch: str | None = None
    offset: int | None = None
    recovered: bool | None = None
    n: int | None = None
    num: int | None = None
    lanes: list[int] | None = None
    members: list[str] | None = None


class Failure(msgspec.Struct, omit_defaults=True):
    """Why a request was refused; a send to a list also says which receivers took it."""

    ok: bool
    error: str
    reason: str
    outcome: str | None = None
    message: str | None = None
    verdicts: dict[str, str] | None = None


class Opened(msgspec.Struct):
    """A session to poll. Whoever knows its id may read it: keep it like a password."""

    ok: bool
    session: str
    heartbeat_s: float
    # The session ends when it is not polled for this long.
    lease_s: float


class Batch(msgspec.Struct):
    """What came for a session: ops as on a WebSocket, `message` for the most part."""

    ok: bool
    batch: int
    messages: list[dict[str, Any]]


class Done(msgspec.Struct):
    """It was done."""

    ok: bool


class Revoked(msgspec.Struct):
    """The token is refused from now on; so many sessions that it opened were closed."""

    ok: bool
    closed: int


class SessionView(msgspec.Struct):
    """A session as an administrator sees it; its id is left out, since it opens a polled one."""

    address: str
    edge: str
    peer: str
    topics: int
    rooms: int
    held_bytes: int
    paused: bool


class SessionsPage(msgspec.Struct):
    """Some of the sessions of an app; `next` is where the following page starts."""

    ok: bool
    sessions: list[SessionView]
    next: int | None


class Status(msgspec.Struct):
    """How a node is doing."""

    ok: bool
    node: str
    version: str
    uptime_s: float
    draining: bool
    addresses: dict[str, str]
    sessions: dict[str, int]
    apps: int
    endpoints: int
    topics: int
    # With a member on this node.
    rooms: int
    held_bytes: int
    counters: dict[str, dict[str, int]]


def read_body(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """Read a request's body; raises BadRequest naming the field that is wrong."""
    try:
        check_text(data)
        return decoder.decode(data)
    except RemoteProtocolError:
        raise BadRequest("body: not UTF-8") from None
    except UNREADABLE as error:
        reason = refusal(error).reason
        if found := _NO_NUMBER.search(data):
            # Else the error would be the place of a byte, and name no field.
            reason += "; {}: {} is no number in JSON".format(*map(bytes.decode, found.groups()))
        raise BadRequest(f"body: {reason}") from None
