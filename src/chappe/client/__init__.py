"""The Python SDK: an asyncio client for a hub."""

from chappe.client.client import Client, Published
from chappe.client.connecting import Connecting, connect
from chappe.client.consumer import Consumer
from chappe.client.deadletter import DeadLetter
from chappe.client.delayed import DelayedProducer
from chappe.client.item import Item
from chappe.client.items import Items
from chappe.client.letter import Death, Letter
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
from chappe.client.oneway import OneWayProducer
from chappe.client.options import ClientOptions
from chappe.client.position import Position
from chappe.client.producer import Producer, Receipt
from chappe.client.rooming import Attendance
from chappe.client.stream import StreamDial
from chappe.message import Message

__all__ = [
    "Attendance",
    "Client",
    "ClientOptions",
    "Connecting",
    "Consumer",
    "DeadLetter",
    "Death",
    "DelayedProducer",
    "Dial",
    "Disconnected",
    "Draining",
    "Dropped",
    "Item",
    "Items",
    "Letter",
    "Link",
    "Message",
    "Missed",
    "Notice",
    "OneWayProducer",
    "Position",
    "Producer",
    "Published",
    "Receipt",
    "Receiver",
    "Reconnected",
    "Renewed",
    "Stopped",
    "StreamDial",
    "Unreadable",
    "Unsubscribed",
    "connect",
]
