"""Handover: the messages of a queue that lives on another node now are taken there (H17).

A queue moves when its node leaves, or when others have lost sight of it and one of them goes on
with it, empty. The node that held it learns of that from the queue's record, perhaps before it is
linked to the one that the record names: until then the messages wait here. They are what the queue
held, so its bounds are theirs. What is on a link that breaks is lost, as it would be with its node.
"""

from __future__ import annotations

from collections.abc import Callable

from chappe.cluster.homes import Homes
from chappe.cluster.peer import Peer
from chappe.endpoints.application import Application
from chappe.errors import RemoteProtocolError, StorageError
from chappe.hub.hub import Hub
from chappe.queues.record import Stored, decode_records, encode_record
from chappe.wire.node import Handed

# In one op: so many messages, and no more bytes than that, unless one message is larger.
_HANDED_MESSAGES = 100
_HANDED_BYTES = 256 * 1024

Key = tuple[str, str]
# A queue's address, and a message of it.
Held = tuple[str, Stored]


class Handover:
    """Takes what queues held to the nodes they moved to."""

    def __init__(
        self,
        hub: Hub,
        application: Application,
        homes: Homes,
        name: str,
        find: Callable[[str], Peer | None],
    ) -> None:
        self._hub = hub
        self._queues = application.queues
        self._definitions = application.definitions
        self._homes = homes
        self._name = name
        self._find = find
        self._waiting: dict[Key, list[Held]] = {}

    @property
    def waiting(self) -> int:
        """How many messages wait for their queue's node to be linked."""
        return sum(map(len, self._waiting.values()))

    def give(self, app: str, messages: list[Held]) -> None:
        """Take messages of a queue to where it lives, now or as soon as that node is linked."""
        for held in messages:
            self._waiting.setdefault((app, held[0]), []).append(held)
        self.flush()

    def take(self, peer: Peer, op: Handed) -> None:
        """A peer held messages of queues that live here, or did when it heard of them last."""
        try:
            held = [(queue, _message(record)) for queue, record in op.messages]
        except StorageError as error:
            raise RemoteProtocolError(str(error)) from None
        self.give(op.app, held)

    def flush(self) -> None:
        """Hand over what can be: a record has changed, or a node has come."""
        for key in list(self._waiting):
            owner = self._definitions.owner_of(*key)
            peer = None if owner is None else self._find(owner)
            if owner == self._name:
                self._drop(key[0], self._queues.take_on(key[0], self._waiting.pop(key)))
            elif owner is None:
                self._drop(key[0], len(self._waiting.pop(key)))
            elif peer is not None:
                self._hand(peer, key[0], self._waiting.pop(key))

    def leave(self) -> None:
        """This node goes: let each of its queues live on another, if there is one."""
        for app, queue in self._queues.addresses():
            peer = self._homes.next_home(app, queue)
            if peer is not None:
                self._definitions.move(app, queue, peer.name)

    def _hand(self, peer: Peer, app: str, messages: list[Held]) -> None:
        some: list[tuple[str, bytes]] = []
        size = 0
        for queue, message in messages:
            some.append((queue, encode_record(message)))
            size += len(some[-1][1]) + len(queue)
            if len(some) >= _HANDED_MESSAGES or size >= _HANDED_BYTES:
                peer.tell(Handed(app, some), size)
                some, size = [], 0
        if some:
            peer.tell(Handed(app, some), size)

    def _drop(self, app: str, count: int) -> None:
        if count:
            self._hub.recorder.dropped(app, "queue_moved", count)


def _message(record: bytes) -> Stored:
    """A message that a peer held; raises StorageError."""
    (message,) = decode_records(record, 1)
    if not isinstance(message, Stored):
        raise StorageError(f"a {type(message).__name__} is no message")
    return message
