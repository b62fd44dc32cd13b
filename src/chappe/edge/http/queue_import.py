"""An import: lines in, ops out, in their order and several under way (Q12)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from chappe.edge.http.bodies import Answer, read_body
from chappe.edge.http.queue_bodies import QueueBody
from chappe.errors import BadRequest, Overload, RequestError, request_error
from chappe.wire.ops import ClientOp, Consume, Create, Int64, Register, Send

# Sends under way at once, and their bytes: one flush of the log carries them all.
_WINDOW = 256
_WINDOW_BYTES = 1024 * 1024
_OPTIONS = tuple(name for name in QueueBody.__struct_fields__ if name not in ("as_", "app"))


class _Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A misspelt field is refused, not passed over."""


class QueueLine(_Strict):
    """How a queue was made."""

    options: dict[str, Any]
    version: Annotated[int, Meta(ge=1, le=1)] = 1
    queue: str = ""
    exported_ms: int = 0


class GroupLine(_Strict):
    """Who takes from it; what is a figure only is not looked at."""

    group: str
    consumers: list[str] = []
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    expected: bool = False
    lag: int = 0
    bytes: int = 0
    in_hand: int = 0
    waiting: int = 0


class MessageLine(_Strict):
    """A message; its id, its place, its sender and its time are those of the import."""

    data: Raw | UnsetType = UNSET
    data64: str | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    num: Int64 | None = None
    type: Int64 | None = None
    consumers: list[str] | None = None
    due_ms: Int64 | None = None
    message: str | None = None
    lane: int | None = None
    seq: int | None = None
    ts: int | None = None
    producer: str | None = None
    producer_seq: int | None = None
    from_: str = field(name="from", default="")
    death: dict[str, Any] | None = None


class Line(_Strict):
    """One of these."""

    queue: QueueLine | UnsetType = UNSET
    group: GroupLine | UnsetType = UNSET
    message: MessageLine | UnsetType = UNSET
    delayed: MessageLine | UnsetType = UNSET
    dead: MessageLine | UnsetType = UNSET
    end: dict[str, Any] | UnsetType = UNSET


_KINDS = Line.__struct_fields__
_line_decoder = msgspec.json.Decoder(Line)
_options_decoder = msgspec.json.Decoder(QueueBody)


class Import:
    """Does what lines say; an error names the line it is about, and all before it went in."""

    def __init__(
        self,
        ask: Callable[[ClientOp], Awaitable[Answer]],
        to: str,
        now_ms: Callable[[], int],
        *,
        line: int = 1,
        producer: str | None = None,
        dead: bool = False,
    ) -> None:
        self._ask = ask
        self._to = to
        self._now_ms = now_ms
        self._number = line - 1
        self._producer = producer
        self._dead = dead
        self._window: list[tuple[int, str, Send]] = []
        self._window_bytes = 0
        # What went in, and the last line up to which all did.
        self.counts = {"done": line - 1, "groups": 0, "messages": 0, "delayed": 0, "dead": 0}
        self.counts["skipped"] = 0

    async def take(self, text: bytes) -> None:
        """Do what the next line says; raises RequestError naming the line."""
        self._number += 1
        if text and not text.isspace():
            try:
                kind, value = _read(text)
            except BadRequest as error:
                # A line that cannot be read does not undo those before it.
                await self._flush()
                reason = error.reason.removeprefix("body: ")
                raise BadRequest(f"line {self._number}: {reason}") from None
            self._window_bytes += len(text)
            await self._follow(kind, value)
        if not self._window:
            self.counts["done"] = self._number

    async def finish(self) -> None:
        """Wait until all that was sent is stored; raises RequestError naming the line."""
        await self._flush()
        self.counts["done"] = self._number

    async def _flush(self) -> None:
        window, self._window = self._window, []
        self._window_bytes = 0
        # Each op is said when its task begins, and tasks begin in this order.
        answers = await asyncio.gather(*(self._answer(op) for _, _, op in window))
        failed: tuple[int, Answer] | None = None
        for (number, kind, _), answer in zip(window, answers, strict=True):
            if answer.ok:
                self.counts[kind] += 1
            elif failed is None:
                failed = number, answer
            if failed is None:
                self.counts["done"] = number
        if failed is not None:
            raise _refused(*failed)

    async def _answer(self, op: ClientOp) -> Answer:
        try:
            return await self._ask(op)
        except Overload as error:
            unknown = "unknown" if error.outcome_unknown else None
            return Answer(False, error.code, error.reason, unknown)

    async def _follow(self, kind: str, value: Any) -> None:
        if kind in ("message", "delayed") or (kind == "dead" and self._dead):
            counted = "messages" if kind == "message" else kind
            self._window.append((self._number, counted, self._send(value)))
            if len(self._window) >= _WINDOW or self._window_bytes >= _WINDOW_BYTES:
                await self._flush()
        elif kind == "dead":
            self.counts["skipped"] += 1
        elif kind == "queue":
            await self._do(Create(to=self._to, **_options(value)))
        elif kind == "group":
            await self._register(value)

    async def _register(self, group: GroupLine) -> None:
        if group.expected:
            # It comes into being again with the messages that name it.
            return
        ops: list[ClientOp] = [
            Register(
                to=self._to,
                name=name,
                group=group.group,
                tags=group.tags,
                headers=group.headers,
            )
            for name in group.consumers
        ]
        # A group without names is made by who takes from it; this one takes nothing.
        nobody = Consume(
            to=self._to, credit=0, group=group.group, tags=group.tags, headers=group.headers
        )
        for op in ops or [nobody]:
            await self._do(op)
        self.counts["groups"] += 1

    async def _do(self, op: ClientOp) -> None:
        await self._flush()
        answer = await self._answer(op)
        if not answer.ok:
            raise _refused(self._number, answer)

    def _send(self, message: MessageLine) -> Send:
        delay_ms = None if message.due_ms is None else message.due_ms - self._now_ms()
        return Send(
            to=self._to,
            data=message.data,
            data64=message.data64,
            key=message.key,
            headers=message.headers,
            tags=message.tags,
            num=message.num,
            type=message.type,
            consumers=message.consumers,
            delay_ms=delay_ms if delay_ms is not None and delay_ms > 0 else None,
            producer=self._producer,
            seq=None if self._producer is None else self._number,
        )


def _read(text: bytes) -> tuple[str, Any]:
    line = read_body(_line_decoder, text)
    given = [kind for kind in _KINDS if getattr(line, kind) is not UNSET]
    if len(given) != 1:
        raise BadRequest(f"one of {', '.join(_KINDS)} is meant, here are {len(given)}")
    value = getattr(line, given[0])
    if isinstance(value, QueueLine):
        _options(value)
    elif isinstance(value, MessageLine) and value.data is not UNSET and value.data64 is not None:
        raise BadRequest("data: not together with data64")
    return given[0], value


def _options(line: QueueLine) -> dict[str, Any]:
    for name in line.options:
        if name not in _OPTIONS:
            raise BadRequest(f"options: a queue has no {name!r}")
    body = read_body(_options_decoder, msgspec.json.encode(line.options))
    return {name: getattr(body, name) for name in _OPTIONS}


def _refused(number: int, answer: Answer) -> RequestError:
    unknown = answer.outcome == "unknown"
    reason = f"line {number}: {answer.reason}"
    return request_error(answer.error or "", reason, outcome_unknown=unknown)
