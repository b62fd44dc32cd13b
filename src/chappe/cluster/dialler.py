"""Dialling: keeps a link to one member for as long as the view has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from chappe.backoff import Backoff
from chappe.cluster.link import Link
from chappe.registry.membership import Member


class Line(Protocol):
    """What a dialler needs of the mesh."""

    def linked(self, name: str) -> Link | None:
        """The link to that node that is up."""
        ...

    async def dial(self, member: Member) -> Link:
        """Try once; returns the link, whatever became of it. Cancelling it cuts the connection."""
        ...


class Dialler:
    """Dials one member whenever there is no link to it.

    A registry that knows addresses only gives members without an incarnation; their names, too,
    are learned by dialling.
    """

    def __init__(self, line: Line, member: Member, backoff: Backoff, steady_s: float) -> None:
        self.member = member
        self._line = line
        self._backoff = backoff
        # How long a link has to hold before its loss is nobody's fault.
        self._steady_s = steady_s
        self._name = member.name
        self._wake = asyncio.Event()

    def update(self, member: Member) -> None:
        """The view knows something new of the member: try again at once."""
        if member != self.member:
            self.member = member
            self._name = member.name
            self._backoff.reset()
            self._wake.set()

    def link_changed(self) -> None:
        """Some link went down."""
        self._wake.set()

    async def run(self, time: Callable[[], float]) -> None:
        """Keep the link, until cancelled or the member turns out to be this node itself."""
        while True:
            await self._wait_until_alone()
            member = self.member
            link = await self._line.dial(member)
            refused = link.settled.result()
            if refused is not None and refused.cause == "itself":
                return
            if link.name and not member.incarnation:
                self._name = link.name
            if refused is None:
                await self._wait_until_alone()
                if link.up_since is not None and time() - link.up_since >= self._steady_s:
                    self._backoff.reset()
            if member == self.member:
                await self._pause(self._backoff.next_s())

    async def _wait_until_alone(self) -> None:
        """Wait until no link is up, or only one to an older run."""
        await _until(self._wake, self._alone)

    def _alone(self) -> bool:
        link = self._line.linked(self._name)
        return link is None or link.incarnation < self.member.incarnation

    async def _pause(self, delay_s: float) -> None:
        """Wait a while, or until the member is known anew."""
        member = self.member
        try:
            async with asyncio.timeout(delay_s):
                await _until(self._wake, lambda: self.member != member)
        except TimeoutError:
            pass


async def _until(wake: asyncio.Event, condition: Callable[[], bool]) -> None:
    while not condition():
        wake.clear()
        await wake.wait()
