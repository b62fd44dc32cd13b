"""The Python SDK: an asyncio client for a hub."""

from chappe.client.client import Client, Published
from chappe.client.connecting import Connecting, connect
from chappe.client.link import Dial, Link, Receiver
from chappe.client.notice import (
    Disconnected,
    Draining,
    Dropped,
    Notice,
    Reconnected,
    Unreadable,
    Unsubscribed,
)
from chappe.client.options import ClientOptions
from chappe.client.stream import StreamDial
from chappe.message import Message

__all__ = [
    "Client",
    "ClientOptions",
    "Connecting",
    "Dial",
    "Disconnected",
    "Draining",
    "Dropped",
    "Link",
    "Message",
    "Notice",
    "Published",
    "Receiver",
    "Reconnected",
    "StreamDial",
    "Unreadable",
    "Unsubscribed",
    "connect",
]
