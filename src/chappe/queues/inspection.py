"""Looking into a queue without taking anything: its figures and its messages (Q9)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.errors import BadRequest, Overload, RequestError
from chappe.queues.filter import GROUP_ONLY
from chappe.queues.record import DEAD_GROUP, DEAD_LANE, DELAY_LANE, Stored
from chappe.queues.storage import Found

if TYPE_CHECKING:
    from chappe.queues.queue import Queue
    from chappe.wire.ops import Inspect

PAGE_MAX = 1_000


def figures(queue: Queue) -> dict[str, Any]:
    """What there is to know of a queue in numbers: ahead of the disk by what is being written."""
    state = queue.state
    groups = []
    for group in state.readers():
        here = queue.groups.get(group.name)
        groups.append(
            {
                "group": group.name,
                "lag": sum(group.at(lane).lag(state.heads[lane]) for lane in state.lanes),
                "bytes": group.bytes,
                "in_hand": 0 if here is None else here.in_hand,
                "waiting": 0 if here is None else here.waiting,
                "consumers": list(group.consumers),
                "tags": group.tags,
                "headers": group.headers,
                "expected": group.expected,
            }
        )
    return {
        "queue": state.address,
        "depth": state.depth(),
        "bytes": state.waiting_bytes(),
        "dead": queue.letters.count,
        "delayed": len(state.delayed),
        "volatile": state.options.volatile,
        "lanes": [
            {"lane": lane, "head": state.heads[lane], "depth": state.load(lane)}
            for lane in state.lanes
        ],
        "groups": groups,
        "options": msgspec.to_builtins(state.options),
        "stored": queue.storage.kind,
        "broker": queue.keeper.name,
    }


def browse(
    queue: Queue,
    op: Inspect,
    told: Callable[[dict[str, Any]], None],
    refused: Callable[[RequestError], None],
) -> None:
    """Show messages of a lane, from a place on; raises BadRequest."""
    state = queue.state
    lane = _lane(queue, op)
    if not 1 <= op.n <= PAGE_MAX:
        raise BadRequest(f"n: must be between 1 and {PAGE_MAX}")
    head, low = queue.committed.get(lane, 0), state.low(lane)
    if op.reverse:
        last = head if op.after is None else min(op.after - 1, head)
        first = max(low + 1, last - op.n + 1)
    else:
        first = max(low, op.after or 0) + 1
        last = head
    live = _live(queue, lane)

    def got(found: Found) -> None:
        if found.error is not None:
            refused(Overload(f"{queue.address} cannot be read now: {found.error}"))
            return
        page = [one for one in found.messages if one.seq <= last and live(one.seq)]
        if op.reverse:
            page.reverse()
            following = first if first > low + 1 else None
        else:
            following = found.upto if found.upto < last else None
        told({"messages": [view(one) for one in page], "next": following})

    if first > last:
        told({"messages": [], "next": None})
    else:
        queue.storage.read(state, lane, first, min(op.n, last - first + 1), got)


def _lane(queue: Queue, op: Inspect) -> int:
    if op.dead or op.delayed:
        return DEAD_LANE if op.dead else DELAY_LANE
    lanes = queue.state.lanes
    lane = lanes[0] if op.lane is None else op.lane
    if lane not in lanes:
        raise BadRequest(f"lane: {queue.address} has {', '.join(map(str, lanes))}, not {lane}")
    return lane


def _live(queue: Queue, lane: int) -> Callable[[int], bool]:
    """Whether a message of a lane still waits for somebody."""
    state = queue.state
    if lane == DELAY_LANE:
        return lambda seq: seq in state.delayed
    if lane == DEAD_LANE:
        dead = state.groups[DEAD_GROUP].at(lane)
        return lambda seq: not dead.is_done(seq)
    readers = list(state.readers())
    return lambda seq: not readers or any(not one.at(lane).is_done(seq) for one in readers)


def view(message: Stored) -> dict[str, Any]:
    """A message as a person reads it."""
    shown: dict[str, Any] = {
        "message": str(message.id),
        "lane": message.lane,
        "seq": message.seq,
        "ts": message.ts_ms,
        "from": message.sender,
        "type": message.type,
    }
    for name in ("key", "headers", "tags", "num", "producer", "due_ms"):
        value = getattr(message, name)
        if value is not None:
            shown[name] = value
    # A dead letter that was sent again is for a group, which is nobody's name.
    names = [name for name in message.consumers or () if not name.startswith(GROUP_ONLY)]
    if names:
        shown["consumers"] = names
    if message.producer_seq is not None and message.producer is not None:
        shown["producer_seq"] = message.producer_seq
    if message.death is not None:
        shown["death"] = msgspec.structs.asdict(message.death)
    if message.binary:
        shown["data64"] = b64encode(message.payload).decode()
    else:
        shown["data"] = msgspec.Raw(message.payload)
    return shown
