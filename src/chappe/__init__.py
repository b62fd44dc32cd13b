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
    ChappeError,
    ConnectionClosed,
    Forbidden,
    Overload,
    RequestError,
    Unreachable,
)
from chappe.message import Message

if TYPE_CHECKING:
    from chappe import blocking
    from chappe.node.embedded import Hub

__all__ = [
    "Attendance",
    "BadRequest",
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
]


def __getattr__(name: str) -> object:
    """A hub and the blocking face, when first asked for: a client does without either, and a hub
    takes longer to import than all the rest."""
    if name == "Hub":
        found: object = import_module("chappe.node.embedded").Hub
    elif name == "blocking":
        found = import_module("chappe.blocking")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
