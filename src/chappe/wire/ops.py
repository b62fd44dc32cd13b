"""The op vocabulary: what endpoints and hubs say to each other, once, for every encoding.

In JSON text an op is an object whose `op` names it. Packed, it is a msgpack array: the op's code,
then its fields in the order written here; trailing fields may be left out. The codes and the order
are the packed format: add at the end, never change.

Message ids are strings in JSON, whose readers in browsers would round a 64-bit number, and integers
when packed; prefixed ids (P5) are strings in both.

A payload travels in two fields. In JSON, `data` holds any JSON value, or `data64` holds bytes in
base64. Packed, `data` holds the payload's bytes (JSON text, or any bytes when `data64` is true).
"""

from __future__ import annotations

from typing import Annotated, Any, Union

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from chappe.errors import CloseCode
from chappe.message import DELIVERY

VERSION = 1
# JSON knows numbers of any length; what one form says the other must be able to repeat.
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Op(msgspec.Struct, tag_field="op", gc=False, omit_defaults=True):
    """Any op."""


class ClientOp(Op):
    """An op that an endpoint sends to its hub; with an `id` it asks for a reply."""

    id: Int64 | None = None


class AddressedOp(ClientOp):
    """An op about one address."""

    to: str = ""


class PayloadOp(AddressedOp):
    """An op that carries a payload."""

    data: Raw | UnsetType = UNSET
    data64: str | None = None


class Hello(ClientOp, tag="hello"):
    """Say who one is; the first op of a session."""

    as_: str = field(name="as", default="")
    token: str | None = None
    v: Int64 = VERSION
    app: str | None = None


class Ping(ClientOp, tag="ping"):
    """Ask for a pong."""


class Pong(ClientOp, tag="pong"):
    """Answer a ping, either way."""


class Send(PayloadOp, tag="send"):
    """Send to one endpoint, or to each of a list."""

    to: str | list[str] = ""  # type: ignore[assignment]
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    delay_ms: Int64 | None = None
    producer: str | None = None
    seq: Int64 | None = None
    num: Int64 | None = None
    # For a queue: the consumers that are meant, and what kind of message it is.
    consumers: list[str] | None = None
    type: Int64 | None = None


class Publish(PayloadOp, tag="publish"):
    """Publish to a topic or a room."""

    reliable: bool = False


class Subscribe(AddressedOp, tag="subscribe"):
    """Receive what is published to a topic, as oneself or as an avatar of one's own.

    `epoch` and `offset` name the last message seen: what came since is delivered first, if the
    topic keeps a history and still has it.
    """

    as_: str | None = field(name="as", default=None)
    epoch: str | None = None
    offset: Int64 | None = None


class Unsubscribe(AddressedOp, tag="unsubscribe"):
    """Stop receiving what is published to a topic, as oneself or as an avatar."""

    as_: str | None = field(name="as", default=None)


class Presence(AddressedOp, tag="presence"):
    """Ask whether an endpoint is online."""


class Join(AddressedOp, tag="join"):
    """Enter a room."""


class Leave(AddressedOp, tag="leave"):
    """Leave a room."""


class Members(AddressedOp, tag="members"):
    """Ask how many are in a room; with `n`, and if they are no more than that, also who."""

    n: Int64 = 0


class Shown(ClientOp, tag="shown"):
    """Say which notes of push one has seen: they do not come again, here or on one's devices."""

    notes: list[str] = []


class Fetch(AddressedOp, tag="fetch"):
    """Ask a queue for messages."""

    n: Int64 = 1
    wait_ms: Int64 = 0
    group: str | None = None
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    # Who takes them, if it is to be known by a name.
    name: str | None = None


class Consume(AddressedOp, tag="consume"):
    """Let a queue push messages, up to `credit` unacknowledged ones."""

    credit: Int64 = 1
    group: str | None = None
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    # Who takes them, if it is to be known by a name.
    name: str | None = None


class Ack(ClientOp, tag="ack"):
    """Acknowledge a queue's message."""

    message: str | Int64 = ""


