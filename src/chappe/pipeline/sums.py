"""Sums: what many paths say together, counted where they are made.

Of an hour's piece it is counted, while its paths are at hand, how long steps took, what went from
node to node, what happened in queues, what was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

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
from chappe.pipeline.jobs import counts_of
from chappe.pipeline.kinds import HANDING, PUSH, ROOM, TRAVELLING
from chappe.pipeline.options import Options
from chappe.pipeline.pushed import Pushed
from chappe.pipeline.sketch import buckets_of
from chappe.pipeline.spans import Happenings
from chappe.pipeline.steps import (
    HOP,
    HOPS,
    ROLES,
    WHOLE,
    Steps,
    Ways,
    between,
    same,
)
from chappe.pipeline.trails import Trails

LATENCY, LINKS, FLOWS, DELIVERY, ROOMS = "latency", "links", "flows", "delivery", "rooms"
JOBS = "jobs"


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
        if self._is(ROOM).any():
            yield ROOMS, self._rooms()
        if self._is(PUSH).any():
            yield JOBS, self._jobs()

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
        return self._is(*TRAVELLING)

    @cached_property
    def _queued(self) -> Happenings:
        return Happenings(self._trails, self._is("queue"), self._long("ready"))

    @cached_property
    def _ways(self) -> Ways:
        """Of messages to queues, from the sender's node to the queue's own."""
        return Ways(self._trails, self._travels | self._is("queue"))

    @cached_property
    def _pushed(self) -> Pushed:
        return Pushed(self._trails, self._is(PUSH))

    def _steps(self) -> Iterator[Steps]:
        yield self._ways.arrivals
        yield self._ways.stays()
        asked = self._is("request")
        whole = np.flatnonzero(self._travels | asked)
        took = between(self._born[whole], self._long("delivered")[whole])
        hop = np.where(asked[whole], HOP["answer"], HOP["delivery"])
        yield Steps(whole, hop, same(whole, WHOLE), took)
        queued = self._queued
        for name, us in queued.steps():
            yield Steps(queued.of, same(queued.of, HOP[name]), same(queued.of, WHOLE), us)
        if self._is(PUSH).any():
            yield from self._pushes()

    def _pushes(self) -> Iterator[Steps]:
        trails, some = self._trails, self._pushed.arrivals
        kept = np.flatnonzero(trails.any_of("push_sent") & self._is(PUSH)[trails.of])
        us = between(trails.came[kept], trails.at[kept])
        yield Steps(trails.of[kept], same(kept, HOP["store"]), same(kept, WHOLE), us)
        of, us = some.of[some.live], between(self._born[some.of], some.time)[some.live]
        yield Steps(of, same(of, HOP["arrival"]), same(of, WHOLE), us, some.n[some.live])

    def _latency(self) -> pa.Table:
        parts = [step if step.n is not None else step._replace(n=same(step.of, 1))
                 for step in self._steps()]  # fmt: skip
        of, hop, role, us, n = (np.concatenate(column) for column in zip(*parts, strict=True))
        known = us < NONE
        of, hop, role, us, n = of[known], hop[known], role[known], us[known], n[known]
        made = summed(
            {
                **self._keys(of, "app", "family"),
                "hop": hop.astype(np.int8),
                "role": role.astype(np.int8),
                "window": _window(self._born[of]),
                "bucket": buckets_of(us),
            },
            {"scaled": n / self._share[of], "n": n},
            {"max": us},
        )
        made["count"] = made.pop("n")
        return self._named(
            made,
            hop=pa.array(HOPS).take(pa.array(made["hop"])),
            role=pa.array(ROLES).take(pa.array(made["role"])),
        )

    def _links(self) -> pa.Table:
        """What was handed on, and what of it came after how long."""
        trails, ways = self._trails, self._ways
        hops, handing = ways.came, ways.handings()
        given = trails.handing[handing]
        of = np.concatenate([ways.arrivals.of, trails.of[given]])
        us = np.concatenate([ways.arrivals.us, same(given, NONE)])
        bucket = np.where(us < NONE, buckets_of(us), -1)
        made = summed(
            {
                "node": np.concatenate([trails.giver[hops], trails.node[given]]),
                "peer": np.concatenate([trails.node[hops], trails.peers[handing]]),
                "role": np.concatenate([trails.legs.as_role[hops], trails.legs.hands_as[given]]),
                "window": _window(self._born[of]),
                "bucket": bucket,
            },
            {
                "handed": np.concatenate([same(hops, 0), same(given, 1)]),
                "arrived": (bucket >= 0).astype(np.int64),
            },
            {},
        )
        made["count"] = made.pop("arrived")
        return self._named(
            made,
            node=of_ranks(made["node"], trails.nodes),
            peer=of_ranks(made["peer"], trails.nodes),
            role=of_ranks(made["role"] - 1, [*HANDING]),
            bucket=pa.array(made["bucket"], mask=made["bucket"] < 0),
        )

    def _flows(self) -> pa.Table:
        of, what, time, age, frontier = self._queued.flows()
        bucket = np.where(age < NONE, buckets_of(age), -1)
        made = summed(
            {
                **self._keys(of, "app", "target"),
                "what": what,
                "window": _window(time),
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
        # Of notes it is each client that counts.
        promised &= ~self._is(PUSH)
        waited = between(self._long("ready"), self._long("lent"))
        took = np.where(queued, waited, between(self._born, self._long("delivered")))
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
        if not self._is(PUSH).any():
            return self._named(made)
        noted = self._notes()
        return self._named({name: np.concatenate([made[name], noted[name]]) for name in made})

    def _notes(self) -> dict[str, npt.NDArray[Any]]:
        """What is delivered of notes. To those that were offline nothing was promised before they
        came back: for them, it is in time whenever they have it."""
        pushed, some = self._pushed, self._pushed.arrivals
        took = between(self._born[some.of], some.time)
        timely = ~some.live | (took <= self._options.sla_ms * 1000)
        in_time = np.bincount(some.of, np.where(timely, some.n, 0), len(self._born))
        messages = pushed.aimed - pushed.withdrawn
        of = np.flatnonzero(messages > 0)
        made = summed(
            {**self._keys(of, "app", "family"), "window": _window(self._born[of])},
            {
                "delivered": pushed.arrived[of],
                "in_time": in_time[of].astype(np.int64),
                "scaled": messages[of] / self._share[of],
                "messages": messages[of],
            },
            {},
        )
        del made["count"]
        return made

    def _jobs(self) -> pa.Table:
        notes, job = np.flatnonzero(self._is(PUSH)), self._trails.first_word("job")
        return counts_of(notes, self._pushed, self._paths, job)

    def _rooms(self) -> pa.Table:
        """Messages to rooms; the most who got one of them, and on how many gateways."""
        trails, of = self._trails, np.flatnonzero(self._is(ROOM))
        receivers = self._long("receivers")[of]
        gives = trails.passes & (trails.n > 0)
        made = summed(
            {**self._keys(of, "app", "target"), "window": _window(self._born[of])},
            {"scaled": 1 / self._share[of], "deliveries": receivers},
            {"members": receivers, "gateways": trails.total(np.ones_like(trails.n), gives)[of]},
        )
        made["messages"] = made.pop("count")
        return self._named(made, room=of_ranks(made["target"], self._words["target"][1]))

    def _keys(self, of: Longs, *names: str) -> dict[str, npt.NDArray[Any]]:
        return {name: self._words[name][0][of].astype(np.int32) for name in names}

    def _named(self, made: dict[str, npt.NDArray[Any]], **others: pa.Array) -> pa.Table:
        """What was summed up, with words for numbers."""
        columns = {
            name: of_ranks(values, self._words[name][1]) if name in self._words else values
            for name, values in made.items()
        }
        return pa.table(columns | others)


def _window(us: Longs) -> Longs:
    """The begin of each time's minute."""
    return us - us % MINUTE_US
