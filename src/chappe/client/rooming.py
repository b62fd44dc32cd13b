"""What a client does with rooms: joins and leaves them, and asks who is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from chappe.client.form import Form, check_text
from chappe.client.membership import Membership, Memberships
from chappe.errors import BadRequest, Overload
from chappe.wire.ops import Leave, Members

if TYPE_CHECKING:
    from chappe.client.asking import Asking
    from chappe.client.connection import Connection
    from chappe.client.conversation import Conversation


class Attendance(NamedTuple):
    """How many are in a room, and who: None if that was not asked, or if they are too many.

    Whoever is there with several sessions counts, and is named, as often.
    """

    members: int
    names: tuple[str, ...] | None


class Rooming:
    """The part of a client that is about rooms."""

    _asking: Asking
    _connection: Connection
    _conversation: Conversation
    _form: Form
    _memberships: Memberships

    @property
    def rooms(self) -> tuple[str, ...]:
        """The rooms that were joined, and will be again after a reconnect."""
        return tuple(self._memberships.wanted)

    async def join(self, room: str) -> None:
        """Receive what is published to a room, also after a reconnect.

        What comes is iterated over with all else. It returns when whatever is published from now on
        finds this client; raises Unreachable when that cannot be had within the hub's time.
        """
        memberships = self._memberships
        membership = Membership(memberships, check_text(room))
        memberships.asked(room)
        unsure = False
        try:
            await self._asking.ask(membership.ask(), membership.begin)
        except (asyncio.CancelledError, Overload) as error:
            unsure = getattr(error, "outcome_unknown", True)
            raise
        finally:
            if memberships.settled(room, unsure):
                self._conversation.answer(self._form.encode(Leave(to=room)))
                self._connection.writer.flush_soon()

    async def leave(self, room: str) -> None:
        """Receive no more of a room."""
        memberships = self._memberships
        op = Leave(to=check_text(room))
        # Whatever becomes of the request, it is not wanted after a reconnect; nor if a join that
        # was under way has been answered meanwhile.
        memberships.remove(room)
        await self._asking.ask(op, lambda reply: memberships.remove(room))

    async def members(self, room: str, n: int = 0) -> Attendance:
        """Tell how many are in a room, anywhere, and who they are if they are no more than `n`."""
        try:
            op = msgspec.convert({"to": check_text(room), "n": n}, Members)
        except msgspec.ValidationError as error:
            raise BadRequest(f"members: {error}") from None
        reply = await self._asking.ask(op)
        names = reply.members
        return Attendance(reply.n or 0, None if names is None else tuple(names))
