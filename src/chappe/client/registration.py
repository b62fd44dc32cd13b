"""A registration: a consumer's name at a queue, said again after each reconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chappe.client.event import Deferred
from chappe.client.notice import Notice, Stopped
from chappe.client.patience import Patience
from chappe.client.selection import Selection
from chappe.errors import RequestError
from chappe.wire.ops import Register, Reply


class Registration:
    """Holds a name for as long as the client lives; `lost` hears when a hub refuses it."""

    def __init__(
        self, selection: Selection, new: bool, lost: Callable[[RequestError], None]
    ) -> None:
        self._selection = selection
        self._new = new
        self._lost = lost
        self._patience = Patience(selection.name)
        # Set while the name is this session's, or will not be any more.
        self._settled = asyncio.Event()
        # Whether the hub has taken it, so that it is said again on a new connection.
        self.standing = False

    @property
    def wanted(self) -> bool:
        """Whether it is still to be held."""
        return self.standing

    def ask(self) -> Register:
        """What to say to the hub."""
        return self._selection.register(self._new)

    def taken(self, reply: Reply) -> None:
        """The name is this client's."""
        self.standing = True
        self._patience.renew()
        self._settled.set()

    def refused(self, error: RequestError) -> Notice | Deferred:
        """Somebody else has it, after a reconnect; perhaps that is who this client was before."""
        if self._patience.bears(error):
            return Deferred(self)
        self.end()
        self._lost(error)
        return Stopped(self._selection.queue, error)

    def lose(self) -> None:
        """The connection is gone: the name has to be asked for anew."""
        self._settled.clear()

    def end(self) -> None:
        """It is not wished any more."""
        self.standing = False
        self._settled.set()

    async def settled(self) -> None:
        """Wait until a hub has said whether the name is this session's."""
        if self.standing:
            await self._settled.wait()
