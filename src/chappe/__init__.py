"""Chappe: a realtime messaging platform."""

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
    "connect",
]
