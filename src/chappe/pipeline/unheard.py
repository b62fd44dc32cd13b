"""Unheard: notes of push that a device was handed, or should have been, and did not acknowledge.

A note waits for its clients until it expires. Only then is it said what is wrong, and nothing is of
those who were offline all the time. Whether a device that was handed it shows it, nobody knows
until it says so: such notes are `unknown`. So are those of which a comet died that had them, as it
may have been told more than it told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from chappe.pipeline.hours import hour_us
from chappe.pipeline.kinds import PUSH
from chappe.pipeline.options import Options
from chappe.pipeline.verdicts import time_of
from chappe.pipeline.whereabouts import missing

if TYPE_CHECKING:
    from chappe.pipeline.audit import Known

Row = dict[str, Any]
# A verdict and its reason.
Said = tuple[str, str]
FORGOTTEN = "unknown", "its hour was forgotten: what came of it since is not known"


def unheard(path: Row, known: Known, options: Options) -> Iterator[Said]:
    """What is said of an open path of a note; nothing of other messages, nor of one that nobody
    tells of sending: that is asked of who sent it."""
    expires = _expires(path)
    if path["family"] != PUSH or expires is None:
        return
    over, forgotten = expires + options.grace_ms * 1000, known.forgotten_by(path["hour"])
    if forgotten is not None and hour_us(forgotten) <= over:
        yield FORGOTTEN
    elif known.horizon is not None and known.horizon > over:
        silent = {hop["client"]: hop for hop in _silent(path["hops"])}
        yield from _unacknowledged(silent, known)
        if _short(path["hops"]):
            yield _never_handed(path, known)


def is_sent(path: Row) -> bool:
    """Whether somebody tells of sending a note."""
    return any(hop["kind"] == "push_sent" for hop in path["hops"])


def _expires(path: Row) -> int | None:
    """When a note does; if that is not told, when it was last heard of."""
    sent = [hop for hop in path["hops"] if hop["kind"] == "push_sent"]
    if not sent:
        return None
    told = [hop["expires"] + hop["shift"] for hop in sent if hop["expires"] is not None]
    last: int = max(told, default=path["ended"])
    return last


def _silent(hops: list[Row]) -> Iterator[Row]:
    """Where clients were handed a note that they did not acknowledge, and that was not dropped."""
    ends = _named(hops, "push_acked", "push_dropped")
    for hop in hops:
        if hop["kind"] == "push_handed" and hop["client"] not in ends | {None}:
            yield hop


def _unacknowledged(silent: dict[str, Row], known: Known) -> Iterator[Said]:
    if not silent:
        return
    died = sorted(hop["node"] for hop in silent.values() if _died(hop["node"], time_of(hop), known))
    if died:
        yield "unknown", f"{died[0]} died before it told"
    else:
        who = min(silent) if len(silent) == 1 else f"{len(silent)} clients"
        yield "unknown", f"handed to {who}, and not acknowledged"


def _short(hops: list[Row]) -> bool:
    """Whether somebody who was there is not told of at all."""
    sent = [hop for hop in hops if hop["kind"] == "push_sent"]
    told = [hop["offline"] for hop in sent if hop["offline"] is not None]
    aimed: int = max(hop["n"] or 0 for hop in sent)
    acked, dropped = _counted(hops, "push_acked"), _counted(hops, "push_dropped")
    if not told:
        done = len(_named(hops, "push_acked", "push_dropped")) + acked + dropped
        return done < aimed and any(missing(hops))
    away: int = max(told) + _counted(hops, "push_absent")
    some = max(_counted(hops, "push_handed"), acked) + dropped
    return len(_named(hops, "push_handed", "push_acked", "push_dropped")) + some < aimed - away


def _named(hops: list[Row], *kinds: str) -> set[str]:
    return {hop["client"] for hop in hops if hop["kind"] in kinds} - {None}


def _counted(hops: list[Row], kind: str) -> int:
    return sum(hop["n"] or 0 for hop in hops if hop["kind"] == kind and hop["client"] is None)


def _never_handed(path: Row, known: Known) -> Said:
    """Comets that were handed it and say nothing of it; or one that did, but not of all."""
    nodes = sorted({*missing(path["hops"])})
    told = sorted({hop["node"] for hop in path["hops"]})
    sent = max(time_of(hop) for hop in path["hops"] if hop["kind"] == "push_sent")
    for node in nodes or told:
        life = known.life_at(node, sent)
        if life is None:
            return "unknown", f"{node} never told anything of that time"
        if path["hour"] in life.missed:
            return "unknown", f"{node} could not write down everything"
        if life.died:
            return "unknown", f"{node} died before it told"
    if nodes:
        return "lost", f"it did not come to {nodes[0]}"
    return "lost", "clients that were online were not handed it"


def _died(node: str, since: int, known: Known) -> bool:
    """Whether the life of a node ended without a word that it was in then."""
    life = known.life_at(node, since)
    return life is not None and life.died
