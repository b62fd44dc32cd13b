"""Bodies of notes: those that went by lately are here, the others in the store (P8)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from chappe.clock import Clock
from chappe.push.comet.counters import Counters
from chappe.push.comet.parcel import Parcel
from chappe.push.note import Note
from chappe.push.state.message import MessageState

# Asked for at once; of the largest notes that is 8 MB for a moment.
FETCH_MAX = 128
# Notes that were taken back, and may yet come from whoever sent them before or be read meanwhile:
# an answer of the store or of a link takes seconds, and so many are not taken back in those.
WITHDRAWN_MAX = 10_000


class Bodies:
    """A cache bounded by bytes; what was used longest ago goes first.

    What is in it for too long is asked for again: it may have been cancelled.
    """

    __slots__ = (
        "_age_s",
        "_bytes_max",
        "_clock",
        "_counters",
        "_held",
        "_state",
        "_withdrawn",
        "size",
    )

    def __init__(
        self,
        state: MessageState,
        clock: Clock,
        counters: Counters,
        *,
        bytes_max: int,
        age_s: float,
    ) -> None:
        self._state = state
        self._clock = clock
        self._counters = counters
        self._bytes_max = bytes_max
        self._age_s = age_s
        self._held: OrderedDict[str, tuple[float, Parcel]] = OrderedDict()
        self._withdrawn: OrderedDict[str, None] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, note: Note) -> Parcel:
        """A note came from whoever sends it; one that was taken back is not kept."""
        self.drop(note.id)
        parcel = Parcel(note)
        if note.id in self._withdrawn:
            return parcel
        self._held[note.id] = (self._clock.monotonic(), parcel)
        self.size += parcel.size
        while self.size > self._bytes_max:
            _, (_, oldest) = self._held.popitem(last=False)
            self.size -= oldest.size
        return parcel

    def withdraw(self, note_id: str) -> None:
        """A note is not to be handed out any more, whichever way it comes from now on."""
        self.drop(note_id)
        self._withdrawn[note_id] = None
        self._withdrawn.move_to_end(note_id)
        if len(self._withdrawn) > WITHDRAWN_MAX:
            self._withdrawn.popitem(last=False)

    def withdrawn(self, note_id: str) -> bool:
        """Whether a note was taken back, as far as is remembered."""
        return note_id in self._withdrawn

    def drop(self, note_id: str) -> None:
        """Keep a note no more."""
        held = self._held.pop(note_id, None)
        if held is not None:
            self.size -= held[1].size

    async def fetch(self, ids: Sequence[str]) -> dict[str, Parcel]:
        """Those of these notes that may be handed out; raises StorageError."""
        assert len(ids) <= FETCH_MAX, "whoever asks for more asks in turns"
        found = {note_id: parcel for note_id in ids if (parcel := self._fresh(note_id)) is not None}
        missing = [note_id for note_id in ids if note_id not in found]
        self._counters.cache_hits += len(found)
        if missing:
            self._counters.cache_misses += len(missing)
            for note in (await self._state.bodies(missing)).values():
                found[note.id] = self.keep(note)
        now_ms = self._clock.wall_ms()
        return {
            note_id: parcel
            for note_id, parcel in found.items()
            # It may have been taken back while the store was asked.
            if parcel.note.expires_ms > now_ms and note_id not in self._withdrawn
        }

    def _fresh(self, note_id: str) -> Parcel | None:
        held = self._held.get(note_id)
        if held is None:
            return None
        since, parcel = held
        if self._clock.monotonic() - since > self._age_s:
            self.drop(note_id)
            return None
        self._held.move_to_end(note_id)
        return parcel


def in_turns(ids: Iterable[str]) -> Iterable[list[str]]:
    """Ids, as many as may be fetched at once."""
    all_ids = list(ids)
    for start in range(0, len(all_ids), FETCH_MAX):
        yield all_ids[start : start + FETCH_MAX]