class Nack(ClientOp, tag="nack"):
    """Hand a queue's message back; with a delay, not to be tried again before that."""

    message: str | Int64 = ""
    delay_ms: Int64 | None = None


class Cancel(ClientOp, tag="cancel"):
    """Take back a delayed message; without `to`, one that this session sent."""

    message: str | Int64 = ""
    to: str = ""


# Ops about something that lives in one place.
PlacedOp = Union[AddressedOp, Cancel]


class Register(AddressedOp, tag="register"):
    """Be a consumer of a queue by a name; without a group, one that shares with nobody.

    It begins with all that is there, or with what is sent from now on.
    """

    name: str = ""
    group: str | None = None
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    new: bool = False


class Unregister(AddressedOp, tag="unregister"):
    """Be a consumer no more; without a name the whole group is given up."""

    name: str = ""
    group: str | None = None


class Inspect(AddressedOp, tag="inspect"):
    """Ask a queue for its figures; or, with `n`, to show messages without taking them.

    `lane` is one of its lanes; `dead` and `delayed` show those instead. `after` is the place to go
    on from, as the answer before it said; `reverse` shows the newest first.
    """

    n: Int64 = 0
    lane: Int64 | None = None
    after: Int64 | None = None
    reverse: bool = False
    dead: bool = False
    delayed: bool = False


class Letters(AddressedOp, tag="letters"):
    """Deal with dead letters: `replay` or `purge` these, or all of them."""

    do: str = ""
    messages: list[str | Int64] | None = None


class Promote(ClientOp, tag="promote"):
    """Make this node the master of a broker's queues; for administrators."""

    broker: str = ""
    # Also when it may lack what was acknowledged.
    force: bool = False


class Avatar(ClientOp, tag="avatar"):
    """Add an avatar to a user, or remove it."""

    do: str = ""
    avatar: str = ""
    user: str = ""


class Provide(AddressedOp, tag="provide"):
    """Offer a service."""


class Request(PayloadOp, tag="request"):
    """Ask a service; towards a provider it carries `request` instead of an `id`.

    One that is idempotent may be given to another provider when the first one dies.
    """

    request: str | None = None
    idempotent: bool = False
    timeout_ms: Int64 | None = None


class Respond(PayloadOp, tag="respond"):
    """Answer a service's request, with data or with an error."""

    request: str = ""
    error: str | None = None
    reason: str | None = None


class Unprovide(AddressedOp, tag="unprovide"):
    """Offer a service no more; what was asked already may still be answered."""


class Create(AddressedOp, tag="create"):
    """Make a topic or a work queue with options of its own; for administrators."""

    # Of a topic: whether it shows who published, and what it keeps for those who come back.
    anonymous: bool | None = None
    history: Int64 | None = None
    history_s: float | None = None
    # Of a queue: what it keeps while nobody fetches.
    volatile: bool | None = None
    depth_max: Int64 | None = None
    bytes_max: Int64 | None = None
    ack_timeout_s: float | None = None
    attempts_max: Int64 | None = None
    lanes: Int64 | None = None
    retry_s: float | None = None
    retry_max_s: float | None = None
    ordered: bool | None = None
    consumers: list[str] | None = None
    await_s: float | None = None
    push_interval_s: float | None = None
    expire_s: float | None = None


class Delete(AddressedOp, tag="delete"):
    """Remove what was made so; for administrators."""


class Reply(Op, tag="reply"):
    """The hub's answer to the op with that id."""

    id: Int64
    ok: bool
    error: str | None = None
    reason: str | None = None
    outcome: str | None = None
    message: str | Int64 | None = None
    session: str | None = None
    heartbeat_s: float | None = None
    v: Int64 | None = None
    online: bool | None = None
    nodes: Int64 | None = None
    verdicts: dict[str, str] | None = None
    data: Raw | UnsetType = UNSET
    data64: str | None = None
    # Of a hello: who the hub takes one for.
    as_: str | None = field(name="as", default=None)
    # Of a subscribe to a topic with a history: where it is, and whether all that was missed came.
    epoch: str | None = None
    offset: Int64 | None = None
    recovered: bool | None = None
    # Of a fetch: how many messages it brought. Of a room: how many are in it.
    n: Int64 | None = None
    # Of a send to a queue: the sender's own number. Of a create: the lanes the queue has.
    num: Int64 | None = None
    lanes: list[Int64] | None = None
    # Of a room: who is in it, each as often as it has sessions there; None: too many, or not asked.
    members: list[str] | None = None


