"""Membership over a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import structlog

from chappe.errors import ClusterError
from chappe.registry.changes import changes
from chappe.registry.ledger import MEMBERS, SessionOver
from chappe.registry.membership import Member, Members
from chappe.registry.session import Session
from chappe.registry.stop import stop

log = structlog.get_logger()


class Roster:
    """Keeps a node among the members, and tells it who the others are."""

    def __init__(self, session: Session, poll_s: float) -> None:
        self._session = session
        self._ledger = session.ledger
        self._poll_s = poll_s
        self._me: Member | None = None
        self._seen: Members = {}
        # Until when the others have time to join again, after the ledger had forgotten us.
        self._doubtful_until = float("-inf")
        self._successor: asyncio.Future[Member] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False
        session.begun = self._enter_again

    async def join(self, member: Member) -> None:
        """Become a member; raises ClusterError."""
        if self._me is not None:
            raise ClusterError(f"{self._me.name}: joined already")
        try:
            other = await self._ledger.enter(await self._session.token(), member)
        except SessionOver:
            other = await self._ledger.enter(await self._session.anew(), member)
        if other is not None:
            raise ClusterError(
                f"{self._ledger.place}: the name {member.name} is held by {other.url},"
                f" run {other.incarnation}, which lives"
            )
        self._me = member
        self._successor = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep())

    async def leave(self) -> None:
        """Be no member any more; when the registry is away, as soon as it answers."""
        if self._me is None:
            return
        name, self._me = self._me.name, None
        await stop(self._keeper)
        session = await self._session.token()
        try:
            await self._withdraw(name, session)
        except ClusterError:
            self._session.owe(session, partial(self._withdraw, name))

    async def replaced(self) -> Member:
        """Wait until another run of this node has its name."""
        if self._successor is None:
            raise ClusterError("not joined, so nobody can take its place")
        return await asyncio.shield(self._successor)

    async def watch(self) -> AsyncIterator[Members]:
        """Give the members, then again each time they have changed."""
        self._session.open()
        async for members in changes(self._ledger.bell, MEMBERS, self._look, self._poll_s):
            yield members

    async def close(self) -> None:
        """Leave, and let go of the registry."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.leave()
        except ClusterError as error:
            log.warning("registry did not hear of our leaving", reason=str(error))
        await self._session.close()

    async def _look(self) -> tuple[Members, float | None]:
        """Read the members, and put back those who have time to join again."""
        members, fresh_s = await self._ledger.members()
        now = asyncio.get_running_loop().time()
        me = self._me
        if me is not None and me.name not in members:
            self._doubt()
        if now < self._doubtful_until:
            members = {**self._seen, **members}
            left_s = self._doubtful_until - now
            fresh_s = left_s if fresh_s is None else min(fresh_s, left_s)
        self._seen = members
        return members, fresh_s

    def _doubt(self) -> None:
        self._doubtful_until = asyncio.get_running_loop().time() + self._ledger.lease_s

    async def _keep(self) -> None:
        """Join again whenever the ledger has forgotten us, until a newer run has our name."""
        looks = changes(self._ledger.bell, MEMBERS, self._look_for_me, self._poll_s)
        async for mine, _ in looks:
            if mine != self._me:
                await self._enter_again(await self._session.token())
            if self._successor is not None and self._successor.done():
                return

    async def _look_for_me(self) -> tuple[tuple[Member | None, object], float | None]:
        """Find our own entry; one that is not ours is news at every look until it is dealt with."""
        members, fresh_s = await self._ledger.members()
        mine = members.get(self._me.name) if self._me is not None else None
        return (mine, None if mine == self._me else object()), fresh_s

    async def _enter_again(self, session: str) -> None:
        me, successor = self._me, self._successor
        if me is None or successor is None or successor.done():
            return
        # Who has forgotten us has forgotten the others too, most likely.
        self._doubt()
        try:
            other = await self._ledger.enter(session, me)
        except ClusterError as error:
            log.warning("could not join again yet", reason=str(error))
            return
        if other is None:
            log.info("joined again", name=me.name)
        elif not successor.done():
            log.error("another run of this node has its name", name=me.name, url=other.url)
            successor.set_result(other)
            self._session.owe(session, partial(self._withdraw, me.name))

    async def _withdraw(self, name: str, session: str) -> None:
        await self._ledger.withdraw(session, name)
