"""What notes of push are, in plain Python: note by note, hop by hop."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from chappe.pipeline.options import Options
from tests.pipeline import plain
from tests.pipeline.traffic import MINUTE, Row

Hops = list[Row]
WITHDRAWN = ("cancelled", "collapsed", "removed", "withdrawn")


def clients(hops: Hops, *kinds: str) -> set[str]:
    return {hop["client"] for hop in plain.of(hops, *kinds) if hop["client"] is not None}


def counted(hops: Hops, kind: str) -> int:
    """How many hops stand for that name nobody."""
    return sum(hop["n"] or 0 for hop in plain.of(hops, kind) if hop["client"] is None)


def why(hops: Hops, *reasons: str) -> Hops:
    return [hop for hop in hops if hop["reason"] in reasons]


def said(hops: Hops, column: str) -> int | None:
    told = [hop[column] for hop in plain.of(hops, "push_sent")]
    return max((one for one in told if one is not None), default=None)


def told_aim(hops: Hops) -> int | None:
    """Who sends says to how many, if it sends at all."""
    sent = plain.of(hops, "push_sent")
    return max((hop["n"] or 0 for hop in sent), default=None)


def is_ended(hops: Hops) -> bool:
    """Whether nobody gets it any more."""
    drops = plain.of(hops, "push_dropped")
    return any(hop["client"] is None and hop["n"] is None for hop in drops)


def arrived(hops: Hops) -> int:
    return len(clients(hops, "push_acked")) + counted(hops, "push_acked")


def let_go(hops: Hops) -> int:
    drops = plain.of(hops, "push_dropped")
    named = clients(drops, "push_dropped") - clients(hops, "push_acked")
    return len(named) + counted(drops, "push_dropped")


def aimed(hops: Hops) -> int:
    return max(told_aim(hops) or 0, arrived(hops) + let_go(hops))


def left(hops: Hops) -> int:
    return aimed(hops) - arrived(hops)


def dropped(hops: Hops) -> int:
    return left(hops) if is_ended(hops) else let_go(hops)


def withdrawn(hops: Hops) -> int:
    drops = why(plain.of(hops, "push_dropped"), *WITHDRAWN)
    if is_ended(drops):
        return left(hops)
    named = clients(drops, "push_dropped") - clients(hops, "push_acked")
    return min(left(hops), len(named) + counted(drops, "push_dropped"))


def sent(hops: Hops) -> int:
    firsts = [hop for hop in hops if hop["reason"] != "again"]
    named = clients(hops, "push_handed", "push_acked")
    some = max(counted(firsts, "push_handed"), counted(hops, "push_acked"))
    return min(aimed(hops), len(named) + some)


def offline(hops: Hops) -> int:
    told = said(hops, "offline")
    if told is not None:
        return min(aimed(hops), told + counted(hops, "push_absent"))
    live = why(hops, "live")
    there = len(clients(live, "push_handed")) + counted(live, "push_handed")
    return max(0, aimed(hops) - there)


def arrivals(hops: Hops) -> list[tuple[Row, int]]:
    """Acknowledgements, of each client the first, and of how many they are."""
    found, seen = [], set()
    for hop in plain.of(hops, "push_acked"):
        if hop["client"] is None:
            found.append((hop, hop["n"] or 0))
        elif hop["client"] not in seen:
            seen.add(hop["client"])
            found.append((hop, 1))
    return [(hop, n) for hop, n in found if n]


def took(hops: Hops, hop: Row) -> int:
    return max(0, plain.came(hop) - plain.born(hops))


def live_times(hops: Hops) -> list[int]:
    """How long it took to each who was online."""
    some = [(hop, n) for hop, n in arrivals(hops) if hop["reason"] == "live"]
    return [took(hops, hop) for hop, n in some for _ in range(n)]


def in_time(hops: Hops, options: Options) -> int:
    limit = options.sla_ms * 1000
    return sum(
        n for hop, n in arrivals(hops) if hop["reason"] != "live" or took(hops, hop) <= limit
    )


def is_suspect(hops: Hops, options: Options) -> bool:
    acked = [hop["client"] for hop in plain.of(hops, "push_acked") if hop["client"] is not None]
    aim = told_aim(hops)
    more = aim is not None and arrived(hops) > aim
    late = any(us > options.sla_ms * 1000 for us in live_times(hops))
    return len(set(acked)) < len(acked) or more or late


def is_open(hops: Hops) -> bool:
    if is_ended(hops):
        return False
    ends = clients(hops, "push_acked", "push_dropped")
    if clients(hops, "push_handed") - ends:
        return True
    handed = {(node, peer) for node, peer, _role, _time in plain.handings(hops)}
    came = {(hop["came_from"], hop["node"]) for hop in hops if plain.comes(hop)}
    if told_aim(hops) is None and came - handed:
        return True
    if said(hops, "offline") is None:
        return bool(handed - came) and arrived(hops) + dropped(hops) < aimed(hops)
    some = max(counted(hops, "push_handed"), counted(hops, "push_acked"))
    heard = len(clients(hops, "push_handed", "push_acked", "push_dropped")) + some
    return heard + counted(hops, "push_dropped") < aimed(hops) - offline(hops)


def jobs_of(all_hops: list[Hops]) -> dict[Any, Any]:
    """By note: app, job, target, window, born, expires; counts; how long it took, in buckets."""
    found = {}
    for hops in all_hops:
        if plain.family(hops) != "push":
            continue
        ends = [h["expires"] + h["shift"] for h in plain.of(hops, "push_sent") if h["expires"]]
        born = plain.born(hops)
        names = (plain.first(h[name] for h in hops) for name in ("app", "job", "target"))
        times = live_times(hops)
        found[hops[0]["label"]] = (
            (*names, born - born % MINUTE, born, max(ends, default=None)),
            (aimed(hops), sent(hops), arrived(hops), len(clients(hops, "push_clicked"))),
            (offline(hops), dropped(hops), withdrawn(hops)),
            aimed(hops) - arrived(hops) - dropped(hops),
            max(times, default=None),
            sorted(Counter(map(plain.bucket, times)).items()),
        )
    return found


def delivery_of(all_hops: list[Hops], options: Options) -> dict[Any, Any]:
    """By app and window: clients that were promised a note, delivered, in time, scaled."""
    found: dict[Any, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for hops in all_hops:
        if plain.family(hops) != "push":
            continue
        messages = aimed(hops) - withdrawn(hops)
        share = min(hop["share"] for hop in hops)
        if messages:
            app, born = plain.first(hop["app"] for hop in hops), plain.born(hops)
            counts = found[app, "push", born - born % MINUTE]
            each = (messages, arrived(hops), in_time(hops, options), messages / share)
            for n, one in enumerate(each):
                counts[n] += one
    return {key: tuple(counts) for key, counts in found.items()}
