"""Letters: messages as they lie in a queue, looked at without taking them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import field

from chappe.client.form import Form, check_text, read_data, read_id
from chappe.errors import BadRequest, RemoteProtocolError, StorageError
from chappe.wire.ops import Inspect, Letters, Promote

if TYPE_CHECKING:
    from chappe.client.asking import Asking

# Messages in one answer: small beside what a frame may hold, unless they are large.
PAGE = 100


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is among the dead letters."""

    reason: str = ""
    group: str = ""
    attempts: int = 0
    at_ms: int = 0


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a queue: its place, what its sender said of it, and its data."""

    message: str
    lane: int
    seq: int
    ts_ms: int = field(name="ts", default=0)
    sender: str = field(name="from", default="")
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    num: int | None = None
    type: int | None = None
    data: Any = None
    data64: str | None = None
    # When a delayed one is to be delivered.
    due_ms: int | None = None
    death: Death | None = None


class _Page(msgspec.Struct):
    messages: list[Letter]
    next: int | None = None
    error: str | None = None


class Inspection:
    """Looks into queues, and deals with their dead letters; for administrators."""

    def __init__(self, asking: Asking, form: Form) -> None:
        self._asking = asking
        self._form = form

    async def figures(self, queue: str) -> dict[str, Any]:
        """A queue's figures."""
        reply = await self._asking.ask(Inspect(to=check_text(queue)))
        data = read_data(reply)
        if not isinstance(data, dict):
            raise RemoteProtocolError("inspect: figures are an object")
        return data

    async def browse(
        self,
        queue: str,
        *,
        lane: int | None,
        after: int | None,
        reverse: bool,
        dead: bool,
        delayed: bool,
        page: int,
    ) -> AsyncIterator[Letter]:
        """A queue's messages, page by page; raises StorageError for what cannot be read."""
        if page < 1:
            raise BadRequest("page: must be 1 or more")
        op = Inspect(
            to=check_text(queue), n=page, reverse=reverse, dead=dead, delayed=delayed, lane=lane
        )
        lanes = [lane]
        if lane is None and not (dead or delayed):
            if after is not None:
                raise BadRequest("after: is a place in a lane; name the lane")
            lanes = [one["lane"] for one in (await self.figures(queue))["lanes"]]
        for each in lanes:
            op.lane, op.after = each, after
            async for letter in self._pages(op):
                yield letter

    async def _pages(self, op: Inspect) -> AsyncIterator[Letter]:
        while True:
            found = _read_page(read_data(await self._asking.ask(op)))
            for letter in found.messages:
                yield letter
            if found.next is None or found.next == op.after:
                return
            op.after = found.next

    async def deal(self, queue: str, do: str, messages: list[str] | None) -> int:
        """Replay or purge dead letters, these or all; returns how many."""
        ids = None if messages is None else [read_id(self._form, one) for one in messages]
        reply = await self._asking.ask(Letters(to=check_text(queue), do=do, messages=ids))
        return reply.n or 0

    async def promote(self, broker: str, force: bool) -> None:
        """Make the node one is connected to the master of a broker."""
        await self._asking.ask(Promote(broker=check_text(broker), force=force))


def _read_page(data: Any) -> _Page:
    try:
        page = msgspec.convert(data, _Page)
        page.messages = [_read_bytes(letter) for letter in page.messages]
    except (msgspec.ValidationError, ValueError) as error:
        raise RemoteProtocolError(f"inspect: {error}") from None
    if page.error is not None:
        raise StorageError(page.error)
    return page


def _read_bytes(letter: Letter) -> Letter:
    if letter.data64 is None:
        return letter
    payload = b64decode(letter.data64, validate=True)
    return msgspec.structs.replace(letter, data=payload, data64=None)
