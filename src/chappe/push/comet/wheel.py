"""The timer wheel: when each session is to be looked at, with one timer for all of them.

A slot is a second. A session is in one slot, that of whatever comes first: silence for too long, a
note to be sent again, the end of its token. To be heard of moves nobody: who is looked at and was
heard of meanwhile is put further along.
"""

from __future__ import annotations

from chappe.push.comet.session import DeviceSession

# What is due later is looked at and put on.
SLOTS = 1024


class Wheel:
    """Sessions by the second in which they are due."""

    __slots__ = ("_slots", "now")

    def __init__(self, now: int) -> None:
        # One object for all who are heard of in a second.
        self.now = now
        self._slots: list[dict[DeviceSession, None] | None] = [None] * SLOTS

    def put(self, session: DeviceSession, due: int) -> None:
        """Look at a session then, and at no other time; in the next second at the earliest."""
        self.drop(session)
        due = min(max(due, self.now + 1), self.now + SLOTS - 1)
        slot = self._slots[due % SLOTS]
        if slot is None:
            slot = self._slots[due % SLOTS] = {}
        slot[session] = None
        session.due = due

    def drop(self, session: DeviceSession) -> None:
        """Look at a session no more."""
        if session.due:
            slot = self._slots[session.due % SLOTS]
            if slot is not None:
                slot.pop(session, None)
            session.due = 0

    def sessions(self) -> list[DeviceSession]:
        """All that are to be looked at some time."""
        return [session for slot in self._slots if slot is not None for session in slot]

    def advance(self, now: int) -> list[DeviceSession]:
        """It is that second; those who are due since the last one, the earliest first."""
        found: list[DeviceSession] = []
        for second in range(self.now + 1, min(now, self.now + SLOTS) + 1):
            slot = self._slots[second % SLOTS]
            if slot is not None:
                self._slots[second % SLOTS] = None
                found += slot
        for session in found:
            session.due = 0
        self.now = max(self.now, now)
        return found
