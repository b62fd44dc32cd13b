"""The seam between a client and its transport.

A `Dial` makes a `Link`, which carries bodies both ways and tells its `Receiver` what happens. Real
sockets, an in-process hub and a simulated network are each a dial.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from chappe.client.form import Form


class Receiver(Protocol):
    """The client's end of a link."""

    def received(self, body: bytes) -> None:
        """An op came."""
        ...

    def heard(self) -> None:
        """Something came that is not an op: a sign of life."""
        ...

    def lost(self, code: int, reason: str) -> None:
        """The link is over; the first call counts."""
        ...

    def pause_writing(self) -> None:
        """The link takes no more."""
        ...

    def resume_writing(self) -> None:
        """The link takes more."""
        ...


class Link(Protocol):
    """One connection."""

    def write(self, bodies: Iterable[bytes]) -> None:
        """Send ops, in one write."""
        ...

    def pause_reading(self) -> None:
        """Leave what comes to the kernel, and so to the hub."""
        ...

    def resume_reading(self) -> None:
        """Read again."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Say goodbye after what was written; `lost` follows."""
        ...

    def abort(self) -> None:
        """Cut the connection at once; `lost` may follow."""
        ...


class Dial(Protocol):
    """Makes links to one hub."""

    @property
    def form(self) -> Form:
        """How ops travel on the links."""
        ...

    async def __call__(self, receiver: Receiver) -> Link:
        """Open a link.

        Raises OSError when a later attempt may succeed, ConnectionClosed when the hub said why not.
        Cancelling it leaves no connection behind.
        """
        ...
