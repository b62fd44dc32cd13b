"""What a conversation has come to, and what it tells whoever carries it."""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from chappe.client.notice import Notice
from chappe.client.standing import Standing
from chappe.errors import RequestError
from chappe.message import Message


class Phase(Enum):
    """How far a conversation has come."""

    OFFLINE = auto()
    GREETING = auto()
    RESTORING = auto()
    READY = auto()
    LEAVING = auto()
    OVER = auto()


class Refused(msgspec.Struct, frozen=True):
    """The hub did not admit this client."""

    error: RequestError


class Closing(msgspec.Struct, frozen=True):
    """The hub said why it closes the connection."""

    code: int
    reason: str


class Deferred(msgspec.Struct, frozen=True):
    """The hub cannot do now what is wished: say it again after a while."""

    wish: Standing


Event = Message | Refused | Closing | Deferred | Notice
