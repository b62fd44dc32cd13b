"""What paths are, in plain Python: message by message, hop by hop."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from chappe.ids import EPOCH_MS
from chappe.pipeline.kinds import QUEUE_KINDS
from chappe.pipeline.options import Options
from tests.pipeline import plain_push
from tests.pipeline.tales import PUSH_KINDS, Tale
from tests.pipeline.traffic import MINUTE, Row

Hops = list[Row]


def trails(tale: Tale) -> list[Hops]:
    """The hops of each message, sorted by time, each once."""
    found: dict[Any, dict[Any, Row]] = defaultdict(dict)
    for row in tale.rows:
        shift = tale.shifts.get((row["node"], row["at"] - row["at"] % MINUTE), 0)
        hop = {"message": None, "label": None, **row, "shift": shift, "time": row["at"] + shift}
        found[hop["label"] or hop["message"]][hop["node"], hop["boot"], hop["serial"]] = hop
    order = ("time", "node", "boot", "serial")
    return [sorted(one.values(), key=lambda h: [h[n] for n in order]) for one in found.values()]


def bucket(us: int) -> int:
    return math.floor(math.log(max(us, 1)) / math.log(1.02) + 0.5)


def of(hops: Hops, *kinds: str) -> Hops:
    return [hop for hop in hops if hop["kind"] in kinds]


def times(hops: Iterable[Row]) -> list[int]:
    return [hop["time"] for hop in hops]


def first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def got(hops: Hops) -> Hops:
    """Hops that gave it to sessions."""
    return [hop for hop in of(hops, "sent", "published") if (hop["n"] or 0) > 0]


def family(hops: Hops) -> str:
    if of(hops, *QUEUE_KINDS):
        return "queue"
    if hops[0]["label"] is not None:
        return "push" if of(hops, *PUSH_KINDS) else "request"
    if any((hop["target"] or "").startswith("room:") for hop in of(hops, "published")):
        return "room"
    if of(hops, "published"):
        return "topic"
    return "send" if of(hops, "sent") else "other"


def came(hop: Row) -> int:
    """When it came to a node, as far as that is told."""
    return hop["time"] if hop["came"] is None else hop["came"] + hop["shift"]


def born(hops: Hops) -> int:
    begins = of(hops, "sent", "published", "stored", "asked", "push_sent")
    coming = [came(hop) for hop in begins if hop["came_from"] is None]
    if coming:
        return min(coming)
    if hops[0]["message"] is not None:
        return ((hops[0]["message"] >> 22) + EPOCH_MS) * 1000
    return min(times(hops)) if family(hops) == "push" else max(times(hops))


def ready(hops: Hops) -> int | None:
    """When it was durable and due."""
    found = []
    for hop in of(hops, "stored"):
        due = hop["time"] if hop["due"] is None else hop["due"] + hop["shift"]
        found.append(max(hop["time"], due))
    return min(found, default=None)


def replies(hops: Hops) -> Hops:
    return [hop for hop in of(hops, "answered") if hop["came_from"] is None]


def delivered(hops: Hops) -> int | None:
    if family(hops) == "queue":
        return min(times(of(hops, "acked")), default=None)
    if family(hops) == "push":
        return min(times(of(hops, "push_acked")), default=None)
    if family(hops) == "request":
        return min(times(h for h in replies(hops) if h["reason"] is None), default=None)
    return max(times(got(hops)), default=None)


def is_done(hop: Row) -> bool:
    """Whether the hop's group has nothing more to do with it."""
    if hop["kind"] in ("acked", "died"):
        return True
    unwanted = hop["kind"] == "dropped" and hop["reason"] == "nobody"
    return unwanted and hop["group_name"] is not None


def is_undone(hops: Hops) -> bool:
    """Whether a group was handed it and is not done."""
    done = {hop["group_name"] for hop in hops if is_done(hop)}
    return any(hop["group_name"] not in done for hop in of(hops, "lent"))


def waits(hops: Hops) -> bool:
    replayed = max(times(of(hops, "replayed")), default=0)
    since = [hop for hop in hops if hop["time"] >= replayed]
    return not any(map(is_done, since)) or is_undone(since) or is_undone(hops)


def role(hop: Row) -> str | None:
    """The role of rooms before gateways in which a node passed it on."""
    return hop["role"] if hop["role"] in ("publisher", "proxy", "broker") else None


def handings(hops: Hops) -> list[tuple[str, str, str | None, int]]:
    """From whom to whom it was handed, as which role, and when; to another than oneself."""
    return [
        (hop["node"], peer, role(hop), hop["time"])
        for hop in hops
        for peer in hop["went_to"] or ()
        if peer != hop["node"]
    ]


def comes(hop: Row) -> bool:
    """Whether it came from another node."""
    return hop["came_from"] not in (None, hop["node"])


