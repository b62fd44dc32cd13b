"""The blocking face of the client: the same methods without `await`.

    with chappe.blocking.connect("ws://127.0.0.1:7400/ws", as_="user:alice") as alice:
        alice.send("user:bob", "hello")
        for message in alice:
            print(message.sender, message.data)

One background thread with an event loop of its own serves a client, which any number of threads may
use at once. `on_notice`, `on_dead` and a token function are called in that thread.

Each method is written out with all its parameters, as in `chappe.client`: an editor and `help` show
what there is, which they could not of methods that are made from the others. A test holds the two
to each other.
"""

from chappe.blocking.client import Client, connect
from chappe.blocking.consumer import Consumer
from chappe.blocking.item import Item
from chappe.blocking.items import Items
from chappe.blocking.producer import DelayedProducer, OneWayProducer, Producer

__all__ = [
    "Client",
    "Consumer",
    "DelayedProducer",
    "Item",
    "Items",
    "OneWayProducer",
    "Producer",
    "connect",
]
