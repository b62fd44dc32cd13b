"""Sums: what many paths say together, counted where they are made.

Of an hour's piece it is counted, while its paths are at hand, how long steps took, what went from
node to node, what happened in queues, what was delivered.

hop       role                 from, to
hub       origin relay last    a message came to a node; it left for sessions or other nodes
link      relay last           it left the node before; it came to this one
delivery  whole                it came to its first node; the last session's outbox had it
store     whole                it came to a queue's node; it was durable
wait      whole                it was durable and due, or replayed; a group was handed it first
work      whole                a consumer was handed it; its group was done
done      whole                it was durable and due; its group was done
answer    whole                a request came; it was answered well

A window of five minutes has enough steps to tell what the slowest of a thousand took.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chappe.pipeline.columns import (
    NONE,
    Flags,
    Longs,
    flags,
    longs,
    of_ranks,
    present,
    ranks,
    summed,
    whole,
)
from chappe.pipeline.hours import MINUTE_US
from chappe.pipeline.options import Options
from chappe.pipeline.sketch import buckets_of
from chappe.pipeline.spans import Happenings
from chappe.pipeline.trails import Trails

STEP_WINDOW_US: Final = 5 * MINUTE_US
_HOPS = ("hub", "link", "delivery", "store", "wait", "work", "done", "answer")
_HOP = {name: n for n, name in enumerate(_HOPS)}
_ROLES = ("origin", "relay", "last", "whole")
_ORIGIN, _RELAY, _LAST, _WHOLE = range(4)
LATENCY, LINKS, FLOWS, DELIVERY = "latency", "links", "flows", "delivery"


class _Steps(NamedTuple):
    """Steps of messages: of which, and how long each took; NONE where that is not known."""

    of: Longs
    hop: Longs
    role: Longs
    us: Longs


class Sums:
    """Paths of an hour, and their trails."""

    def __init__(self, paths: pa.Table, trails: Trails, options: Options) -> None:
        self._options = options
        self._paths = paths
        self._trails = trails
        self._words = {name: self._ranks(name) for name in ("app", "family", "target")}
        self._born = self._long("born")

    def all(self) -> Iterator[tuple[str, pa.Table]]:
        """Each kind of them."""
        yield LATENCY, self._latency()
        yield LINKS, self._links()
        yield FLOWS, self._flows()
        yield DELIVERY, self._delivery()

    def _column(self, name: str) -> pa.Array:
        return whole(self._paths[name])

    def _ranks(self, name: str) -> tuple[Longs, list[str]]:
        [found], names = ranks(self._column(name))
        return found, names

    def _long(self, name: str) -> Longs:
        return longs(self._column(name))

    def _is(self, *families: str) -> Flags:
        found, names = self._words["family"]
        wanted: Flags = np.isin(found, [n for n, name in enumerate(names) if name in families])
        return wanted

    @cached_property
    def _share(self) -> npt.NDArray[np.float64]:
        share: npt.NDArray[np.float64] = self._column("share").to_numpy()
        return share

    @cached_property
    def _travels(self) -> Flags:
        return self._is("send", "topic")

    @cached_property
    def _queued(self) -> Happenings:
        return Happenings(self._trails, self._is("queue"), self._long("ready"))

    @cached_property
    def _role(self) -> Longs:
        """Of each hop, where on the way it is."""
        trails = self._trails
        return np.where(trails.giver < 0, _ORIGIN, np.where(trails.went > 0, _RELAY, _LAST))

    @cached_property
    def _carried(self) -> Flags:
        """Which messages go from node to node: of those to queues, from the sender's to the queue's
        own."""
        return self._travels | self._is("queue")

    @cached_property
    def _passed(self) -> Longs:
        """Hops at which a message was passed on."""
        trails = self._trails
        return np.flatnonzero(trails.any_of("sent", "published") & self._carried[trails.of])

    @cached_property
    def _came(self) -> Longs:
        """Hops at which a message came from another node."""
        trails = self._trails
        came = trails.any_of("sent", "published", "stored") & (trails.giver >= 0)
        return np.flatnonzero(came & self._carried[trails.of])

    @cached_property
    def _arrivals(self) -> _Steps:
        """Steps from node to node."""
        trails, hops = self._trails, self._came
        came = np.where(trails.came < NONE, trails.came + trails.shift, NONE)
        us = _between(trails.left()[hops], came[hops])
        return _Steps(trails.of[hops], _same(hops, _HOP["link"]), self._role[hops], us)

    def _steps(self) -> Iterator[_Steps]:
        trails = self._trails
        yield self._arrivals
        hops = self._passed
        inside = _between(trails.came[hops], trails.at[hops])
        yield _Steps(trails.of[hops], _same(hops, _HOP["hub"]), self._role[hops], inside)
        asked = self._is("request")
        whole = np.flatnonzero(self._travels | asked)
        took = _between(self._born[whole], self._long("delivered")[whole])
        hop = np.where(asked[whole], _HOP["answer"], _HOP["delivery"])
        yield _Steps(whole, hop, _same(whole, _WHOLE), took)
        queued = self._queued
        for name, us in queued.steps():
            yield _Steps(queued.of, _same(queued.of, _HOP[name]), _same(queued.of, _WHOLE), us)

    def _latency(self) -> pa.Table:
        parts = list(self._steps())
        of, hop, role, us = (np.concatenate(column) for column in zip(*parts, strict=True))
        known = us < NONE
        of, hop, role, us = of[known], hop[known], role[known], us[known]
        made = summed(
            {
                **self._keys(of, "app", "family"),
                "hop": hop.astype(np.int8),
                "role": role.astype(np.int8),
                "window": _window(self._born[of], STEP_WINDOW_US),
                "bucket": buckets_of(us),
            },
            {"scaled": 1 / self._share[of]},
            {"max": us},
        )
        return self._named(
            made,
            hop=pa.array(_HOPS).take(pa.array(made["hop"])),
            role=pa.array(_ROLES).take(pa.array(made["role"])),
        )

    def _links(self) -> pa.Table:
        """What was handed on, and what of it came after how long."""
        trails, hops = self._trails, self._came
        handing = np.flatnonzero(self._carried[trails.of[trails.handing]])
        given = trails.handing[handing]
        of = np.concatenate([self._arrivals.of, trails.of[given]])
        us = np.concatenate([self._arrivals.us, _same(given, NONE)])
        bucket = np.where(us < NONE, buckets_of(us), -1)
        made = summed(
            {
                "node": np.concatenate([trails.giver[hops], trails.node[given]]),
                "peer": np.concatenate([trails.node[hops], trails.peers[handing]]),
                "window": _window(self._born[of], MINUTE_US),
                "bucket": bucket,
            },
            {
                "handed": np.concatenate([_same(hops, 0), _same(given, 1)]),
                "arrived": (bucket >= 0).astype(np.int64),
            },
            {},
        )
        made["count"] = made.pop("arrived")
        return self._named(
            made,
            node=of_ranks(made["node"], trails.nodes),
            peer=of_ranks(made["peer"], trails.nodes),
            bucket=pa.array(made["bucket"], mask=made["bucket"] < 0),
        )

    def _flows(self) -> pa.Table:
        of, what, time, age, frontier = self._queued.flows()
        bucket = np.where(age < NONE, buckets_of(age), -1)
        made = summed(
            {
                **self._keys(of, "app", "target"),
                "what": what,
                "window": _window(time, MINUTE_US),
                "bucket": bucket,
            },
            {},
            {
                "frontier": np.where(frontier < NONE, frontier, -1),
                "max": np.where(age < NONE, age, -1),
            },
        )
        return self._named(
            made,
            queue=of_ranks(made["target"], self._words["target"][1]),
            what=pa.array(self._queued.NAMES).take(pa.array(made["what"])),
            bucket=pa.array(made["bucket"], mask=made["bucket"] < 0),
            frontier=pa.array(made["frontier"], mask=made["frontier"] < 0),
            max=pa.array(made["max"], mask=made["max"] < 0),
        )

    def _delivery(self) -> pa.Table:
        """A message that had no receivers, as one to a topic without subscribers, was promised to
        nobody and is not counted, nor one that was taken back. One that waits in a queue is
        counted, and not yet delivered."""
        travels, queued = self._travels, self._is("queue")
        open_, vain, cancelled = (
            flags(self._column(name)) for name in ("open", "vain", "cancelled")
        )
        delivered = present(self._column("delivered"))
        promised = np.where(travels, delivered | open_ | vain, ~self._is("other") & ~cancelled)
        whole = delivered & (~travels | (~open_ & ~vain))
        waited = _between(self._long("ready"), self._long("lent"))
        took = np.where(queued, waited, _between(self._born, self._long("delivered")))
        limit = np.where(queued, self._options.queue_sla_ms, self._options.sla_ms) * 1000
        of = np.flatnonzero(promised)
        made = summed(
            {**self._keys(of, "app", "family"), "window": _window(self._born[of])},
            {
                "delivered": whole[of].astype(np.int64),
                "in_time": (whole & (took <= limit))[of].astype(np.int64),
                "scaled": 1 / self._share[of],
            },
            {},
        )
        made["messages"] = made.pop("count")
        return self._named(made)

    def _keys(self, of: Longs, *names: str) -> dict[str, npt.NDArray[Any]]:
        return {name: self._words[name][0][of].astype(np.int32) for name in names}

    def _named(self, made: dict[str, npt.NDArray[Any]], **others: pa.Array) -> pa.Table:
        """What was summed up, with words for numbers."""
        columns = {
            name: of_ranks(values, self._words[name][1]) if name in self._words else values
            for name, values in made.items()
        }
        return pa.table(columns | others)


def _same(rows: Longs, value: int) -> Longs:
    return np.full(len(rows), value, np.int64)


def _between(start: Longs, end: Longs) -> Longs:
    """How long something took; by clocks that differ it took less than nothing: then nothing."""
    known = (start < NONE) & (end < NONE)
    return np.where(known, np.maximum(end - start, 0), NONE)


def _window(us: Longs, size: int = MINUTE_US) -> Longs:
    return us - us % size
