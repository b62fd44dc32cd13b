"""A lease or a seat, as its holder has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chappe.errors import ClusterError


class KeptLease:
    """Held while the session lasts under which it was taken; renewed with it."""

    __slots__ = ("_give_back", "_lost", "_over", "_tell", "_until", "epoch", "number")

    def __init__(
        self,
        number: int,
        until: Callable[[], float],
        give_back: Callable[[KeptLease], Awaitable[None]],
        tell: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        # A lease's epoch and a seat's number are the same thing: nobody else ever had it.
        self.epoch = number
        self.number = number
        self._until = until
        self._give_back = give_back
        self._tell = tell
        self._lost = asyncio.Event()
        self._over = 0.0

    @property
    def held(self) -> bool:
        """Whether nothing is known of its loss."""
        return not self._lost.is_set()

    @property
    def until(self) -> float:
        """The loop's time up to which it is surely held; in the past once it is lost."""
        return self._until() if self.held else self._over

    async def lost(self) -> None:
        """Wait until it is no longer held; cancelling it changes nothing."""
        await self._lost.wait()

    async def tell(self, value: bytes) -> None:
        """Say something else on a seat; raises ClusterError, also when it is lost."""
        assert self._tell is not None
        if not self.held:
            raise ClusterError(f"seat {self.number} is lost")
        await self._tell(value)

    async def release(self) -> None:
        """Give it back; when the registry is away, as soon as it is heard of again."""
        if self.held:
            await self._give_back(self)

    def lose(self) -> None:
        """Be lost, from now on."""
        if self.held:
            self._over = min(self._until(), asyncio.get_running_loop().time())
            self._lost.set()
