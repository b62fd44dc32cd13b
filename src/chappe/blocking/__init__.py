"""The blocking face of the client: the same methods without `await`.

    with chappe.blocking.connect("ws://127.0.0.1:7400/ws", as_="user:alice") as alice:
        alice.send("user:bob", "hello")
        for message in alice:
            print(message.sender, message.data)

One background thread with an event loop of its own serves a client, which any number of threads may
use at once. `on_notice` and a token function are called in that thread.
"""

from chappe.blocking.client import Client, connect
from chappe.blocking.item import Consumer, Item

__all__ = ["Client", "Consumer", "Item", "connect"]
