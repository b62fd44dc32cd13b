"""Repeats: a send that is asked for again under the same key is one send.

Whom its limits let through is written down when they were charged, its ids before anything else is
done, its answer when all is. Who asks in between, or after a kill, goes on with the same.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from chappe.errors import BadRequest
from chappe.push.state.meta import MetaState


class Plan(msgspec.Struct, frozen=True):
    """What a send is known by."""

    job: str
    note: str
    ts_ms: int
    order: str


class Answered(msgspec.Struct, frozen=True):
    """Which order was answered with what."""

    order: str
    answer: bytes


_plan_decoder = msgspec.msgpack.Decoder(Plan)
_limited_decoder = msgspec.msgpack.Decoder(list[str])
_answered_decoder = msgspec.msgpack.Decoder(Answered)
_encode = msgspec.msgpack.Encoder().encode


class Repeats:
    """Remembers sends by their keys."""

    def __init__(self, meta: MetaState, kept_s: int) -> None:
        self._meta = meta
        self._kept_ms = kept_s * 1000

    async def done(self, name: str, order: str) -> bytes | None:
        """What the send was answered, if it was; raises BadRequest if it was another one."""
        kept = await self._meta.kept(_name("done", name))
        if kept is None:
            return None
        answered = _answered_decoder.decode(kept)
        _check(answered.order, order)
        return answered.answer

    async def begin(self, name: str, plan: Plan) -> Plan:
        """The ids to go on with; raises BadRequest if they are another send's."""
        until_ms = plan.ts_ms + self._kept_ms
        kept = _plan_decoder.decode(
            await self._meta.keep(_name("send", name), _encode(plan), until_ms)
        )
        _check(kept.order, plan.order)
        return kept

    async def limited(self, name: str) -> list[str] | None:
        """Whom limits kept from a send, if it was charged already."""
        kept = await self._meta.kept(_name("limits", name))
        return None if kept is None else _limited_decoder.decode(kept)

    async def charge(self, name: str, limited: list[str], now_ms: int) -> list[str]:
        """A send was charged, and these were kept from it; of several at once, one counts."""
        record = _encode(limited)
        return _limited_decoder.decode(
            await self._meta.keep(_name("limits", name), record, now_ms + self._kept_ms)
        )

    async def end(self, name: str, order: str, now_ms: int, answer: bytes) -> None:
        """It was answered that."""
        record = _encode(Answered(order, answer))
        await self._meta.keep(_name("done", name), record, now_ms + self._kept_ms)


def _check(before: str, now: str) -> None:
    if before != now:
        raise BadRequest("idempotency_key: it was used for another send")


def _name(purpose: str, name: str) -> str:
    return f"{purpose}:{sha256(name.encode()).hexdigest()}"
