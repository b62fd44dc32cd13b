"""A copy of what push remembers: into places with nothing in them, then read back and compared.

A copy that was interrupted is begun again: a mark at the target says what it is a copy of, so that
nobody goes on with what is something else. What was written is written once more, which changes
nothing; states that were copied wholly are not copied again. The check reads everything at both
places, and leaves out what expires before it can be done with that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from chappe.errors import StorageError
from chappe.push.state.record import KINDS, Record, kind_of, sifted
from chappe.push.state.records import Records
from chappe.push.storage.sums import Compared, Sums, compared

# Records that are written in one go: what one round trip, or one transaction, takes.
BATCH = 500
# What expires within this time, or twice that of the copy, is not compared.
MARGIN_MS = 60_000
_ATTEMPTS = 3

# Told of what is done, of which state, and how many records more.
Tell = Callable[[str, str, int], None]


class _Mark(msgspec.Struct, frozen=True):
    """What is written down at the target."""

    source: str
    whole: bool = False


class Moved(NamedTuple):
    """What a copy would take, or took, of a kind; and what had expired."""

    state: str
    kind: str
    number: int
    expired: int


class Copy:
    """Copies states from their places to others; `names` is what each source is called."""

    def __init__(
        self,
        source: Mapping[str, Records],
        target: Mapping[str, Records],
        names: Mapping[str, str],
        *,
        wall_ms: Callable[[], int],
        tell: Tell = lambda doing, state, number: None,
    ) -> None:
        self._source = source
        self._target = target
        self._names = names
        self._wall_ms = wall_ms
        self._tell = tell
        self._took_ms = 0

    @property
    def states(self) -> list[str]:
        """Those that are copied. Routes are not: who is connected, connects again."""
        return [state for state in KINDS if state in self._source]

    async def count(self) -> list[Moved]:
        """Count what would be copied; raises StorageError."""
        now_ms, moved = self._wall_ms(), []
        for state in self.states:
            kept, gone = await self._summed(self._source[state], state, now_ms, "counting")
            kinds = map(kind_of, KINDS[state])
            moved += [Moved(state, k, kept.of(k).number, gone.of(k).number) for k in kinds]
        return moved

    async def prepare(self, *, resume: bool) -> None:
        """See that the targets are empty, or of this copy; raises StorageError that says why not.

        Changes nothing.
        """
        for state in self.states:
            mark = await self._marked(state)
            if mark is None:
                if await self._target[state].has_any(state):
                    raise StorageError(
                        f"{state}: there is something at the target already, and it is no copy "
                        "that was begun"
                    )
            elif mark.source != self._names[state]:
                raise StorageError(
                    f"{state}: at the target a copy of {mark.source} was begun, not of "
                    f"{self._names[state]}"
                )
            elif not resume:
                raise StorageError(f"{state}: a copy was begun: --resume goes on with it")

    async def run(self) -> None:
        """Copy all states that are not there yet; raises StorageError."""
        began_ms = self._wall_ms()
        for state in self.states:
            mark = await self._marked(state)
            if mark is None or not mark.whole:
                await self._copy(state)
        self._took_ms = self._wall_ms() - began_ms

    async def check(self) -> list[Compared]:
        """Read everything at both places and compare; raises StorageError.

        Where all is the same, the marks are taken away: the copy is done. Else what differs is
        copied again by who goes on.
        """
        margin_ms = max(MARGIN_MS, 2 * self._took_ms)
        for _ in range(_ATTEMPTS):
            began_ms = self._wall_ms()
            found = [
                each for state in self.states for each in await self._compared(state, margin_ms)
            ]
            took_ms = self._wall_ms() - began_ms
            if took_ms < margin_ms:
                break
            margin_ms = 2 * took_ms
        else:
            raise StorageError("too much expires while it is compared: is the clock right?")
        wrong = {each.state for each in found if not each.same}
        for state in wrong or self.states:
            mark = self._mark(state, whole=False) if wrong else None
            await self._target[state].mark(state, mark)
        return found

    async def _copy(self, state: str) -> None:
        source, target = self._source[state], self._target[state]
        await target.mark(state, self._mark(state, whole=False))
        async for page in source.dump(state):
            kept, _ = sifted(page, self._wall_ms())
            for at in range(0, len(kept), BATCH):
                await target.restore(kept[at : at + BATCH])
            self._tell("copying", state, _size(page))
        await target.mark(state, self._mark(state, whole=True))

    async def _compared(self, state: str, margin_ms: int) -> list[Compared]:
        until_ms = self._wall_ms() + margin_ms
        (source, expired), (target, _) = await asyncio.gather(
            self._summed(self._source[state], state, until_ms, "comparing"),
            self._summed(self._target[state], state, until_ms, "comparing"),
        )
        return compared(state, source, target, expired)

    async def _summed(
        self, records: Records, state: str, now_ms: int, doing: str
    ) -> tuple[Sums, Sums]:
        """What is kept by then, and what is not."""
        kept, gone = Sums(), Sums()
        async for page in records.dump(state):
            living, dead = sifted(page, now_ms)
            kept.add(living)
            gone.add(dead)
            self._tell(doing, state, _size(page))
        return kept, gone

    async def _marked(self, state: str) -> _Mark | None:
        text = await self._target[state].marked(state)
        return None if text is None else msgspec.json.decode(text, type=_Mark)

    def _mark(self, state: str, *, whole: bool) -> str:
        return msgspec.json.encode(_Mark(self._names[state], whole)).decode()


def _size(records: Iterable[Record]) -> int:
    return sum(record.size for record in records)


async def alive(
    source: Mapping[str, Records], pause: Callable[[], Awaitable[None]]
) -> Sequence[str]:
    """States that processes of push use: what they beat at every few seconds, beats."""
    before = {state: await records.pulse(state) for state, records in source.items()}
    if all(pulse is None for pulse in before.values()):
        return []
    await pause()
    return [
        state for state, records in source.items() if await records.pulse(state) != before[state]
    ]
