"""The inbox: what came and was not taken yet, each once (P7)."""

from __future__ import annotations

import asyncio

from chappe.device.cache import Cache
from chappe.device.note import SYSTEM_TYPES, Note, Retraction
from chappe.device.shown import Shown

# What keeping anything costs besides its content.
_ITEM_BYTES = 512


class Inbox:
    """Keeps notes for one that iterates, and knows what that one has had."""

    def __init__(self, cache: Cache, *, shown_max: int, bytes_max: int) -> None:
        self._cache = cache
        self._shown: Shown = cache.load_shown(shown_max)
        self._waiting: dict[str, Note | Retraction] = {}
        self._bytes = 0
        self._bytes_max = bytes_max
        self._changed = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether no more should be read until something is taken."""
        return self._bytes > self._bytes_max

    def put(self, what: Note | Retraction) -> list[str]:
        """Take what came; which ids can be acknowledged, as nobody needs to see them (again)."""
        if what.id_once in self._shown or _is_strange(what):
            return [what.id]
        if isinstance(what, Retraction) and what.note in self._waiting:
            # It was not shown, and will not be.
            self._drop(what.note)
            self._mark(what.note)
            self._mark(what.id_once)
            return [what.note, what.id]
        if what.id_once not in self._waiting:
            self._waiting[what.id_once] = what
            self._bytes += _size(what)
            self._changed.set()
        return []

    def maybe_take(self) -> Note | Retraction | None:
        """The next one; it counts as shown."""
        if not self._waiting:
            return None
        what = self._drop(next(iter(self._waiting)))
        self._mark(what.id_once)
        if isinstance(what, Retraction):
            # Should the note itself come only now, it is not for showing any more.
            self._mark(what.note)
        return what

    async def wait(self) -> None:
        """Wait until something may have come, or `wake` was called."""
        self._changed.clear()
        await self._changed.wait()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._changed.set()

    def clear(self) -> None:
        """Forget what waits: somebody else gets it."""
        self._waiting.clear()
        self._bytes = 0

    def _drop(self, id_once: str) -> Note | Retraction:
        what = self._waiting.pop(id_once)
        self._bytes -= _size(what)
        return what

    def _mark(self, id_once: str) -> None:
        if id_once not in self._shown:
            self._shown.add(id_once)
            self._cache.show(self._shown, id_once)


def _is_strange(what: Note | Retraction) -> bool:
    """Whether it is of a kind that the system has and this device does not know: no user's."""
    return isinstance(what, Note) and what.type >= SYSTEM_TYPES


def _size(what: Note | Retraction) -> int:
    return _ITEM_BYTES + (len(what.content) if isinstance(what, Note) else 0)
