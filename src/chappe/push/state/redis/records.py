"""All that is on a Redis server, given and taken page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from chappe.errors import StorageError
from chappe.push.state.record import KINDS, Record
from chappe.push.state.redis.line import Line
from chappe.push.state.redis.message_records import MessageRecords
from chappe.push.state.redis.meta_records import MetaRecords
from chappe.push.state.redis.topic_records import TopicRecords
from chappe.push.state.redis.user_records import UserRecords

# What every state has, or may have, besides its records.
_MARK = "copying"
_OWN = {b"buckets", b"sweep", _MARK.encode()}


class _StateRecords(Protocol):
    names: frozenset[bytes]

    def dump(self) -> AsyncIterator[Sequence[Record]]: ...

    async def restore(self, kind: type[Record], records: Sequence[Any]) -> None: ...


class RedisRecords:
    """The records of a server."""

    def __init__(self, lines: Mapping[str, Line], wall_ms: Callable[[], int]) -> None:
        self._lines = lines
        self._states: dict[str, _StateRecords] = {
            "meta": MetaRecords(lines["meta"], wall_ms),
            "user": UserRecords(lines["user"]),
            "message": MessageRecords(lines["message"], wall_ms),
            "topic": TopicRecords(lines["topic"], wall_ms),
        }

    async def dump(self, state: str) -> AsyncIterator[Sequence[Record]]:
        """Give all records of a state, each once."""
        records, line = self._states[state], self._lines[state]
        async for names in line.scan():
            for name in names:
                kind = name.partition(b":")[0]
                if kind not in records.names | _OWN:
                    raise StorageError(
                        f"{line.shown}: {line.base}:{kind.decode(errors='replace')}: this version "
                        "cannot copy it"
                    )
        async for page in records.dump():
            yield page

    async def restore(self, records: Sequence[Record]) -> None:
        """Write records as they were, in place of those that they are of."""
        for kind, some in groupby(records, type):
            (state,) = (name for name, kinds in KINDS.items() if kind in kinds)
            await self._states[state].restore(kind, list(some))

    async def has_any(self, state: str) -> bool:
        """Whether there is anything of a state."""
        async for names in self._lines[state].scan():
            if any(name not in _OWN for name in names):
                return True
        return False

    async def mark(self, state: str, text: str | None) -> None:
        """Write down that a copy of a state is under way here; None: no more."""
        line = self._lines[state]
        key = line.key(_MARK)
        await line.run(("DEL", key) if text is None else ("SET", key, text))

    async def marked(self, state: str) -> str | None:
        """What was written down."""
        line = self._lines[state]
        (text,) = await line.read(("GET", line.key(_MARK)))
        return None if text is None else text.decode()

    async def pulse(self, state: str) -> int | None:
        """Its sweeps: every process of push makes one every few seconds."""
        line = self._lines[state]
        (sweeps,) = await line.read(("GET", line.key("sweep")))
        return int(sweeps or 0)
