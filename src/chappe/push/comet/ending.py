"""Endings: why a session is over, what its device is told, and what is recorded."""

from __future__ import annotations

from typing import NamedTuple

from chappe.errors import CloseCode
from chappe.wire.push import PushError


class Ending(NamedTuple):
    """One of the reasons."""

    name: str
    # What is recorded.
    code: CloseCode
    # What the device is told; None: nothing.
    error: PushError | None = None
    reason: str = ""
    # Whether to wait for it to read that.
    gently: bool = True


LEFT = Ending("left", CloseCode.NORMAL)
REFUSED = Ending("refused", CloseCode.UNAUTHORIZED)
MALFORMED = Ending("malformed", CloseCode.MALFORMED, PushError.BAD_ARGUMENTS)
REPLACED = Ending(
    "replaced", CloseCode.POLICY_VIOLATION, PushError.DUPLICATE, "the client logged in elsewhere"
)
REVOKED = Ending("revoked", CloseCode.REVOKED, PushError.TOKEN_EXPIRED, "token: revoked")
EXPIRED = Ending("expired", CloseCode.TOKEN_EXPIRED, PushError.TOKEN_EXPIRED, "token: expired")
REMOVED = Ending(
    "removed", CloseCode.UNAUTHORIZED, PushError.CLIENT_NOT_FOUND, "client_id: was removed"
)
UNSERVED = Ending(
    "unserved",
    CloseCode.UNAUTHORIZED,
    PushError.CLIENT_NOT_FOUND,
    "client_id: its app is not served",
)
LATE = Ending("late", CloseCode.HELLO_TIMEOUT, PushError.BAD_ARGUMENTS, "login took too long")
SILENT = Ending("silent", CloseCode.HEARTBEAT_LOST, gently=False)
SLOW = Ending("slow", CloseCode.SLOW_CONSUMER, gently=False)
KEY_USED_UP = Ending(
    "key_used_up", CloseCode.NORMAL, PushError.SERVER, "the key is used up; connect again"
)
DRAINED = Ending(
    "drained", CloseCode.GOING_AWAY, PushError.SERVER, "this comet stops; connect again"
)
BUSY = Ending(
    "busy", CloseCode.TRY_AGAIN_LATER, PushError.SERVER, "too many commands wait for answers"
)
STORE_AWAY = Ending("store_away", CloseCode.TRY_AGAIN_LATER)
