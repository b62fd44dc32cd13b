"""Kinds: what the schema of events says of them, as the pipeline asks for it."""

from __future__ import annotations

from typing import Final

from chappe.events.schema import KINDS, NAMES, Part


def _of(*parts: Part) -> tuple[str, ...]:
    return tuple(name for name, kind in KINDS.items() if kind.part in parts)


def _families(part: Part) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in _of(part):
        family = KINDS[name].family
        assert family is not None, f"{name}: messages that leave nodes are of a family"
        found[family] = (*found.get(family, ()), name)
    return found


# Those that are of a message when they have an id; all others are of none.
MESSAGE_KINDS: Final = tuple(name for name, kind in KINDS.items() if kind.part is not None)
QUEUE_KINDS: Final = _of("queue")
# With these a message left a node; with these, for single receivers; with these, it was lost.
PASSING: Final = _of("send", "publish")
SENDING: Final = _of("send")
PUBLISHING: Final = _of("publish")
DROPPING: Final = _of("drop")
# These happened where it was, and did not bring it anywhere.
STAYING: Final = _of("drop", "note")
# What is published to a room is counted apart from what is to topics: its address says so.
ROOM: Final = "room"
ROOM_ADDRESS: Final = "room:"
# The roles that it passes there, in that order, as numbers; 0 is none.
ROLES: Final = {"publisher": 1, "proxy": 2, "broker": 3, "gateway": 4}
# Those that hand it to the next.
HANDING: Final = ("publisher", "proxy", "broker")
# That a message came is told with these, too, though nothing else follows from them.
COMING: Final = (*PASSING, "stored", "copied")
# What is pushed to devices is known by what is told of it.
PUSH: Final = "push"
# The families of messages that go from node to node, on their way to sessions.
TRAVELLING: Final = tuple(dict.fromkeys((*_families("publish"), ROOM, *_families("send"))))
# What a message is, by the kinds that say so. Several may: what comes first here counts.
FAMILIES: Final = {
    "queue": QUEUE_KINDS,
    "request": _of("request"),
    PUSH: _of("push"),
    ROOM: (),
    **_families("publish"),
    **_families("send"),
}
# What kinds need, by column.
NEEDED: Final = {
    column: kinds
    for column in NAMES
    if (kinds := tuple(name for name, kind in KINDS.items() if column in kind.needs))
}
