"""The Python SDK: an asyncio client for a hub."""

from chappe.client.client import Client, Published
from chappe.client.connecting import Connecting, connect
from chappe.client.consumer import Consumer
from chappe.client.item import Item
from chappe.client.link import Dial, Link, Receiver
from chappe.client.notice import (
    Disconnected,
    Draining,
    Dropped,
    Missed,
    Notice,
    Reconnected,
    Renewed,
    Stopped,
    Unreadable,
    Unsubscribed,
)
from chappe.client.options import ClientOptions
from chappe.client.position import Position
from chappe.client.stream import StreamDial
from chappe.message import Message

__all__ = [
    "Client",
    "ClientOptions",
    "Connecting",
    "Consumer",
    "Dial",
    "Disconnected",
    "Draining",
    "Dropped",
    "Item",
    "Link",
    "Message",
    "Missed",
    "Notice",
    "Position",
    "Published",
    "Receiver",
    "Reconnected",
    "Renewed",
    "Stopped",
    "StreamDial",
    "Unreadable",
    "Unsubscribed",
    "connect",
]
