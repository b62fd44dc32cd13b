"""Queues from the consumer's side: what was fetched or pushed, until it is acknowledged."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

from chappe.client.asking import Asking
from chappe.client.connection import Connection
from chappe.client.conversation import Conversation
from chappe.client.event import Phase
from chappe.client.form import Form
from chappe.client.item import Item
from chappe.client.items import Items
from chappe.client.lent import Lent
from chappe.client.registration import Registration
from chappe.client.selection import Selection
from chappe.client.standing import Standing
from chappe.errors import BadRequest, ConnectionClosed
from chappe.wire.ops import Ack, Consume, Nack, Reply


class Shelf:
    """What a queue sent for the fetches that are under way, in order.

    The hub sends the messages before the reply that counts them; which of two fetches gets which
    does not matter.
    """

    def __init__(self) -> None:
        self.messages: deque[Lent] = deque()
        self.fetches = 0

    def take(self, n: int) -> list[Lent]:
        """Take the first so many, or as many as there are."""
        return [self.messages.popleft() for _ in range(min(n, len(self.messages)))]


class Workqueues:
    """The queues one client takes items from."""

    # Items may be handed out anew at any time: nobody waits for them to be done.
    busy = False

    def __init__(
        self, conversation: Conversation, connection: Connection, asking: Asking, form: Form
    ) -> None:
        self._conversation = conversation
        self._connection = connection
        self._asking = asking
        self._form = form
        self._shelves: dict[str, Shelf] = {}
        self.pushed: dict[str, Items] = {}
        self.registrations: dict[str, Registration] = {}
        conversation.tenants.append(self)

    async def fetch(self, selection: Selection, n: int, wait_s: float) -> list[Item]:
        """Ask for items; what comes after it was cancelled is handed back."""
        if not 0 <= wait_s < math.inf:
            raise BadRequest("wait_s: must be 0 or more")
        queue = selection.queue
        if queue in self.pushed:
            # One could not tell what was pushed from what was fetched.
            raise BadRequest(f"to: this client consumes {queue} already")
        op = selection.fetch(n, round(wait_s * 1000))
        shelf = self._shelves.get(queue) or Shelf()
        got: list[Item] = []
        reply = self._asking.begin_op(
            op, lambda reply: self._bring(shelf, got, reply), wait_s + self._asking.timeout_s
        )
        shelf.fetches += 1
        self._shelves[queue] = shelf
        self._conversation.takers[queue] = shelf.messages.append
        reply.add_done_callback(lambda _: self._done(queue, shelf))
        try:
            await asyncio.shield(reply)
        except asyncio.CancelledError:
            reply.add_done_callback(lambda reply: self._abandoned(reply, got))
            raise
        return got

    def take(self, items: Items, take: Callable[[Lent], None]) -> None:
        """Let somebody have what a queue sends; raises BadRequest if somebody else has it."""
        queue = items.queue
        if queue in self._conversation.takers:
            raise BadRequest(f"to: this client takes items from {queue} already")
        self._conversation.takers[queue] = take
        self.pushed[queue] = items

    def leave_off(self, items: Items) -> None:
        """Nobody wants more of what a queue sends."""
        if self.pushed.get(items.queue) is items:
            del self._conversation.takers[items.queue], self.pushed[items.queue]

    async def settle(self, op: Ack | Nack, generation: int) -> bool:
        """Say what became of an item; False when its connection is gone, or going."""
        if generation != self._conversation.generation:
            return False
        op.message = self._form.message_id(int(op.message))
        if self._conversation.phase is Phase.READY:
            await self._asking.ask(op)
            return True
        self.say(op)
        return False

    def hand_back(self, message: Lent, generation: int) -> None:
        """Give an item back without waiting for an answer."""
        if generation == self._conversation.generation:
            self.say(Nack(message=self._form.message_id(message.id)))

    def say(self, op: Ack | Nack | Consume) -> None:
        """Say something on this connection and on no other, if there is one."""
        self._conversation.answer(self._form.encode(op))
        self._connection.writer.flush_soon()

    @property
    def closing(self) -> bool:
        """Whether this client is being closed by its user."""
        return self._connection.closing

    def wishes(self) -> list[Standing]:
        """What is to be said on a new connection."""
        # By name first: what is pushed then is pushed to that name.
        standing: list[Standing] = [*self.registrations.values(), *self.pushed.values()]
        return [wish for wish in standing if wish.wanted]

    def leave(self) -> None:
        """This connection is about to be left: what is lent goes to others."""

    def lose(self) -> None:
        """The connection is gone: what was not acknowledged comes again."""
        for shelf in self._shelves.values():
            shelf.messages.clear()
        for registration in self.registrations.values():
            registration.lose()
        for items in self.pushed.values():
            items.lose()

    def end(self, reason: ConnectionClosed) -> None:
        """There will be no other."""
        for registration in self.registrations.values():
            registration.end()
        for items in list(self.pushed.values()):
            items.end(reason)

    def _bring(self, shelf: Shelf, got: list[Item], reply: Reply) -> None:
        generation = self._conversation.generation
        got += [Item(self, message, generation) for message in shelf.take(reply.n or 0)]

    def _done(self, queue: str, shelf: Shelf) -> None:
        """A fetch is over; what nobody waits for goes back."""
        shelf.fetches -= 1
        if not shelf.fetches:
            del self._shelves[queue], self._conversation.takers[queue]
            for message in shelf.messages:
                self.hand_back(message, self._conversation.generation)

    def _abandoned(self, reply: asyncio.Future[Reply], got: list[Item]) -> None:
        if not reply.cancelled():
            reply.exception()  # looked at, so that nobody is told that nobody did
        for item in got:
            item.hand_back()
