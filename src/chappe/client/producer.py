"""Producers: send to a queue, and know what became of it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, NamedTuple

from chappe.client.outlet import Outlet, Post
from chappe.errors import BadRequest, Overload, RequestError

RETRIES = 16
# A queue remembers the last thousand numbers of each producer: an older one could not be
# recognised as a retry.
_WINDOW_MAX = 1_000
# It remembers as many of each producer's however many producers there are.
_SPAN_MIN = 64


class Receipt(NamedTuple):
    """A message is stored: its id, and its sender's number if it has one."""

    message: str
    num: int | None

    @property
    def text(self) -> str:
        """`7 ACK`, with the sender's number."""
        return "ACK" if self.num is None else f"{self.num} ACK"


class Producer(Outlet):
    """Sends one message after the other, each once the one before it is stored, or has failed.

        async with client.producer("queue:orders", lanes=4) as producer:
            receipt = await producer.send({"order": 7}, key="customer-3", num=7)
            print(receipt.text)                  # 7 ACK

    A send that fails for a while is repeated up to `retries` times, with growing delays, under the
    same number: it is stored once, also when an answer was lost. With a `window` so many may be
    under way at a time; a retry may then change their order. Those behind one that is repeated
    go on until it is in danger of being too old to be recognised, and then wait for it.

    The broker knows a retry by the producer's name and number. Without a name it is random, and
    unlike any other. A named producer that comes back after its process has ended must go on with
    its numbers: `seq` is the next one, and `producer.seq` what to keep for that.
    """

    def __init__(
        self,
        post: Post,
        queue: str,
        *,
        lanes: int | None = None,
        name: str | None = None,
        retries: int = RETRIES,
        window: int = 1,
        seq: int | None = None,
    ) -> None:
        super().__init__(post, queue, lanes)
        if seq is None:
            if name is not None:
                # Numbers that were used before would be taken for the same messages again.
                raise BadRequest(
                    "seq: a producer with a name says the number it goes on with; 1 for a new name"
                )
            seq = 1
        for field, value, least in (("retries", retries, 0), ("seq", seq, 0)):
            if value < least:
                raise BadRequest(f"{field}: must be {least} or more")
        if not 1 <= window <= _WINDOW_MAX:
            raise BadRequest(f"window: must be between 1 and {_WINDOW_MAX}")
        self.name = post.random_name() if name is None else name
        # The number of the next message.
        self.seq = seq
        self._retries = retries
        self._turn = asyncio.Semaphore(window)
        # The numbers from the oldest that is under way, and whether each is settled.
        self._settled: OrderedDict[int, bool] = OrderedDict()
        self._span = asyncio.Semaphore(min(_WINDOW_MAX, max(_SPAN_MIN, 2 * window)))
        self._waiting = 0

    async def send(
        self,
        data: Any,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        tags: list[str] | None = None,
        num: int | None = None,
        consumers: list[str] | None = None,
        type: int | None = None,
    ) -> Receipt:
        """Send a message and return when it is stored; see `Labels` for what may be said of it.

        Raises the last error when retries do not help, with `outcome_unknown` if the message may be
        stored all the same, and at once what repeating cannot mend. Cancelling it ends the retries.
        """
        return await self._store(
            data,
            {
                "key": key,
                "headers": headers,
                "tags": tags,
                "num": num,
                "consumers": consumers,
                "type": type,
            },
        )

    async def _store(self, data: Any, labels: dict[str, Any]) -> Receipt:
        fields, payload, binary = self._prepare(data, labels)
        if self._waiting >= self._post.waiting_max:
            raise Overload(f"{self._waiting} messages wait for their turn already")
        self._waiting += 1
        try:
            async with self._turn:
                await self._span.acquire()
                return await self._number(fields, payload, binary)
        finally:
            self._waiting -= 1

    async def _number(self, fields: dict[str, Any], payload: bytes, binary: bool) -> Receipt:
        seq = self.seq
        self.seq += 1
        fields["producer"], fields["seq"] = self.name, seq
        settled = self._settled
        settled[seq] = False
        try:
            return await self._try(fields, payload, binary)
        finally:
            settled[seq] = True
            while settled and settled[next(iter(settled))]:
                settled.popitem(last=False)
                self._span.release()

    async def _try(self, fields: dict[str, Any], payload: bytes, binary: bool) -> Receipt:
        backoff = self._post.backoff()
        left, unknown = self._retries, False
        while True:
            try:
                reply = await self._post.send(dict(fields), payload, binary)
                return Receipt(str(reply.message), reply.num)
            except RequestError as error:
                again = left > 0 and (error.temporary or error.outcome_unknown)
                # What a definite refusal says of one attempt does not hold for those before it.
                error.outcome_unknown = unknown = unknown or error.outcome_unknown
                if not again:
                    raise
            left -= 1
            await asyncio.sleep(backoff.next_s())
