"""Hands: the notes that users were handed and have not shown yet.

Each has so many bytes at a time; there is room again when it has shown some. What it does not show
comes again after a while (P7), those first that it never had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chappe.push.note import Note

# Of one user: eight of the largest notes, or all that may wait for it if they are small. A quarter
# of what a session of the hub may hold back.
BYTES_MAX = 512 * 1024
# As many as may wait for a client.
NOTES_MAX = 1000
# What a note costs besides its content: ids, and the message around it.
NOTE_BYTES = 200
# A user who is online and takes nothing is tried again then: some outbox, or link, is full.
REFUSED_S = 5


class _Hand:
    """What one user has: by note since when, in seconds, and how large; the oldest first.

    What is to come again takes no room, and stays known: those that it never had go first.
    """

    __slots__ = ("due", "more", "notes", "size")

    def __init__(self) -> None:
        self.notes: dict[str, tuple[int, int]] = {}
        self.size = 0
        # In which second it is to be looked at; 0: in none.
        self.due = 0
        # Whether something waits that there was no room for.
        self.more = False

    def pop(self, note_id: str) -> None:
        self.size -= self.notes.pop(note_id, (0, 0))[1]


class Hands:
    """By client, and by the second in which something is to come again."""

    __slots__ = ("_hands", "_now", "_redelivery_s", "_seconds")

    def __init__(self, redelivery_s: float, now_s: float) -> None:
        self._redelivery_s = max(1, int(redelivery_s))
        self._now = int(now_s)
        self._hands: dict[str, _Hand] = {}
        self._seconds: dict[int, dict[str, None]] = {}

    def open(self, client: str) -> Sequence[str]:
        """A user comes, with empty hands; what it had until now, if it was here."""
        before = self.close(client)
        self._hands[client] = _Hand()
        return before

    def close(self, client: str) -> Sequence[str]:
        """A user goes; what it had."""
        hand = self._hands.pop(client, None)
        if hand is None:
            return ()
        self._look_no_more(client, hand)
        return list(hand.notes)

    def has_room(self, client: str) -> bool:
        """Whether a user may be handed more of what waits; if not, there is more for later."""
        hand = self._hands.get(client)
        if hand is None:
            return False
        if hand.size < BYTES_MAX:
            return True
        hand.more = True
        return False

    def take(self, client: str, note: Note) -> None:
        """A user was handed a note."""
        hand = self._hands.get(client)
        if hand is None:
            return
        hand.pop(note.id)
        size = len(note.content) + NOTE_BYTES
        hand.notes[note.id] = (self._now, size)
        hand.size += size
        if len(hand.notes) > NOTES_MAX:
            hand.pop(next(iter(hand.notes)))
        if not hand.due:
            self._look_at(client, hand, self._now + self._redelivery_s)

    def put_off(self, client: str, ids: Sequence[str]) -> None:
        """Not all of a user's sessions have these: they come again as soon as there is room."""
        hand = self._hands.get(client)
        if hand is None:
            return
        for note_id in ids:
            if note_id in hand.notes:
                hand.size -= hand.notes[note_id][1]
                hand.notes[note_id] = (self._now - self._redelivery_s, 0)

    def refuse(self, client: str) -> None:
        """A user that is here did not take a note."""
        hand = self._hands.get(client)
        if hand is not None:
            self._look_at(client, hand, self._now + REFUSED_S)

    def drop(self, client: str, ids: Iterable[str]) -> bool:
        """A user has shown notes, or lost them; whether it may be handed more that waits."""
        hand = self._hands.get(client)
        if hand is None:
            return False
        for note_id in ids:
            hand.pop(note_id)
        # Not for each that is shown: the store is asked for what is next.
        return hand.more and hand.size <= BYTES_MAX // 2

    def wanted(self, client: str, waiting: Sequence[str]) -> list[str]:
        """What a user is to be handed of what waits for it; what waits no more it has no more."""
        hand = self._hands.get(client)
        if hand is None:
            return []
        for note_id in hand.notes.keys() - set(waiting):
            hand.pop(note_id)
        hand.more = False
        due = self._now - self._redelivery_s
        again = [note_id for note_id, (since, _) in hand.notes.items() if since <= due]
        wanted = [note_id for note_id in waiting if note_id not in hand.notes] + again
        for note_id in again:
            # So that they do not stand in their own way.
            hand.size -= hand.notes[note_id][1]
            hand.notes[note_id] = (hand.notes[note_id][0], 0)
        self._look_at(client, hand, self._next(hand))
        return wanted

    def had(self, client: str, note_id: str) -> bool:
        """Whether a user was handed a note since it came."""
        hand = self._hands.get(client)
        return hand is not None and note_id in hand.notes

    def advance(self, now_s: float) -> list[str]:
        """It is that time; the users that something is to come again to."""
        found: dict[str, None] = {}
        # Some few seconds, mostly; of many, those that there is anything in.
        passed = range(self._now + 1, int(now_s) + 1)
        seconds = passed if len(passed) < len(self._seconds) else sorted(self._seconds)
        for second in seconds:
            if second <= now_s:
                found |= self._seconds.pop(second, {})
        self._now = max(self._now, int(now_s))
        for client in found:
            self._hands[client].due = 0
        return list(found)

    def _next(self, hand: _Hand) -> int:
        since = next((since for since, size in hand.notes.values() if size), None)
        return 0 if since is None else since + self._redelivery_s

    def _look_at(self, client: str, hand: _Hand, due: int) -> None:
        self._look_no_more(client, hand)
        if due:
            hand.due = due
            self._seconds.setdefault(due, {})[client] = None

    def _look_no_more(self, client: str, hand: _Hand) -> None:
        if hand.due:
            some = self._seconds[hand.due]
            del some[client]
            if not some:
                del self._seconds[hand.due]
            hand.due = 0
