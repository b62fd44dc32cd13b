"""What the sums of paths are, in plain Python: message by message, hop by hop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from chappe.pipeline.kinds import QUEUE_KINDS
from chappe.pipeline.options import Options
from tests.pipeline import plain_push
from tests.pipeline.plain import (
    Hops,
    born,
    bucket,
    came,
    comes,
    delivered,
    family,
    got,
    had,
    handings,
    is_done,
    is_undone,
    of,
    path,
    ready,
    times,
)
from tests.pipeline.traffic import MINUTE, Row


def window(us: int) -> int:
    return us - us % MINUTE


def took(start: int | None, end: int | None) -> int | None:
    """Less than nothing, by clocks that differ, is nothing."""
    return None if start is None or end is None else max(0, end - start)


def part_of(hop: Row) -> str:
    if hop["came_from"] is None:
        return "origin"
    return "relay" if hop["went_to"] else "last"


def is_carried(hops: Hops) -> bool:
    """Whether it goes from node to node; to a queue, from its sender's to the queue's own."""
    return family(hops) in ("send", "topic", "room", "queue")


def arrivals(hops: Hops) -> Iterator[tuple[Row, int | None]]:
    """Hops that it came to from another node, and how long it was under way."""
    for hop in of(hops, "sent", "published", "stored", "copied"):
        if comes(hop):
            left = [time for *way, time in handings(hops) if tuple(way) == had(hops, hop)]
            end = None if hop["came"] is None else came(hop)
            # Of copies, it is the last that can have been.
            before = [time for time in left if role_before(hops, hop) and time <= (end or 0)]
            yield hop, took(max(before, default=min(left, default=None)), end)


def role_before(hops: Hops, hop: Row) -> str | None:
    return had(hops, hop)[2]


def begun(hops: Hops, place: int) -> int | None:
    """When a message began to wait that was handed out at a place of its trail."""
    replayed = times(of(hops[: place + 1], "replayed"))
    since = [*replayed, ready(hops)]
    return max((time for time in since if time is not None), default=None)


def is_new(hop: Row) -> bool:
    """Whether it is handed out for the first time, or for the first time again."""
    return hop["kind"] == "lent" and hop["attempt"] in (None, 1)


def steps(hops: Hops) -> Iterator[tuple[str, str, int | None]]:
    """Hop, role, how long it took."""
    kind = family(hops)
    if kind in ("send", "topic", "room"):
        yield "delivery", "whole", took(born(hops), delivered(hops))
    if is_carried(hops):
        for hop in of(hops, "sent", "published"):
            yield "hub", part_of(hop), took(hop["came"], hop["at"])
        for hop, us in arrivals(hops):
            yield "link", part_of(hop), us
    if kind == "request":
        yield "answer", "whole", took(born(hops), delivered(hops))
    if kind == "push":
        yield from steps_of_note(hops)
    if kind == "queue":
        for place, hop in enumerate(hops):
            if hop["kind"] == "stored":
                yield "store", "whole", took(hop["came"], hop["at"])
            if is_new(hop):
                yield "wait", "whole", took(begun(hops, place), hop["time"])
            if hop["kind"] == "acked":
                yield "work", "whole", took(handed_out(hops, place), hop["time"])
                yield "done", "whole", took(ready(hops), hop["time"])


def steps_of_note(hops: Hops) -> Iterator[tuple[str, str, int | None]]:
    for hop in of(hops, "push_sent"):
        yield "store", "whole", took(hop["came"], hop["at"])
    for us in plain_push.live_times(hops):
        yield "arrival", "whole", us


def handed_out(hops: Hops, place: int) -> int | None:
    """When the group that is done at a place was last handed it, with that attempt."""

    def of_try(hop: Row) -> tuple[str | None, int]:
        return hop["group_name"], hop["attempt"] or 1

    lent = [h for h in of(hops[:place], "lent") if of_try(h) == of_try(hops[place])]
    return lent[-1]["time"] if lent else None


def spans(hops: Hops) -> list[Hops]:
    """A message that is replayed begins anew."""
    found: list[Hops] = [[]]
    for hop in hops:
        if hop["kind"] == "replayed":
            found.append([])
        found[-1].append(hop)
    return [span for span in found if span]


def finished(span: Hops) -> int | None:
    """When it was taken back, or the last of its groups was done."""
    if of(span, "cancelled"):
        return min(times(of(span, "cancelled")))
    ends: dict[str | None, int] = {}
    for hop in span:
        if is_done(hop):
            ends.setdefault(hop["group_name"], hop["time"])
    return None if is_undone(span) else max(ends.values(), default=None)


def flows(hops: Hops) -> Iterator[tuple[str, int, int | None, int | None]]:
    """What happened in a queue and when, how old the message was, when it could first be had."""
    if family(hops) != "queue":
        return
    for place, hop in enumerate(hops):
        if is_new(hop):
            yield "lent", hop["time"], took(begun(hops, place), hop["time"]), ready(hops)
        elif hop["kind"] in QUEUE_KINDS:
            yield hop["kind"], hop["time"], None, None
    for span in spans(hops):
        end = finished(span)
        if end is not None:
            yield "finished", end, None, None


def latency_of(all_hops: list[Hops], options: Options) -> dict[Any, Any]:
    """By app, family, hop, role and window: how many, scaled, the slowest, the buckets."""
    found: dict[Any, list[tuple[int, float]]] = defaultdict(list)
    for hops in all_hops:
        known = path(hops, options)
        for hop, part, us in steps(hops):
            if us is not None:
                key = (known["app"], known["family"], hop, part, window(known["born"]))
                found[key].append((us, 1 / known["share"]))
    return {
        key: (
            len(all_),
            sum(scaled for _us, scaled in all_),
            max(us for us, _scaled in all_),
            sorted(Counter(bucket(us) for us, _scaled in all_).items()),
        )
        for key, all_ in found.items()
    }


def links_of(all_hops: list[Hops]) -> dict[Any, tuple[int, list[int]]]:
    """By node, peer, role and window: how often it was handed, how long what came was under way."""
    handed: Counter[Any] = Counter()
    delays: dict[Any, list[int]] = defaultdict(list)
    for hops in all_hops:
        if is_carried(hops):
            minute = window(born(hops))
            handed.update((*way, minute) for *way, _time in handings(hops))
            for hop, us in arrivals(hops):
                if us is not None:
                    delays[*had(hops, hop), minute].append(us)
    return {key: (handed[key], sorted(delays[key])) for key in {*handed, *delays}}


def flows_of(all_hops: list[Hops], options: Options) -> dict[Any, Any]:
    """By app, queue, what, window and bucket: how many, the youngest, the longest wait."""
    found: dict[Any, list[tuple[int | None, int | None]]] = defaultdict(list)
    for hops in all_hops:
        known = path(hops, options)
        for what, time, age, frontier in flows(hops):
            size = None if age is None else bucket(age)
            found[known["app"], known["target"], what, window(time), size].append((frontier, age))
    return {
        key: (
            len(all_),
            max((f for f, _a in all_ if f is not None), default=None),
            max((a for _f, a in all_ if a is not None), default=None),
        )
        for key, all_ in found.items()
    }


def delivery_of(all_hops: list[Hops], options: Options) -> dict[Any, Any]:
    """By app, family and window: messages that were promised, delivered, in time, scaled."""
    found: dict[Any, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for hops in all_hops:
        known = path(hops, options)
        there = known["delivered"] is not None
        if known["family"] in ("send", "topic", "room"):
            promised = there or known["open"] or known["vain"]
            there = there and not known["open"] and not known["vain"]
        else:
            promised = known["family"] not in ("other", "push") and not known["cancelled"]
        if promised:
            counts = found[known["app"], known["family"], window(known["born"])]
            timely = there and is_timely(known, options)
            for n, one in enumerate((1, there, timely, 1 / known["share"])):
                counts[n] += one
    notes = plain_push.delivery_of(all_hops, options)
    return {key: tuple(counts) for key, counts in found.items()} | notes


def is_timely(known: dict[str, Any], options: Options) -> bool:
    if known["family"] == "queue":
        us, limit = took(known["ready"], known["lent"]), options.queue_sla_ms
    else:
        us, limit = took(known["born"], known["delivered"]), options.sla_ms
    return us is not None and us <= limit * 1000


def rooms_of(all_hops: list[Hops], options: Options) -> dict[Any, Any]:
    """By app, room and window: messages, scaled, deliveries, members, gateways."""
    found: dict[Any, list[tuple[float, int, int]]] = defaultdict(list)
    for hops in all_hops:
        known = path(hops, options)
        if known["family"] == "room":
            key = (known["app"], known["target"], window(known["born"]))
            found[key].append((1 / known["share"], known["receivers"], len(got(hops))))
    return {
        key: (
            len(all_),
            sum(scaled for scaled, _n, _g in all_),
            sum(n for _s, n, _g in all_),
            max(n for _s, n, _g in all_),
            max(g for _s, _n, g in all_),
        )
        for key, all_ in found.items()
    }