class Delivery(Op, tag="message"):
    """A message, as its receiver sees it."""

    message: str | Int64 = ""
    from_: str = field(name="from", default="")
    to: str = ""
    ts: Int64 = 0
    data: Raw | UnsetType = UNSET
    data64: str | None = None
    # Its place in the topic's history; 0 where there is none.
    offset: Int64 = 0
    # Of a queue's message: what its sender said of it, and how often it was handed out.
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    num: Int64 | None = None
    type: Int64 | None = None
    group: str | None = None
    attempt: Int64 = 1


class Error(Op, tag="error"):
    """What was wrong with a frame that could not be answered by id."""

    error: str = ""
    reason: str = ""


class Dropped(Op, tag="dropped"):
    """How many messages this session lost because it read too slowly."""

    n: Int64 = 0


class Reconnect(Op, tag="reconnect"):
    """The hub is going away; come back, here or elsewhere, after a moment."""

    reason: str = ""
    after_ms: Int64 = 0


class Position(Op, tag="position"):
    """A topic's history began anew: what one remembered of it before does not count any more."""

    to: str = ""
    epoch: str = ""
    offset: Int64 = 0


class Closed(Op, tag="closed"):
    """The last op of a session where the transport has no close frame of its own."""

    code: Int64 = 1000
    reason: str = ""


class Malformed(Op, tag=None, tag_field=None):
    """Not said by anybody: stands among the ops of a batch for a frame that could not be read.

    With a close code, nothing after it can be read either.
    """

    reason: str
    close_code: CloseCode | None = None


# The packed codes, fixed for ever. Client ops below 32, hub ops from 32 on, and Ping, Pong and
# Request, which both sides say, keep their one code.
CODES: dict[type[Op], int] = {
    Hello: 1,
    Ping: 2,
    Pong: 3,
    Send: 4,
    Publish: 5,
    Subscribe: 6,
    Unsubscribe: 7,
    Presence: 8,
    Join: 9,
    Leave: 10,
    Fetch: 11,
    Consume: 12,
    Ack: 13,
    Nack: 14,
    Cancel: 15,
    Avatar: 16,
    Provide: 17,
    Request: 18,
    Respond: 19,
    Unprovide: 20,
    Create: 21,
    Delete: 22,
    Register: 23,
    Unregister: 24,
    Inspect: 25,
    Letters: 26,
    Promote: 27,
    Members: 28,
    Shown: 29,
    Reply: 32,
    Delivery: DELIVERY,
    Error: 34,
    Dropped: 35,
    Reconnect: 36,
    Closed: 37,
    Position: 38,
}
HUB_OPS: tuple[type[Op], ...] = (
    Reply,
    Delivery,
    Error,
    Dropped,
    Reconnect,
    Closed,
    Position,
    Ping,
    Pong,
    Request,
)
CLIENT_OPS: tuple[type[Op], ...] = tuple(op for op, code in CODES.items() if code < 32)


def _packed(op: type[Op], code: int) -> type[Op]:
    """The array form of an op: a subclass, so that handlers need to know one class only."""
    fields: list[Any] = []
    if "data" in op.__struct_fields__:
        fields = [("data", Union[bytes, None], None), ("data64", bool, False)]
    return msgspec.defstruct(  # type: ignore[return-value]
        f"Packed{op.__name__}",
        fields,
        bases=(op,),
        array_like=True,
        tag=code,
        gc=False,
        module=__name__,
    )


PACKED: dict[type[Op], type[Op]] = {op: _packed(op, code) for op, code in CODES.items()}
