"""An outlet: what all producers have in common."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from chappe.backoff import Backoff
from chappe.client.deadletter import Obituaries, OnDead
from chappe.client.form import Form, check_text, encode_data, read_id
from chappe.errors import BadRequest, Forbidden, Unreachable
from chappe.wire.ops import Cancel, Create, Int64, Reply, Send

if TYPE_CHECKING:
    from random import Random

    from chappe.client.asking import Asking
    from chappe.client.outgoing import Outgoing
    from chappe.client.writer import Writer

# Before the first retry up to so long, doubling: a node is back, or another is master, in seconds.
_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0


class Labels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a producer may say of a message beside its data.

    Messages with the same key stay in order; `tags` and `headers` are what groups select by; `num`
    is the user's own number; `consumers` are the only ones who get it; `type` is Q13's.
    """

    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    num: Int64 | None = None
    consumers: list[str] | None = None
    type: Int64 | None = None
    delay_ms: Int64 | None = None


class Post:
    """The way from producers to the hub, one for each client."""

    def __init__(
        self,
        asking: Asking,
        outgoing: Outgoing,
        writer: Writer,
        obituaries: Obituaries,
        form: Form,
        rng: Random,
        waiting_max: int,
    ) -> None:
        self._asking = asking
        self._outgoing = outgoing
        self._writer = writer
        self._form = form
        self._rng = rng
        self.obituaries = obituaries
        self.waiting_max = waiting_max

    async def request(self, queue: str, lanes: int | None) -> tuple[int, ...]:
        """Request a queue; returns its lanes."""
        reply = await self._asking.ask(Create(to=queue, lanes=lanes))
        return tuple(reply.lanes or ())

    async def send(self, fields: dict[str, Any], payload: bytes, binary: bool) -> Reply:
        """Send a message and wait for the answer."""
        return await self._asking.ask_carrying(Send, fields, payload, binary)

    async def send_one_way(self, fields: dict[str, Any], payload: bytes, binary: bool) -> None:
        """Send a message without an answer, once there is room for it."""
        await self._writer.drained()
        self._outgoing.say_carrying(Send, fields, payload, binary)
        self._writer.flush_soon()

    async def cancel(self, message: str, queue: str) -> bool:
        """Take back a delayed message; False if that is too late."""
        op = Cancel(message=read_id(self._form, message), to=check_text(queue))
        try:
            await self._asking.ask(op)
        except Unreachable:
            return False
        return True

    def backoff(self) -> Backoff:
        """How long to wait before each retry."""
        return Backoff(_RETRY_FIRST_S, _RETRY_MAX_S, self._rng)

    def random_name(self) -> str:
        """A name that no other producer has."""
        return f"{self._rng.getrandbits(96):024x}"


class Outlet:
    """A queue that was requested, to be sent to until it is closed.

    Use it in `async with`, or `open` and `close` it.
    """

    def __init__(self, post: Post, queue: str, lanes: int | None) -> None:
        self._post = post
        self._lanes_wanted = lanes
        self._callbacks: list[OnDead] = []
        self._opened = False
        self.queue = check_text(queue)
        if not queue.startswith("queue:"):
            raise BadRequest(f"queue: {queue!r} is no queue's address, such as queue:jobs")
        # The queue's lanes, as the broker numbers them.
        self.lanes: tuple[int, ...] = ()

    async def open(self) -> Self:
        """Request the queue: it is made if it is not there, and has as many lanes as are wanted.

        Who may not make queues uses one that was made by others, and cannot ask for lanes. Raises
        as every request does.
        """
        try:
            self.lanes = await self._post.request(self.queue, self._lanes_wanted)
        except Forbidden:
            if self._lanes_wanted is not None:
                raise
        self._opened = True
        return self

    async def close(self) -> None:
        """Send no more, and hear no more of dead letters."""
        self._opened = False
        while self._callbacks:
            self._post.obituaries.remove(self.queue, self._callbacks.pop())

    def on_dead(self, callback: OnDead) -> None:
        """Call a function with each dead letter of this queue that this client had sent.

        It is told of them while it is connected; the letters stay in the queue for all that, see
        `Client.dead_letters`. They do not come as messages as long as somebody hears of them here.
        """
        self._post.obituaries.add(self.queue, callback)
        self._callbacks.append(callback)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _prepare(self, data: Any, labels: dict[str, Any]) -> tuple[dict[str, Any], bytes, bool]:
        """The fields of a send, its payload and whether that is binary; raises BadRequest."""
        if not self._opened:
            raise BadRequest(f"to: {self.queue} was not requested; open the producer first")
        try:
            checked = msgspec.convert(labels, Labels)
        except msgspec.ValidationError as error:
            raise BadRequest(f"send: {error}") from None
        # As they are after that: a list that its owner changes later is not sent differently.
        fields = {"to": self.queue, **msgspec.to_builtins(checked)}
        return fields, *encode_data(data)
