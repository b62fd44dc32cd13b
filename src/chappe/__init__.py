"""Chappe: a realtime messaging platform."""

from importlib import import_module
from typing import TYPE_CHECKING

from chappe.client import (
    Attendance,
    Client,
    ClientOptions,
    Consumer,
    DeadLetter,
    DelayedProducer,
    Item,
    Letter,
    OneWayProducer,
    Producer,
    Published,
    Receipt,
    connect,
)
from chappe.errors import (
    BadRequest,
    BusAway,
    ChappeError,
    ConnectionClosed,
    Forbidden,
    Overload,
    RequestError,
    Unreachable,
)
from chappe.message import Message

if TYPE_CHECKING:
    from chappe import blocking, device
    from chappe.keys.options import KeysOptions
    from chappe.node.embedded import Hub

__all__ = [
    "Attendance",
    "BadRequest",
    "BusAway",
    "ChappeError",
    "Client",
    "ClientOptions",
    "ConnectionClosed",
    "Consumer",
    "DeadLetter",
    "DelayedProducer",
    "Forbidden",
    "Hub",
    "Item",
    "KeysOptions",
    "Letter",
    "Message",
    "OneWayProducer",
    "Overload",
    "Producer",
    "Published",
    "Receipt",
    "RequestError",
    "Unreachable",
    "blocking",
    "connect",
    "device",
]


_LATER = {"Hub": "chappe.node.embedded", "KeysOptions": "chappe.keys.options"}


def __getattr__(name: str) -> object:
    """A hub, the blocking face and devices, when first asked for: a client does without them, and a
    hub takes longer to import than all the rest."""
    if name in _LATER:
        found: object = getattr(import_module(_LATER[name]), name)
    elif name in ("blocking", "device"):
        found = import_module(f"chappe.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
