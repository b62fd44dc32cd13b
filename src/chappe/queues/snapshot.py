"""Snapshots: the state of a queue as one record, and back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from chappe.errors import StorageError
from chappe.queues.progress import GroupState, Progress, ranges_of
from chappe.queues.record import Snapshot
from chappe.queues.state import QueueState

# Of what a snapshot says.
_VERSION = 1


def snapshot_of(state: QueueState) -> Snapshot:
    """The whole state as one record."""
    producers = [[name, list(seen.items())] for name, seen in state.producers.items()]
    delayed = [[seq, due_ms, message] for seq, (due_ms, message) in state.delayed.items()]
    heads = list(state.heads.items())
    lanes = [state.lanes, state.key_lanes]
    floors = [list(state.floors.items()), list(state.ceilings.items())]
    said = [_VERSION, heads, lanes, _groups(state), state.bytes, delayed, producers, floors]
    raw = msgspec.Raw(msgspec.msgpack.encode(said))
    return Snapshot(state.number, state.app, state.address, state.options, raw)


def _groups(state: QueueState) -> list[Any]:
    return [
        [
            group.name,
            group.tags,
            group.headers,
            list(group.consumers),
            group.since_ms,
            group.expected,
            group.bytes,
            [
                [lane, at.mark, ranges_of(sorted(at.open)), list(at.attempts.items())]
                for lane, at in group.progress.items()
                if at.mark
            ],
        ]
        for group in state.groups.values()
    ]


def restore(record: Snapshot) -> QueueState:
    """The state that a snapshot tells; raises StorageError."""
    state = QueueState(record.queue, record.app, record.address, record.options)
    try:
        version, *fields = msgspec.msgpack.decode(record.state)
        if version != _VERSION:
            raise StorageError(
                f"{record.address} was written by another release: version {version} of its "
                f"state, this one reads {_VERSION}"
            )
        heads, lanes, groups, waiting, delayed, producers, floors = fields
        state.heads = dict(heads)
        state.floors, state.ceilings = dict(floors[0]), dict(floors[1])
        state.lanes, state.key_lanes = lanes
        state.bytes = waiting
        state.groups = {group[0]: _group(group) for group in groups}
        for entry in delayed:
            state.delay(*entry)
        for name, seen in producers:
            state.producers[name] = OrderedDict(seen)
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
        raise StorageError(f"the snapshot of {record.address} cannot be read: {error}") from None
    return state


def _group(values: list[Any]) -> GroupState:
    group = GroupState(values[0])
    _, group.tags, group.headers, names, group.since_ms, group.expected, group.bytes, lanes = values
    group.consumers = dict.fromkeys(names)
    for lane, mark, ranges, attempts in lanes:
        progress = group.progress[lane] = Progress(mark)
        for at in range(0, len(ranges), 2):
            progress.open.update(range(ranges[at], ranges[at + 1] + 1))
        progress.attempts = dict(attempts)
    return group


def copy_of(state: QueueState) -> QueueState:
    """The same state, to be changed apart."""
    return restore(snapshot_of(state))
