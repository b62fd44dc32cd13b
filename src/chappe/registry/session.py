"""A node's session in a registry: renewed in the background, begun anew when it was lost.

Safety rests on one comparison: a session is trusted up to `until`, which is the loop's time
*before* its last successful renewal was sent, plus the lease's time. The ledger counts from when
that renewal arrived, so it never gives to another what is still trusted here. A process that was
stopped and wakes up finds `until` in the past before it does anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from chappe.errors import ClusterError, Held
from chappe.registry.bell import rung
from chappe.registry.lease import KeptLease
from chappe.registry.ledger import SESSION, Ledger, SessionOver
from chappe.registry.stop import stop

log = structlog.get_logger()

# Renewals in one lease's time: one may be lost, and one late.
RENEWALS = 3
# Tries in one lease's time while the registry does not answer.
TRIES = 15
_LONG_AGO = float("-inf")

Undo = Callable[[str], Awaitable[None]]


class Session:
    """One node's life in a ledger, shared by its Roster and its Agreement."""

    def __init__(self, ledger: Ledger, *, users: int = 1) -> None:
        self.ledger = ledger
        self._users = users
        self._token: str | None = None
        self._until = _LONG_AGO
        self._kept: dict[KeptLease, Undo] = {}
        # What has to be taken back when the registry is heard of again; goes with its session.
        self._owed: dict[str, list[Undo]] = {}
        self._tags = 0
        self._opened = False
        self._closed = False
        self._pulse: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        # Called with each new session, before the old one is ended.
        self.begun: Callable[[str], Awaitable[None]] | None = None

    def open(self) -> None:
        """Let the ledger listen; done at the first use, when a loop is running."""
        if self._closed:
            raise ClusterError(f"{self.ledger.place}: closed")
        if not self._opened:
            self._opened = True
            self.ledger.open()

    def until(self) -> float:
        """The loop's time up to which the session surely lasts."""
        return self._until

    async def token(self) -> str:
        """The present session, begun at its first use; raises ClusterError."""
        self.open()
        if self._token is None or self._expired():
            await self._renew(only_if_over=True)
        if self._pulse is None:
            self._pulse = asyncio.create_task(self._beat())
        assert self._token is not None
        return self._token

    async def anew(self) -> str:
        """Look whether the session is over, as the ledger says, and begin another if so."""
        await self._renew()
        return await self.token()

    async def hold(
        self,
        take: Callable[[str, str], Awaitable[int]],
        undo: Callable[[str, str], Awaitable[None]],
        tell: Callable[[str, str, bytes], Awaitable[None]] | None = None,
    ) -> KeptLease:
        """Take something under this session and a new tag, and keep it.

        Raises what `take` raises; whatever it did without an answer is taken back.
        """
        self._tags += 1
        tag = str(self._tags)
        take_back = partial(_under, undo, tag)
        session = await self.token()
        try:
            try:
                number = await take(session, tag)
            except SessionOver:
                # Nothing happened: the ledger has forgotten us, so we begin anew, once.
                session = await self.anew()
                number = await take(session, tag)
        except Held:
            raise
        except (ClusterError, asyncio.CancelledError):
            self.owe(session, take_back)
            raise
        if session != self._token or self._expired():
            self.owe(session, take_back)
            raise ClusterError(f"{self.ledger.place}: answered after the session was over")
        say = None if tell is None else partial(self._say, partial(tell, session, tag))
        lease = KeptLease(number, self.until, partial(self._give_back, session), say)
        self._kept[lease] = take_back
        return lease

    async def release_all(self) -> None:
        """Give back all that is held."""
        for lease in list(self._kept):
            await lease.release()

    async def close(self) -> None:
        """Be used by one less; the last ends the session with all that it holds."""
        self._users -= 1
        if self._users > 0 or self._closed:
            return
        self._closed = True
        await stop(self._pulse)
        token, self._token = self._token, None
        self._lose_all()
        if self._opened:
            try:
                if token is not None:
                    await self.ledger.end(token)
            except ClusterError as error:
                log.warning("registry did not hear of our leaving", reason=str(error))
            finally:
                await self.ledger.close()

    async def _give_back(self, session: str, lease: KeptLease) -> None:
        undo = self._kept.pop(lease)
        lease.lose()
        try:
            await undo(session)
        except (ClusterError, asyncio.CancelledError) as error:
            self.owe(session, undo)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _say(self, tell: Callable[[bytes], Awaitable[None]], value: bytes) -> None:
        try:
            await tell(value)
        except SessionOver:
            # The ledger forgot us: let that be found out now, not at the next renewal.
            self.ledger.bell.ring(SESSION)
            raise

    def owe(self, session: str, undo: Undo) -> None:
        """Take something back as soon as the registry answers, unless its session is over then."""
        self._owed.setdefault(session, []).append(undo)
        self.ledger.bell.ring(SESSION)

    async def _beat(self) -> None:
        """Renew for ever; every failure is followed by a pause."""
        away = False
        with self.ledger.bell.listening(SESSION) as event:
            while True:
                event.clear()
                try:
                    await self._renew()
                    await self._settle()
                except ClusterError as error:
                    if not away:
                        log.warning("registry does not answer", reason=str(error))
                    away = True
                    # Rings are no reason to try harder.
                    await asyncio.sleep(self.ledger.lease_s / TRIES)
                    continue
                if away:
                    log.info("registry answers again", registry=self.ledger.place)
                away = False
                await rung(event, self.ledger.lease_s / RENEWALS)

    async def _renew(self, *, only_if_over: bool = False) -> None:
        """Renew the session, or begin another; callers take turns, so there is never a second."""
        async with self._turn:
            if only_if_over and self._token is not None and not self._expired():
                return
            sent = asyncio.get_running_loop().time()
            token = self._token
            if token is not None and not self._expired() and await self.ledger.renew(token):
                self._last_until(sent)
                return
            self._lose_all()
            fresh = await self.ledger.begin()
            self._token = fresh
            self._last_until(sent)
            if token is None:
                return
            log.warning("registry session was lost and begun anew", registry=self.ledger.place)
            self._owed.setdefault(token, []).append(self.ledger.end)
            if self.begun is not None:
                await self.begun(fresh)

    async def _settle(self) -> None:
        """Take back what is owed."""
        while self._owed:
            session = next(iter(self._owed))
            undos = self._owed[session]
            while undos:
                await undos[0](session)
                del undos[0]
            del self._owed[session]

    def _last_until(self, sent: float) -> None:
        loop = asyncio.get_running_loop()
        self._until = sent + self.ledger.lease_s
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._lose_all)
        if self._expired():
            self._lose_all()

    def _expired(self) -> bool:
        return asyncio.get_running_loop().time() >= self._until

    def _lose_all(self) -> None:
        """Give up what is held: from here on somebody else may have it.

        The ledger may still count it as ours, if a renewal came late: so it is owed as well.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._kept = self._kept, {}
        for lease in kept:
            lease.lose()
        if kept and self._token is not None:
            self._owed.setdefault(self._token, []).extend(kept.values())
        self._until = min(self._until, asyncio.get_running_loop().time())


async def _under(undo: Callable[[str, str], Awaitable[None]], tag: str, session: str) -> None:
    await undo(session, tag)
