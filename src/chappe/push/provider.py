"""Providers: bridges to the push services of platforms, for devices that are not connected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chappe.push.note import Note


class Provider(Protocol):
    """Is told of notes that wait. It may wake a device, which then comes and takes them; or show
    them by itself.

    Neither call may block or raise: a provider has a queue of its own, with a bound, and what it
    has no room for waits for the device all the same.
    """

    def offline(self, note: Note, clients: Sequence[str]) -> None:
        """A note waits for clients that are on no comet."""
        ...

    def withdrawn(self, note: Note, clients: Sequence[str]) -> None:
        """A note that it may have been told of waits no more: it was cancelled, or replaced."""
        ...


class NoProvider:
    """Devices come by themselves."""

    __slots__ = ()

    def offline(self, note: Note, clients: Sequence[str]) -> None:
        pass

    def withdrawn(self, note: Note, clients: Sequence[str]) -> None:
        pass
