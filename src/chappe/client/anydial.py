"""Links to any of several hubs of one cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chappe.client.form import Form
from chappe.client.link import Dial, Link, Receiver
from chappe.errors import ConnectionClosed

if TYPE_CHECKING:
    from random import Random


class AnyDial:
    """Makes links to one hub after the other, beginning anywhere.

    The hub that was linked last is the last to be tried again: it went away, or asked its clients
    to.
    """

    def __init__(self, dials: Sequence[Dial], rng: Random) -> None:
        self._dials = list(dials)
        self._next = rng.randrange(len(self._dials))

    @property
    def form(self) -> Form:
        """How ops travel on the links."""
        return self._dials[0].form

    async def __call__(self, receiver: Receiver) -> Link:
        """Open a link to the first hub that takes it; raises what the last one raised."""
        for left in reversed(range(len(self._dials))):
            dial = self._dials[self._next]
            self._next = (self._next + 1) % len(self._dials)
            try:
                return await dial(receiver)
            except OSError:
                if not left:
                    raise
            except ConnectionClosed as refusal:
                if not left or not refusal.reconnect:
                    raise
        raise AssertionError("there is at least one hub")
