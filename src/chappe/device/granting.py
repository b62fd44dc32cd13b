"""Granting: a grant at hand whenever one is needed, from the cache or its source."""

from __future__ import annotations

from contextlib import suppress

from chappe.clock import Clock
from chappe.device.cache import Cache
from chappe.device.grant import Grant, GrantSource, check_grant
from chappe.errors import RequestError
from chappe.wire.pushcipher import UntrustedComet

# A comet that cannot be reached so often in a row may be gone: the web knows which are alive.
_FAILURES_BEFORE_ASKING = 2


class Granting:
    """Keeps the device's grant; the identity that came with the first is pinned (P4)."""

    def __init__(
        self,
        source: GrantSource,
        cache: Cache,
        clock: Clock,
        *,
        identity: bytes | None,
        renew_ahead_ms: int,
    ) -> None:
        self._source = source
        self._cache = cache
        self._clock = clock
        self._renew_ahead_ms = renew_ahead_ms
        self._grant = cache.load_grant()
        if identity is None and self._grant is not None:
            identity = self._grant.identity
        elif self._grant is not None and self._grant.identity != identity:
            # The user's word counts, not that of an older one.
            self._grant = None
        self._identity = identity
        # Whether the comet did not take the one at hand.
        self.refused = False
        # How often its comet could not be reached since it last could.
        self.failures = 0

    @property
    def maybe_grant(self) -> Grant | None:
        """What is at hand, good or not."""
        return self._grant

    async def current(self) -> Grant:
        """A grant to connect with.

        Raises RequestError if there is none to be had, UntrustedComet if it comes with another
        identity than the one that is pinned.
        """
        grant = self._grant
        if grant is None or self.refused or self._left_ms(grant) <= 0:
            return await self.renew()
        if self.failures >= _FAILURES_BEFORE_ASKING or self._is_stale(grant):
            # Better one that may do than none.
            with suppress(RequestError):
                return await self.renew()
        return grant

    async def renew_stale(self) -> None:
        """Renew a grant that expires soon, if that works; raises UntrustedComet."""
        if self._grant is not None and self._is_stale(self._grant):
            with suppress(RequestError):
                await self.renew()

    async def renew(self) -> Grant:
        """Get a fresh grant; raises as `current` does."""
        grant = await self._source()
        check_grant(grant)
        if self._identity is not None and grant.identity != self._identity:
            raise UntrustedComet("identity: not the one that this device knows")
        self._identity = grant.identity
        self._grant = grant
        self.refused = False
        self.failures = 0
        self._cache.store_grant(grant)
        return grant

    def _is_stale(self, grant: Grant) -> bool:
        return self._left_ms(grant) < self._renew_ahead_ms

    def _left_ms(self, grant: Grant) -> int:
        return grant.expires_ms - self._clock.wall_ms()
