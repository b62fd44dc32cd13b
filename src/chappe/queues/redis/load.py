"""Reads what Redis knows of a queue, page by page, once nobody else may change it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from chappe.errors import StorageError
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.progress import GroupState, Progress
from chappe.queues.record import DEAD_GROUP, DEAD_LANE, DELAY_GROUP, DELAY_LANE
from chappe.queues.redis.keys import Keys, seq_of
from chappe.queues.redis.script import LIST
from chappe.queues.redis.unit import Unit
from chappe.queues.redis.writing import Wants, Writing
from chappe.queues.state import QueueState
from chappe.queues.storage import Key
from chappe.redis.calls import Calls

PAGE = 1_000
# Producers whose numbers are asked for together.
_PRODUCERS = 50

_decode = msgspec.json.decode


class Loading:
    """Reads one queue."""

    def __init__(self, calls: Calls, keys: Keys, limits: QueueLimits, home: str) -> None:
        self._calls = calls
        self._keys = keys
        self._limits = limits
        self._home = home
        # What a crash left behind that nobody will read.
        self.leftovers = Unit(keys, home)

    async def load(
        self, number: int, key: Key, options: QueueOptions
    ) -> tuple[QueueState, Writing]:
        """Read all that is known of it; raises StorageError."""
        meta = _pairs((await self._run("HGETALL", self._keys.meta))[0])
        state = QueueState(number, *key, options)
        if b"options" not in meta:
            return state, Writing(state, self._keys, self._limits, self._home)
        try:
            state.options = _decode(meta[b"options"], type=QueueOptions)
            state.lanes = _decode(meta[b"lanes"], type=list[int])
            state.key_lanes = int(meta[b"key_lanes"])
            await self._groups(state)
            total = await self._bytes(state)
            for lane in (DEAD_LANE, DELAY_LANE, *state.lanes):
                await self._lane(state, lane)
            await self._held_back(state)
            heard = await self._producers(state)
        except (msgspec.MsgspecError, ValueError, KeyError, IndexError) as error:
            raise StorageError(
                f"{self._calls.shown}: {self._keys.base} cannot be read: "
                f"{type(error).__name__} {error}"
            ) from None
        writing = Writing(state, self._keys, self._limits, self._home)
        writing.restore(total, heard)
        return state, writing

    async def _run(self, *command: str | int) -> list[Any]:
        return await self._calls.run(self._keys.meta, command)

    async def _groups(self, state: QueueState) -> None:
        found = _pairs((await self._run("HGETALL", self._keys.groups))[0])
        wanted = [(name.decode(), _decode(text, type=Wants)) for name, text in found.items()]
        for name, wants in sorted(wanted, key=lambda one: (one[1].since_ms, one[0])):
            group = state.groups[name] = GroupState(name)
            group.tags, group.headers = wants.tags, wants.headers
            group.since_ms, group.expected = wants.since_ms, wants.expected
            names = (await self._run("SMEMBERS", self._keys.consumers(name)))[0]
            group.consumers = dict.fromkeys(sorted(one.decode() for one in names))

    async def _lane(self, state: QueueState, lane: int) -> None:
        state.heads[lane] = 0
        key = self._keys.lane(lane)
        if not (await self._run("EXISTS", key))[0]:
            return
        info = _pairs((await self._run("XINFO", "STREAM", key))[0])
        state.heads[lane] = seq_of(info[b"last-generated-id"])
        if lane <= 0:
            return
        found = [_pairs(group) for group in (await self._run("XINFO", "GROUPS", key))[0]]
        marks = {group[b"name"].decode(): seq_of(group[b"last-delivered-id"]) for group in found}
        for group in state.readers():
            if group.name not in marks:
                raise StorageError(f"{self._calls.shown}: {key} has no group {group.name!r}")
            progress = group.progress[lane] = Progress(marks[group.name])
            await self._pending(key, group.name, progress)
        first, low = info[b"first-entry"], state.low(lane)
        if first is not None and seq_of(first[0]) <= low:
            self.leftovers.trim(lane, low)

    async def _pending(self, key: str, group: str, progress: Progress) -> None:
        start = "-"
        while True:
            page = (await self._run("XPENDING", key, group, start, "+", PAGE))[0]
            for entry, _, _, count in page:
                progress.open.add(seq_of(entry))
                if count != 1:
                    progress.attempts[seq_of(entry)] = count
            if len(page) < PAGE:
                return
            start = f"({page[-1][0].decode()}"

    async def _held_back(self, state: QueueState) -> None:
        """Find the dead letters and the delayed messages that are there."""
        for lane, name in ((DEAD_LANE, DEAD_GROUP), (DELAY_LANE, DELAY_GROUP)):
            progress = state.groups[name].progress[lane] = Progress(state.heads[lane])
            start, page = "-", [b""]
            while page:
                found = await self._calls.run_script(LIST, [self._keys.lane(lane)], [start, PAGE])
                page = found[0]
                for entry, due_ms, message in page:
                    progress.open.add(seq_of(entry))
                    if lane == DELAY_LANE:
                        state.delayed[seq_of(entry)] = (int(due_ms), int(message))
                        state.delayed_seqs[int(message)] = seq_of(entry)
                start = f"({page[-1][0].decode()}" if page else ""

    async def _bytes(self, state: QueueState) -> int:
        found = _pairs((await self._run("HGETALL", self._keys.bytes))[0])
        total = int(found.get(b"total", 0))
        state.bytes = total - int(found.get(b"free", 0))
        floors = _decode(found.get(b"floors", b"[[],[]]"), type=list[list[tuple[int, int]]])
        state.floors, state.ceilings = dict(floors[0]), dict(floors[1])
        for group in state.readers():
            group.bytes = total - int(found.get(f"g:{group.name}".encode(), 0))
        return total

    async def _producers(self, state: QueueState) -> list[tuple[str, int]]:
        """Find producers and when they were last heard of, the one longest silent first."""
        heard: dict[str, int] = {}
        cursor: bytes | None = None
        while cursor != b"0":
            at = (cursor or b"0").decode()
            cursor, found = (await self._run("HSCAN", self._keys.producers, at, "COUNT", PAGE))[0]
            heard |= {name.decode(): int(order) for name, order in _pairs(found).items()}
        ordered = sorted(heard.items(), key=lambda one: one[1])
        oldest = -self._limits.producer_window
        for start in range(0, len(ordered), _PRODUCERS):
            names = [name for name, _ in ordered[start : start + _PRODUCERS]]
            ask = [("ZRANGE", self._keys.producer(name), oldest, -1) for name in names]
            for name, members in zip(
                names, await self._calls.run(self._keys.meta, *ask), strict=True
            ):
                numbers = (tuple(map(int, member.split())) for member in members)
                state.producers[name] = OrderedDict((seq, message) for seq, message in numbers)
        return ordered


def _pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
