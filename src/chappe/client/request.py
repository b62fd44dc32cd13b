"""A request on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.errors import ChappeError, RequestError, request_error
from chappe.wire.ops import Reply

Settle = Callable[[Reply | ChappeError], None]
# Told of a reply that says ok, before anything that came after it is looked at; what it returns is
# told to the client's user.
Answered = Callable[[Reply], Any]


class Request:
    """An op that awaits its reply; `settle` gets the reply, or the error instead of one."""

    __slots__ = ("answered", "body", "due", "id", "settle", "written")

    def __init__(
        self, id: int, body: bytes, due: float | None, settle: Settle, answered: Answered | None
    ) -> None:
        self.id = id
        self.body = body
        self.due = due
        self.settle = settle
        self.answered = answered
        self.written = False


def error_of(reply: Reply) -> RequestError:
    """The typed error in a reply that says no."""
    error = request_error(
        reply.error or "",
        reply.reason or "the hub gave no reason",
        outcome_unknown=reply.outcome == "unknown",
    )
    error.verdicts = reply.verdicts
    return error
