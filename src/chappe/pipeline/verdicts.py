"""Verdicts on messages from what their own paths say.

A path is a row of its table, its hops in order of time. What a hop does not tell is None, and is
the same as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from chappe.pipeline.kinds import DROPPING, PASSING, PUSH, SENDING
from chappe.pipeline.options import Options
from chappe.pipeline.whereabouts import came_through, role_of

Row = dict[str, Any]


class Verdict(NamedTuple):
    """What is said of a message, and at which hop that was seen."""

    verdict: str
    reason: str
    node: str
    at: int


def settled(path: Row, options: Options) -> list[Verdict]:
    """What a path says by itself, whatever else is known later."""
    if not path["suspect"]:
        return []
    if path["family"] == PUSH:
        found: tuple[Verdict | None, ...] = (_shown_twice(path), _arrived_late(path, options))
    else:
        found = (_dropped(path), _twice(path), _late(path, options), _unsure(path))
    return [verdict for verdict in found if verdict is not None]


def time_of(hop: Row) -> int:
    """When it was, by the clock of all."""
    time: int = hop["at"] + hop["shift"]
    return time


def replays(path: Row) -> list[int]:
    """When a dead letter was sent once more."""
    return [time_of(hop) for hop in _of_kind(path, "replayed")]


def ready_at(path: Row) -> int:
    """When its queue could hand it out, since it was sent for the last time."""
    first = path["born"] if path["ready"] is None else path["ready"]
    ready: int = max(replays(path), default=first)
    return ready


def was_taken(path: Row) -> bool:
    """Whether a group was handed it, or does not want it, since it was sent for the last time."""
    since = max(replays(path), default=0)
    # Of what was dropped for no reason that is told, it may be so.
    passed = (None, "nobody")
    return any(
        hop["kind"] == "lent" or (hop["kind"] in DROPPING and hop["reason"] in passed)
        for hop in path["hops"]
        if time_of(hop) >= since
    )


def _of_kind(path: Row, *kinds: str) -> Iterator[Row]:
    return (hop for hop in path["hops"] if hop["kind"] in kinds)


def _at(hop: Row, verdict: str, reason: str) -> Verdict:
    return Verdict(verdict, reason, hop["node"], time_of(hop))


def _dropped(path: Row) -> Verdict | None:
    """It was dropped at a node, and somebody missed it: no other node gave it to them."""
    # Who was given it; how many they were may not be told.
    given = {hop["target"] for hop in _of_kind(path, *SENDING) if hop["n"] != 0}
    for hop in _of_kind(path, *DROPPING):
        # Of a copy for a room, on its way to gateways that others came to, nobody missed anything.
        spared = role_of(hop) and came_through(path["hops"])
        wanted = hop["reason"] != "nobody" and not spared
        # If it is not told who it was for, they may be the same.
        to_them = given if hop["target"] is None else given & {hop["target"], None}
        if wanted and not to_them:
            return _at(hop, "lost", f"{hop['kind']}: {_or(hop['reason'], 'no reason')}")
    return None


def _twice(path: Row) -> Verdict | None:
    """A node gave to sessions what it had given them before; a group was done a second time."""
    if path["family"] == "queue":
        return _done_twice(path)
    seen = set()
    for hop in _of_kind(path, *PASSING):
        if not hop["n"] or hop["target"] is None:
            continue
        given = hop["kind"], hop["node"], hop["target"]
        if given in seen:
            return _at(hop, "duplicated", f"twice at {hop['node']}")
        seen.add(given)
    return None


def _done_twice(path: Row) -> Verdict | None:
    seen = set()
    for hop in _of_kind(path, "acked"):
        group = hop["group_name"]
        # What a broker tells after a start it may have told before.
        if hop["reason"] == "recovered" or group is None:
            continue
        if group in seen:
            return _at(hop, "duplicated", f"done twice by {group}")
        seen.add(group)
    return None


def _late(path: Row, options: Options) -> Verdict | None:
    """It took longer than was promised; in a queue, until somebody was handed it first."""
    if path["family"] == "queue":
        return _waited(path, options.queue_sla_ms * 1000)
    if path["delivered"] is None:
        return None
    took = path["delivered"] - path["born"]
    if took <= options.sla_ms * 1000:
        return None
    return _at(path["hops"][-1], "late", f"took {(took + 500) // 1000} ms")


def _waited(path: Row, promised_us: int) -> Verdict | None:
    sent_again = replays(path)
    for hop in _of_kind(path, "lent"):
        if _or(hop["attempt"], 1) != 1:
            continue
        handed = time_of(hop)
        # A dead letter that was sent once more waits from then on.
        since = max((time for time in sent_again if time <= handed), default=path["ready"])
        if since is not None and handed - since > promised_us:
            return _at(hop, "late", f"waited {(handed - since) // 1000} ms")
    return None


def _shown_twice(path: Row) -> Verdict | None:
    """A client had a note for the first time twice, or more had it than it was sent to."""
    seen: set[str] = set()
    arrived, aimed = 0, max((hop["n"] or 0 for hop in _of_kind(path, "push_sent")), default=None)
    for hop in _of_kind(path, "push_acked"):
        client = hop["client"]
        if client in seen:
            return _at(hop, "duplicated", f"acknowledged twice by {client}")
        arrived += _or(hop["n"], 0) if client is None else 1
        if client is not None:
            seen.add(client)
        if aimed is not None and arrived > aimed:
            return _at(hop, "duplicated", f"acknowledged {arrived} times, and sent to {aimed}")
    return None


def _arrived_late(path: Row, options: Options) -> Verdict | None:
    """Of those who were there when a note was sent, the first that had it later than promised."""
    for hop in _of_kind(path, "push_acked"):
        came = time_of(hop) if hop["came"] is None else hop["came"] + hop["shift"]
        took = came - path["born"]
        some = hop["client"] is not None or _or(hop["n"], 0) > 0
        if some and hop["reason"] == "live" and took > options.sla_ms * 1000:
            return _at(hop, "late", f"took {(took + 500) // 1000} ms")
    return None


def _unsure(path: Row) -> Verdict | None:
    """A request of which whoever asked was told that nobody knows."""
    if path["family"] != "request":
        return None
    for hop in _of_kind(path, "answered"):
        reason = _or(hop["reason"], "")
        if hop["came_from"] is None and reason.endswith("outcome unknown"):
            return _at(hop, "unknown", f"answered: {reason}")
    return None


def _or(told: Any, otherwise: Any) -> Any:
    return otherwise if told is None else told
