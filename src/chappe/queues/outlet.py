"""What queues decide, carried out on a hub."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from chappe.errors import RequestError
from chappe.message import Message
from chappe.queues.consumer import Item
from chappe.queues.record import MessageType, Stored
from chappe.wire.ops import Delivery, Reply

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session


_REPLY_EXPECTED = int(MessageType.REPLY_EXPECTED)


class HubOutlet:
    """Carries out on a hub what the queues of an app decide."""

    __slots__ = ("_app", "_hub", "_tell", "recorder")

    def __init__(self, hub: Hub, app: str, tell: Callable[[str, Message], None]) -> None:
        self._hub = hub
        self.recorder = hub.recorder
        self._app = app
        self._tell = tell

    def deliver(self, session: Session, items: Sequence[Item]) -> bool:
        return self._hub.outboxes.put_promised(session, _encode(session, items))

    def fetched(self, session: Session, request: int | None, n: int) -> None:
        if request is not None:
            self._hub.answer(session, Reply(id=request, ok=True, n=n))

    def refused(self, session: Session, request: int | None, error: RequestError) -> None:
        self._hub.refuse(session, request, error)

    def dropped(self, reason: str, messages: int) -> None:
        self._hub.recorder.dropped(self._app, reason, messages)

    def died(self, queue: str, letter: Stored) -> None:
        death = letter.death
        assert death is not None, "a dead letter says why it is one"
        self._hub.recorder.died(
            self._app, queue, letter.id, death.group, death.attempts, death.reason
        )
        if not letter.sender:
            return
        told = {
            "message": str(letter.id),
            "num": letter.num,
            "reason": death.reason,
            "group": death.group,
            "attempts": death.attempts,
        }
        payload = msgspec.json.encode({"dead_letter": told})
        message = Message(self._hub.ids.next(), queue, letter.sender, self._hub.now_ms, payload)
        self._tell(self._app, message)


def _encode(session: Session, items: Sequence[Item]) -> bytes:
    """Messages as their consumer sees them: the shortest way for those of which there is nothing
    more to say."""
    group = items[0].group
    queue, name = group.queue.address, group.state.name
    encoded: list[bytes] = []
    run: list[Message] = []
    for item in items:
        record = item.record
        if (
            not name
            and item.attempts == 0
            and record.type == _REPLY_EXPECTED
            and record.key is None
            and record.headers is None
            and record.tags is None
            and record.num is None
        ):
            run.append(
                Message(
                    record.id, record.sender, queue, record.ts_ms, record.payload, record.binary
                )
            )
            continue
        if run:
            encoded.append(session.encoding.messages(run))
            run = []
        encoded.append(_encode_op(session, item, queue, name))
    if run:
        encoded.append(session.encoding.messages(run))
    return encoded[0] if len(encoded) == 1 else b"".join(encoded)


def _encode_op(session: Session, item: Item, queue: str, group: str) -> bytes:
    """A message with all that is to be said of it."""
    record = item.record
    binary = record.binary
    return session.encoding.op(
        Delivery(
            message=session.encoding.message_id(record.id),
            from_=record.sender,
            to=queue,
            ts=record.ts_ms,
            data=msgspec.UNSET if binary else msgspec.Raw(record.payload),
            data64=b64encode(record.payload).decode() if binary else None,
            key=record.key,
            headers=record.headers,
            tags=record.tags,
            num=record.num,
            type=None if record.type == MessageType.REPLY_EXPECTED else record.type,
            group=group or None,
            attempt=item.attempts + 1,
        )
    )
