"""Repeats: a send that is asked for again under the same key is one send.

Its ids are written down before anything else, its answer when all is done. Who asks in between, or
after a kill, goes on under the same ids.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from chappe.errors import BadRequest
from chappe.push.state.meta import MetaState


class Plan(msgspec.Struct, frozen=True):
    """What a send is known by. `again`: others may have begun with it."""

    job: str
    note: str
    ts_ms: int
    order: str
    again: bool = False


class Answered(msgspec.Struct, frozen=True):
    """Which order was answered with what."""

    order: str
    answer: bytes


_plan_decoder = msgspec.msgpack.Decoder(Plan)
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
        return kept if kept == plan else msgspec.structs.replace(kept, again=True)

    async def end(self, name: str, plan: Plan, answer: bytes) -> None:
        """It was answered that."""
        until_ms = plan.ts_ms + self._kept_ms
        record = _encode(Answered(plan.order, answer))
        await self._meta.keep(_name("done", name), record, until_ms)


def _check(before: str, now: str) -> None:
    if before != now:
        raise BadRequest("idempotency_key: it was used for another send")


def _name(purpose: str, name: str) -> str:
    return f"{purpose}:{sha256(name.encode()).hexdigest()}"
