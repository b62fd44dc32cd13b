"""A message as a queue lends it: with what its sender said of it, and how often it came."""

from __future__ import annotations

from typing import Any

from chappe.client.form import read_message
from chappe.message import DELIVERY, Message


class Lent(Message, gc=False, frozen=True, tag_field="op", tag=DELIVERY):
    """A queue's message. `attempt` counts the times it was handed out in its group, from 1."""

    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    num: int | None = None
    type: int | None = None
    group: str | None = None
    attempt: int = 1


def read_lent(op: Any) -> Lent:
    """The queue's message in a delivery of either form; raises RemoteProtocolError."""
    message = read_message(op)
    return Lent(
        message.id,
        message.sender,
        message.to,
        message.ts_ms,
        message.payload,
        message.binary,
        message.offset,
        op.key,
        op.headers,
        op.tags,
        op.num,
        op.type,
        op.group,
        op.attempt,
    )
