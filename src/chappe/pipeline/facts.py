"""Facts: what is known of each message, from its trail."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from chappe.ids import EPOCH_MS, NODE_BITS, SEQUENCE_BITS
from chappe.pipeline.columns import NONE, Flags, Longs, longs, of_ranks, optional, present
from chappe.pipeline.kinds import DROPPING, FAMILIES, PUSH, ROOM, SENDING
from chappe.pipeline.options import Options
from chappe.pipeline.pushed import Pushed
from chappe.pipeline.schema import HOP, HOP_NAMES, TABLES, arrow_schema, arrow_type
from chappe.pipeline.trails import Trails, bits_of, done_with

_SCHEMA = arrow_schema(TABLES["paths"])
_HOP = arrow_type(HOP)
_FAMILIES = [*FAMILIES, "other"]
QUEUE, REQUEST, _ROOM, _PUSH = map(_FAMILIES.index, ("queue", "request", ROOM, PUSH))


class Facts:
    """What is known of each message."""

    def __init__(self, columns: dict[str, pa.Array], trails: Trails, options: Options) -> None:
        self._columns = columns
        self._trails = trails
        self._options = options
        self._kinds = trails.kinds()
        self._label = columns["label"].take(pa.array(trails.starts))
        self._family = self._families()
        # There may be none.
        notes = self._family == _PUSH
        self._pushed = Pushed(trails, notes) if notes.any() else None

    def paths(self, hour: str) -> pa.Table:
        trails = self._trails
        message = self._columns["message"].take(pa.array(trails.starts))
        ended, stored = trails.last(trails.time), self._first("stored")
        queued = self._family == QUEUE
        begun = self._begun()
        given = (longs(message, 0) >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_MS
        of_id = np.where(present(message), given * 1000, ended)
        born = np.where(begun < NONE, begun, of_id)
        pushed, notes = self._pushed, self._family == _PUSH
        if pushed is not None:
            born = np.where(notes & (begun == NONE), trails.first(trails.time), born)
        delivers = trails.passes & (trails.n > 0)
        ready, lent = self._ready(), self._first("lent")
        answered = trails.first(trails.time, self._replies() & trails.well)
        delivered = np.select(
            [queued, self._family == REQUEST, notes],
            [self._first("acked"), answered, self._first("push_acked")],
            trails.last(trails.time, delivers),
        )
        receivers = trails.total(trails.n, delivers)
        since = np.where(ready < NONE, ready, born)
        suspect = self._late(ended - since) | self._twice(delivers) | self._has(*DROPPING)
        suspect |= (self._family == REQUEST) & (answered == NONE)
        if pushed is not None:
            odd = pushed.late(born, self._options.sla_ms * 1000) | pushed.twice
            suspect = np.where(notes, odd, suspect)
            receivers = np.where(notes, pushed.arrived, receivers)
        made = {
            "hour": pa.array([hour] * len(trails.starts)),
            "family": of_ranks(self._family, _FAMILIES),
            "app": trails.first_word("app"),
            "message": _where(~present(self._label), message),
            "label": self._label,
            "sender": trails.first_word("sender"),
            "target": trails.first_word("target"),
            "born": pa.array(born),
            "stored": optional(stored),
            "ready": optional(ready),
            "lent": optional(lent),
            "delivered": optional(delivered),
            "ended": pa.array(ended),
            "receivers": pa.array(receivers),
            "share": pa.array(self._share()),
            "open": pa.array(self._open()),
            "suspect": pa.array(suspect),
            "vain": pa.array(self._in_vain()),
            "cancelled": pa.array(self._has("cancelled") | self._unwanted()),
            "first_at": pa.array(trails.first(trails.at)),
            "last_at": pa.array(trails.last(trails.at)),
            "hops": self._hops(),
        }
        return pa.table(made).select(_SCHEMA.names).cast(_SCHEMA)

    def _hops(self) -> pa.Array:
        fields = [self._columns[name].cast(_HOP.field(name).type) for name in HOP_NAMES]
        hops = pa.StructArray.from_arrays(fields, fields=list(_HOP))
        offsets = np.append(self._trails.starts, self._trails.size).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), hops)

    def _has(self, *kinds: str) -> Flags:
        found: Flags = (self._kinds & bits_of(*kinds)) != 0
        return found

    def _first(self, kind: str) -> Longs:
        return self._trails.first(self._trails.time, self._trails.any_of(kind))

    def _families(self) -> Longs:
        said = [self._has(*kinds) for kinds in FAMILIES.values()]
        # Requests and notes are known by their labels.
        for labelled in (REQUEST, _PUSH):
            said[labelled] &= present(self._label)
        said[_ROOM] |= self._trails.those(self._trails.of[self._trails.to_room])
        return np.select(said, range(len(said)), len(said))

    def _share(self) -> Longs:
        share = self._columns["share"].to_numpy(zero_copy_only=False)
        found: Longs = np.minimum.reduceat(share, self._trails.starts)
        return found

    def _begun(self) -> Longs:
        trails = self._trails
        came = np.where(trails.came < NONE, trails.came + trails.shift, trails.time)
        begins = trails.passes | trails.any_of("stored", "asked", "push_sent")
        return trails.first(came, begins & (trails.giver < 0))

    def _ready(self) -> Longs:
        """When a queue could hand it out."""
        trails = self._trails
        due = np.where(trails.due < NONE, trails.due + trails.shift, trails.time)
        return trails.first(np.maximum(trails.time, due), trails.any_of("stored"))

    def _replies(self) -> Flags:
        """Of a request that was carried to another node, the end is what its first node says."""
        return self._trails.any_of("answered") & (self._trails.giver < 0)

    def _open(self) -> Flags:
        """Whether something must still come, or should have."""
        trails = self._trails
        replied = trails.first(trails.time, self._replies()) < NONE
        on_the_way = trails.those(trails.legs.lost) | trails.those(trails.legs.untold)
        if self._pushed is not None:
            on_the_way = np.where(self._family == _PUSH, self._pushed.open, on_the_way)
        found: Flags = np.select(
            [self._family == QUEUE, self._family == REQUEST],
            [~self._has("cancelled") & self._waiting(), ~replied],
            on_the_way,
        )
        return found

    def _waiting(self) -> Flags:
        """Whether no group is done with it, or one that was handed it is not; if it was replayed,
        since then, too."""
        trails = self._trails
        lent, done = trails.any_of("lent"), done_with(trails)
        replayed = trails.last(trails.time, trails.any_of("replayed"))
        since = np.where(replayed < NONE, replayed, 0)[trails.of]
        later = trails.time >= since
        some = trails.those(trails.of[done & later])
        left = _undone(trails, lent, done) | _undone(trails, lent & later, done & later)
        return ~some | left

    def _unwanted(self) -> Flags:
        """Whether no group of its queue wanted it."""
        wanted = self._has("lent", "acked", "died")
        queued: Flags = self._family == QUEUE
        return queued & self._has(*DROPPING) & ~wanted

    def _in_vain(self) -> Flags:
        """Whether it was dropped where somebody wanted it, and no other node gave it to them; where
        it is not told to whom it was, or to how many, it may have been to them."""
        trails = self._trails
        dropped = trails.drops & ~trails.unwanted & ~trails.legs.spared
        if not dropped.any():
            return trails.those(trails.of[dropped])
        given = trails.any_of(*SENDING) & trails.gives
        count = int(trails.target.max()) + 2
        wanted = trails.of * count + trails.target + 1
        unnamed = trails.those(trails.of[given & (trails.target < 0)])[trails.of]
        served = np.where(
            trails.target < 0,
            trails.those(trails.of[given])[trails.of],
            np.isin(wanted, wanted[given]) | unnamed,
        )
        return trails.those(trails.of[dropped & ~served])

    def _late(self, took: Longs) -> Flags:
        promised = np.where(self._family == QUEUE, self._options.queue_sla_ms, self._options.sla_ms)
        found: Flags = took > promised * 1000
        return found

    def _twice(self, delivers: Flags) -> Flags:
        """Whether a node gave to sessions what it had given them before, or a group was done a
        second time."""
        trails = self._trails
        acked = trails.any_of("acked")
        return np.where(
            self._family == QUEUE,
            trails.repeated(acked, trails.group),
            trails.repeated(delivers, trails.node, trails.target),
        )


def _undone(trails: Trails, lent: Flags, done: Flags) -> Flags:
    """Messages with a group that was handed it and is not done."""
    count = int(trails.group.max(initial=0)) + 2
    groups = trails.of * count + trails.group + 1
    return trails.those(trails.of[lent][~np.isin(groups[lent], groups[done])])


def _where(wanted: Flags, column: pa.Array) -> pa.Array:
    """A column, null where it is not wanted."""
    if wanted.all():
        return column
    return pa.array(longs(column, 0), mask=~(wanted & present(column)))
