"""The schema of events: what a node tells of the life of messages, sessions and links.

One flat row for each event. The recorder, the files of Parquet and Spark all read it here. To add a
kind is to add an entry to KINDS, and to call `recorder.tell` with its name and columns: the entry
says how it is told, and what it is in the path of a message. To add a column is to add it at the
end and to raise VERSION, never to change or to move one: files of all versions are read together,
what a file lacks is null.

Times are microseconds since 1970 by the clock of the node that tells them. Clocks of nodes differ:
`link` events say by how much.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

VERSION = 3

Type = Literal["int", "long", "double", "string", "strings"]


class Column(NamedTuple):
    """A column of all events."""

    name: str
    type: Type
    about: str
    required: bool = False


COLUMNS = (
    Column("v", "int", "the version of this schema", required=True),
    Column("kind", "string", "what happened: one of KINDS", required=True),
    Column("node", "string", "the node that tells", required=True),
    Column(
        "boot", "long", "when the node's process began: which of its lives it was", required=True
    ),
    Column("serial", "long", "the event's number in that life, from 1", required=True),
    Column("at", "long", "when it happened", required=True),
    Column("app", "string", "whose it is"),
    Column("message", "long", "the message's id"),
    Column(
        "label", "string", "an id that is no number: of a request to a service, of a push message"
    ),
    Column("sender", "string", "who sent it"),
    Column("target", "string", "the address it was sent to, or that it is about"),
    Column(
        "came",
        "long",
        "when that began which ends with `at`: a message came here, a request was asked, a session "
        "was opened",
    ),
    Column("came_from", "string", "the node that it came from; none: its sender is here"),
    Column("went_to", "strings", "the nodes that it was handed to"),
    Column("n", "long", "how many: receivers here, messages that were dropped"),
    Column("bytes", "long", "of the payload"),
    Column("session", "string", "the session it is about, by the begin of its id"),
    Column("edge", "string", "where that came in: websocket, tcp, http, ..."),
    Column("group_name", "string", "the consumers' group of a queue"),
    Column("attempt", "int", "which try of handing a message to a group, from 1"),
    Column("due", "long", "when a delayed message is to be delivered"),
    Column("reason", "string", "why: an error's code, a reason for dropping, a closing code"),
    Column("peer", "string", "the node at the other end of a link"),
    Column("ahead", "long", "by how many microseconds the peer's clock is ahead of this node's"),
    Column("round_trip", "long", "how long a beat took to the peer and back, in microseconds"),
    Column(
        "share", "double", "of messages like this one, the share that is recorded", required=True
    ),
    # Since version 2.
    Column("role", "string", "of rooms, who tells: publisher, proxy, broker or gateway"),
    Column("taken_as", "string", "of rooms, in which role of the node it came, if in another"),
    Column("peer_role", "string", "of a link of rooms, who is at its other end"),
    Column("partition", "int", "of rooms, the partition"),
    Column("copies", "long", "how often messages to rooms were handed to gateways"),
    Column("rooms", "long", "how many rooms"),
    Column("members", "long", "how many members, on all gateways"),
    Column("gateways", "long", "how many gateways"),
    Column("failed", "long", "how many of `n` probes did not come back"),
    Column("delay_p50", "long", "how long half of the probes took at most, in microseconds"),
    Column("delay_p99", "long", "how long all but one in a hundred did"),
    # Since version 3.
    Column("job", "string", "of push, the job that a note belongs to"),
    Column("client", "string", "of push, the client; none: it is of `n` of them"),
    Column("offline", "long", "of push, how many of `n` were connected to no comet"),
    Column("expires", "long", "of push, until when a note is to be delivered"),
)

NAMES = tuple(column.name for column in COLUMNS)


# What an event is in the path of its message.
#
# send      it left a node, for single receivers: that one of several nodes gives it to them will do
# publish   it left a node, for all who listen there and on the nodes that it was handed to
# drop      it was lost at a node
# queue     it came into a queue, or what became of it there, each kind with a meaning of its own
# request   it was asked of a service, or answered
# push      a note was sent to devices, or what became of it there
# note      nothing follows from it: it is shown with what its node did before
Part = Literal["send", "publish", "drop", "queue", "request", "push", "note"]

# How `recorder.tell` tells of it.
#
# all       every one
# exact     every one, and at once: it is to be known even if the node is killed in the next moment
# sampled   those whose message is among the share that is recorded; without an id, every one
Told = Literal["all", "exact", "sampled"]


class Kind(NamedTuple):
    """A kind of event."""

    about: str
    # Which columns it has, besides those that all have.
    columns: tuple[str, ...]
    # Of these, those without which it makes no sense.
    needs: tuple[str, ...] = ()
    # None: it is of no message.
    part: Part | None = None
    # Of what leaves nodes: what its messages are counted as, together and apart from others.
    family: str | None = None
    told: Told = "all"


_MESSAGE = ("app", "message", "sender", "target")
_QUEUED = ("app", "message", "target")
_SESSION = ("app", "target", "session", "edge")
_NOTE = ("app", "label", "job")

KINDS: dict[str, Kind] = {
    "node_started": Kind("a node takes traffic from now on", ()),
    "node_alive": Kind("all that happened on a node before is written down", ()),
    "node_stopped": Kind("a node ends in order: nothing of its is missing", ()),
    "node_gone": Kind(
        "a node that was killed is gone since it was last heard of: whoever sealed its log says so",
        (),
    ),
    "missed": Kind(
        "events could not be written down: what is told of that time is not all", ("n", "reason")
    ),
    "session_opened": Kind("an endpoint said hello", _SESSION),
    "session_closed": Kind(
        "an endpoint's session ended, with a code", (*_SESSION, "came", "reason")
    ),
    "sent": Kind(
        "a message to single receivers left a node: to sessions, or to other nodes",
        (*_MESSAGE, "came", "came_from", "went_to", "n", "bytes"),
        part="send",
        family="send",
        told="sampled",
    ),
    "published": Kind(
        "a message to a topic or a room left a node: to sessions, or to other nodes",
        (*_MESSAGE, "came", "came_from", "went_to", "n", "bytes", "role", "taken_as"),
        part="publish",
        family="topic",
        told="sampled",
    ),
    "copied": Kind(
        "a message to a room came to a gateway that had it already, by another way",
        (*_MESSAGE, "came", "came_from", "n", "bytes", "role", "taken_as"),
        part="note",
        told="sampled",
    ),
    "dropped": Kind(
        "messages were lost on their way out; with an id, that one",
        ("app", "message", "target", "group_name", "n", "reason", "role"),
        part="drop",
        told="sampled",
    ),
    "refused": Kind("a request was answered with an error", ("app", "reason", "n")),
    "stored": Kind(
        "a queue has a message, durably; until `due`, nobody gets it",
        (*_MESSAGE, "came", "came_from", "bytes", "due", "reason"),
        needs=("message",),
        part="queue",
        told="exact",
    ),
    "cancelled": Kind(
        "a delayed message was taken back",
        (*_QUEUED, "reason"),
        needs=("message",),
        part="queue",
        told="exact",
    ),
    "lent": Kind(
        "a message was handed to a consumer",
        (*_QUEUED, "group_name", "attempt", "session"),
        needs=("message", "group_name"),
        part="queue",
        told="exact",
    ),
    "acked": Kind(
        "a group is done with a message, durably",
        (*_QUEUED, "group_name", "attempt", "reason"),
        needs=("message", "group_name"),
        part="queue",
        told="exact",
    ),
    "returned": Kind(
        "a consumer did not do it: it is tried again",
        (*_QUEUED, "group_name", "attempt", "reason"),
        needs=("message",),
        part="queue",
        told="exact",
    ),
    "died": Kind(
        "a message is a dead letter",
        (*_QUEUED, "group_name", "attempt", "reason"),
        needs=("message",),
        part="queue",
        told="exact",
    ),
    "replayed": Kind(
        "a dead letter is sent once more, as a message",
        (*_QUEUED, "reason"),
        needs=("message",),
        part="queue",
        told="exact",
    ),
    "purged": Kind(
        "a dead letter is gone for good; without an id, `n` of them",
        (*_QUEUED, "n", "reason"),
        part="queue",
        told="exact",
    ),
    "recovered": Kind(
        "a broker goes on with a durable queue, after a start or instead of another node; `n` wait "
        "there, as the slowest group sees it",
        ("app", "target", "n"),
        told="exact",
    ),
    "removed": Kind("a queue is no more, and the `n` messages that it had", ("app", "target", "n")),
    "asked": Kind(
        "a request came to the node that hands it to a provider, or to the node that does",
        ("app", "label", "sender", "target", "session", "bytes", "came_from", "went_to"),
        needs=("label",),
        part="request",
        told="exact",
    ),
    "answered": Kind(
        "a request that came was answered; without a reason, well",
        ("app", "label", "came", "reason", "came_from"),
        needs=("label",),
        part="request",
        told="exact",
    ),
    "link_up": Kind("a link to a node is there", ("peer",), needs=("peer",)),
    "link_down": Kind(
        "a link to a node is not there any more", ("peer", "reason"), needs=("peer",)
    ),
    "link": Kind("a beat over a link came back", ("peer", "ahead", "round_trip"), needs=("peer",)),
    "user_came": Kind("a user has a session in the cluster and had none", ("app", "target")),
    "user_gone": Kind("a user has had no session for longer than the grace", ("app", "target")),
    "hooked": Kind("an app's own server was told so, or was not", ("app", "reason")),
    "room_load": Kind(
        "what a broker of rooms did since it told last: `n` messages came, and `copies` went to "
        "gateways; and what it has",
        ("partition", "n", "copies", "rooms", "members"),
        needs=("partition", "n"),
    ),
    "room_heat": Kind(
        "what one of a broker's hottest rooms was to it since it told last",
        ("app", "target", "partition", "n", "copies", "members", "gateways"),
        needs=("app", "target", "partition", "n"),
    ),
    "room_link": Kind(
        "what probes found of the link from `came_from`, in a role, to `peer`, since it was told "
        "last: `n` were sent over it",
        ("came_from", "role", "peer", "peer_role", "n", "failed", "delay_p50", "delay_p99"),
        needs=("came_from", "role", "peer", "n"),
    ),
    "room_alarm": Kind(
        "somebody was told that probes fail on a link of rooms, or no longer do",
        ("came_from", "role", "peer", "peer_role", "n", "reason"),
        needs=("peer", "reason"),
    ),
    "push_sent": Kind(
        "a note is kept for `n` clients, or a topic's subscribers, and goes to comets",
        (*_NOTE, "target", "came", "went_to", "n", "offline", "bytes", "expires"),
        needs=("label", "job", "n"),
        part="push",
        told="exact",
    ),
    "push_handed": Kind(
        "a comet wrote a note to connections of devices; with a client, to that one's",
        (*_NOTE, "client", "came", "came_from", "n", "reason"),
        needs=("label",),
        part="push",
    ),
    "push_absent": Kind(
        "clients that a comet was to hand a note to are not there: it waits for them",
        (*_NOTE, "came_from", "n"),
        needs=("label", "n"),
        part="push",
    ),
    "push_acked": Kind(
        "a device has a note, for the first time, and it waits no more",
        (*_NOTE, "client", "came", "n", "reason"),
        needs=("label",),
        part="push",
        told="exact",
    ),
    "push_clicked": Kind(
        "a note was clicked on a device, for the first time",
        (*_NOTE, "client"),
        needs=("label", "client"),
        part="push",
        told="exact",
    ),
    "push_dropped": Kind(
        "a client does not get a note any more; without one, `n`, or all who have not got it",
        (*_NOTE, "client", "n", "reason"),
        needs=("label", "reason"),
        part="push",
        told="exact",
    ),
    "push_bridged": Kind(
        "a note for a client that is not connected was handed to a platform's push service, or "
        "was not, and why",
        (*_NOTE, "client", "n", "reason"),
        needs=("label", "reason"),
        part="push",
    ),
    "push_retracted": Kind(
        "devices that have a note were told to take it back",
        (*_NOTE, "client", "n", "reason"),
        needs=("label",),
        part="push",
    ),
}
