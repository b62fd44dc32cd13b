"""Producers: the last numbers of each, so that what is sent again is stored once (Q5)."""

from __future__ import annotations

from collections import OrderedDict

from chappe.errors import BadRequest
from chappe.queues.options import QueueLimits
from chappe.queues.record import Stored

# The last numbers of a producer that are remembered in any case.
_WINDOW_MIN = 64


class Producers(OrderedDict[str, OrderedDict[int, int]]):
    """By producer, who was heard of last at the end: its numbers, and the ids they were given."""

    def remember(self, producer: str, seq: int, id: int, limits: QueueLimits) -> None:
        """A message of a producer has that id."""
        seen = self.get(producer)
        if seen is None:
            seen = self[producer] = OrderedDict()
            if len(self) > limits.producers_max:
                self.popitem(last=False)
        else:
            self.move_to_end(producer)
        late = bool(seen) and seq < next(reversed(seen))
        seen[seq] = id
        if late:
            # In order, so that what was forgotten is below all that is remembered.
            seen = self[producer] = OrderedDict(sorted(seen.items()))
        # The more producers there are, the fewer numbers of each.
        share = limits.producer_numbers_max // len(self)
        window = min(limits.producer_window, max(_WINDOW_MIN, share))
        while len(seen) > window:
            seen.popitem(last=False)

    def may_know(self, message: Stored) -> bool:
        """Whether a message of a producer is, or may be, one that came before."""
        seen = self.get(message.producer or "")
        seq = message.producer_seq
        return seq is None or (bool(seen) and seq <= next(reversed(seen or {})))

    def known(self, message: Stored, limits: QueueLimits) -> int | None:
        """The id that was given to the same message when it came before; raises BadRequest."""
        producer, seq = message.producer, message.producer_seq
        if producer is None or seq is None:
            return None
        seen = self.get(producer)
        if seen is None:
            return None
        known = seen.get(seq)
        window = min(_WINDOW_MIN, limits.producer_window)
        if known is None and len(seen) >= window and seq < next(iter(seen)):
            raise BadRequest(
                f"seq: {seq} of producer {producer} is older than the last {len(seen)}, "
                "nobody knows whether it was stored"
            )
        return known
