"""What may be said to a queue: checked before anything is done, each refusal naming its field."""

from __future__ import annotations

from chappe.errors import BadRequest
from chappe.queues.options import NAME, QueueLimits
from chappe.wire.ops import Send

_DIGITS_MAX = 19
_KEY_BYTES_MAX = 1_024
_PRODUCER_MAX = 128
_NOTHING = (None,) * 7


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Refuse a number that is too small or too large; raises BadRequest."""
    if not least <= value <= most:
        raise BadRequest(f"{name}: must be between {least} and {most}")


def check_name(name: str, field: str = "name") -> None:
    """Refuse what is no name of a consumer; raises BadRequest."""
    if not NAME.fullmatch(name):
        raise BadRequest(f"{field}: letters, digits and _.:@/-, 128 at most")


def check_group(name: str) -> None:
    """Refuse what is no name of a group; the empty one is everybody's; raises BadRequest."""
    if name:
        check_name(name, "group")


def number_of(message: str | int) -> int:
    """The id of a queue's message as a number; raises BadRequest."""
    if isinstance(message, int):
        return message
    # Prefixed ids are not a queue's, and int() would read more than digits.
    if not (message.isascii() and message.isdigit() and len(message) <= _DIGITS_MAX):
        raise BadRequest("message: not the id of a queue's message")
    return int(message)


def check_message(op: Send, limits: QueueLimits) -> None:
    """Refuse what a message to a queue must not say of itself; raises BadRequest."""
    said = (op.key, op.headers, op.tags, op.consumers, op.delay_ms, op.producer, op.seq)
    if said == _NOTHING:
        return
    if op.key is not None and not 0 < len(op.key.encode()) <= _KEY_BYTES_MAX:
        raise BadRequest(f"key: must have between 1 and {_KEY_BYTES_MAX} bytes")
    check_filter(op.tags, op.headers, limits)
    if op.consumers is not None:
        if not 1 <= len(op.consumers) <= limits.tags_max:
            raise BadRequest(f"consumers: name between 1 and {limits.tags_max}, or leave it out")
        for name in op.consumers:
            check_name(name, "consumers")
    if op.delay_ms is not None:
        check_range("delay_ms", op.delay_ms, 0, limits.delay_ms_max)
    _check_producer(op)


def check_filter(
    tags: list[str] | None, headers: dict[str, str] | None, limits: QueueLimits
) -> None:
    """Refuse tags and headers that no message has; raises BadRequest."""
    if headers is not None:
        _check_headers(headers, limits)
    if tags is not None:
        if len(tags) > limits.tags_max:
            raise BadRequest(f"tags: {limits.tags_max} at most")
        for tag in tags:
            check_name(tag, "tags")


def _check_producer(op: Send) -> None:
    if (op.producer is None) != (op.seq is None):
        raise BadRequest("producer: goes with seq, and seq with producer")
    if op.producer is not None and not 0 < len(op.producer) <= _PRODUCER_MAX:
        raise BadRequest(f"producer: must have between 1 and {_PRODUCER_MAX} characters")
    if op.seq is not None and op.seq < 0:
        raise BadRequest("seq: must not be below 0")


def _check_headers(headers: dict[str, str], limits: QueueLimits) -> None:
    if len(headers) > limits.headers_max:
        raise BadRequest(f"headers: {limits.headers_max} at most")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    if size > limits.headers_bytes_max:
        raise BadRequest(f"headers: {size} bytes, {limits.headers_bytes_max} are allowed")