def had(hops: Hops, hop: Row) -> tuple[str, str, str | None]:
    """From whom a node had it, and as which role that gave it. If it is not told as which the node
    took it, the last that can have, and better one that gave nothing else."""
    pair = (hop["came_from"], hop["node"])
    if taken(hop) is not None:
        return *pair, BEFORE[taken(hop)]
    handed = {(node, peer, word) for node, peer, word, _time in handings(hops)}
    others = [one for one in hops if (one["came_from"], one["node"]) == pair and taken(one)]
    known = {BEFORE[taken(one)] for one in others}
    fits = [word for word in ("broker", "proxy", "publisher") if (*pair, word) in handed]
    return *pair, first([*(word for word in fits if word not in known), *fits])


# Who hands it to each role.
BEFORE = {"publisher": None, "proxy": "publisher", "broker": "proxy", "gateway": "broker"}


def taken(hop: Row) -> Any:
    """As which role a node took it, if it says so."""
    return first(hop[name] for name in ("taken_as", "role") if hop[name] in BEFORE)


def at_gateways(hops: Hops) -> Hops:
    """Hops that tell of no role on the way to a gateway."""
    return [hop for hop in of(hops, "sent", "published") if not role(hop)] + of(hops, "copied")


def is_through(hops: Hops) -> bool:
    """Whether a broker had it."""
    by_brokers = [hop for hop in of(hops, "sent", "published") if role(hop) == "broker"]
    return bool(by_brokers or at_gateways(hops))


def is_missed(hops: Hops, leg: tuple[str, str, str | None]) -> bool:
    """Whether somebody does without what was handed on so and did not come."""
    _node, peer, word = leg
    if peer in {hop["node"] for hop in of(hops, "dropped")}:
        return False
    if word == "broker":
        return peer not in {hop["node"] for hop in at_gateways(hops)}
    return word is None or not is_through(hops)


def travels_on(hops: Hops) -> bool:
    """Whether a node that got it says nothing of it, or one that gave it does not."""
    handed = {(node, peer, word) for node, peer, word, _time in handings(hops)}
    arrived = {had(hops, hop) for hop in hops if comes(hop)}
    missed = {leg for leg in handed - arrived if is_missed(hops, leg)}
    early = ("publisher", "proxy")
    untold = {leg for leg in arrived - handed if leg[2] not in early or not is_through(hops)}
    return bool(missed or untold)


def is_open(hops: Hops) -> bool:
    if family(hops) == "queue":
        return not of(hops, "cancelled") and waits(hops)
    if family(hops) == "push":
        return plain_push.is_open(hops)
    return not replies(hops) if family(hops) == "request" else travels_on(hops)


def in_vain(hops: Hops) -> bool:
    """Whether somebody who wanted it was surely not given it."""
    served = {hop["target"] for hop in of(hops, "sent") if hop["n"] != 0}
    for hop in of(hops, "dropped"):
        same = served if hop["target"] is None else served & {hop["target"], None}
        spared = role(hop) and is_through(hops)
        if hop["reason"] != "nobody" and not same and not spared:
            return True
    return False


def is_repeated(hops: Hops) -> bool:
    if family(hops) == "queue":
        places: list[Any] = [hop["group_name"] for hop in of(hops, "acked")]
    else:
        places = [(hop["node"], hop["target"]) for hop in got(hops)]
    return len(set(places)) < len(places)


def is_suspect(hops: Hops, options: Options) -> bool:
    if family(hops) == "push":
        return plain_push.is_suspect(hops, options)
    queued = family(hops) == "queue"
    began = ready(hops)
    took = max(times(hops)) - (born(hops) if began is None else began)
    late = took > (options.queue_sla_ms if queued else options.sla_ms) * 1000
    failed = family(hops) == "request" and delivered(hops) is None
    return late or failed or bool(of(hops, "dropped")) or is_repeated(hops)


def is_cancelled(hops: Hops) -> bool:
    """Whether it was taken back, or no group of its queue wanted it."""
    wanted = of(hops, "lent", "acked", "died")
    unwanted = family(hops) == "queue" and of(hops, "dropped") and not wanted
    return bool(of(hops, "cancelled") or unwanted)


def receivers(hops: Hops) -> int:
    if family(hops) == "push":
        return plain_push.arrived(hops)
    return sum(hop["n"] for hop in got(hops))


def path(hops: Hops, options: Options) -> dict[str, Any]:
    """A message's row, without its hops."""
    return {
        "family": family(hops),
        "message": None if hops[0]["label"] else hops[0]["message"],
        "label": hops[0]["label"],
        **{name: first(h[name] for h in hops) for name in ("app", "sender", "target")},
        "born": born(hops),
        "stored": min(times(of(hops, "stored")), default=None),
        "ready": ready(hops),
        "lent": min(times(of(hops, "lent")), default=None),
        "delivered": delivered(hops),
        "ended": max(times(hops)),
        "receivers": receivers(hops),
        "share": min(hop["share"] for hop in hops),
        "open": is_open(hops),
        "suspect": is_suspect(hops, options),
        "vain": in_vain(hops),
        "cancelled": is_cancelled(hops),
        "first_at": min(hop["at"] for hop in hops),
        "last_at": max(hop["at"] for hop in hops),
    }
