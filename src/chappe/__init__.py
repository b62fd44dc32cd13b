"""Chappe: a realtime messaging platform."""

from chappe.client import Client, ClientOptions, Published, connect
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
    "BadRequest",
    "ChappeError",
    "Client",
    "ClientOptions",
    "ConnectionClosed",
    "Forbidden",
    "Hub",
    "Message",
    "Overload",
    "Published",
    "RequestError",
    "Unreachable",
    "connect",
]
