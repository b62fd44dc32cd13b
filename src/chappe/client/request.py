"""A request on its way."""

from __future__ import annotations

from collections.abc import Callable

from chappe.errors import ChappeError
from chappe.wire.ops import Reply

Settle = Callable[[Reply | ChappeError], None]


class Request:
    """An op that awaits its reply; `settle` gets the reply, or the error instead of one."""

    __slots__ = ("body", "due", "id", "settle", "topic", "wanted", "written")

    def __init__(self, id: int, body: bytes, due: float, settle: Settle) -> None:
        self.id = id
        self.body = body
        self.due = due
        self.settle = settle
        self.written = False
        self.topic = ""
        self.wanted = False
