"""The names under which Redis keeps a queue.

All of one queue's have the same {tag}, so that a Redis Cluster keeps them on one server and a
script may change them together.

    p:{app/jobs}:meta          hash: app, address, options, lanes, key_lanes, epoch, commit
    p:{app/jobs}:lane:1        stream: message seq 7 has the id 7-0; `r` is its record
    p:{app/jobs}:lane:0        stream: dead letters
    p:{app/jobs}:lane:-1       stream: delayed messages, with `due` and `id`
    p:{app/jobs}:groups        hash: group -> what it wants, as JSON
    p:{app/jobs}:consumers:G   set: the names registered in a group
    p:{app/jobs}:bytes         hash: total -> bytes ever stored; g:G -> those that do not wait for
                               a group; free, floors -> what waits for nobody while there is none
    p:{app/jobs}:producers     hash: producer -> a number, the higher the later it was heard of
    p:{app/jobs}:producer:P    sorted set: its last numbers, each with the id it was given

A group is a consumer group of each lane: its last delivered id is how far it has begun, its pending
list what is open, the delivery counts the attempts.
"""

from __future__ import annotations

from functools import cached_property

from chappe.queues.storage import Key


class Keys:
    """The names of one queue."""

    def __init__(self, prefix: str, key: Key) -> None:
        app, address = key
        # A closing brace in the name ends the tag early, for all of the queue's names alike.
        self.base = f"{prefix}:{{{app}/{address.removeprefix('queue:')}}}"
        self._lanes: dict[int, str] = {}

    def lane(self, lane: int) -> str:
        """The stream of a lane."""
        name = self._lanes.get(lane)
        if name is None:
            name = self._lanes[lane] = f"{self.base}:lane:{lane}"
        return name

    def consumers(self, group: str) -> str:
        """The names registered in a group."""
        return f"{self.base}:consumers:{group}"

    def producer(self, name: str) -> str:
        """The last numbers of a producer."""
        return f"{self.base}:producer:{name}"

    @cached_property
    def meta(self) -> str:
        """What the queue is, and who may write."""
        return f"{self.base}:meta"

    @cached_property
    def groups(self) -> str:
        """What each group wants."""
        return f"{self.base}:groups"

    @cached_property
    def bytes(self) -> str:
        """How many bytes wait."""
        return f"{self.base}:bytes"

    @cached_property
    def producers(self) -> str:
        """When each producer was last heard of."""
        return f"{self.base}:producers"


def entry_id(seq: int) -> str:
    """The id of a message in its stream."""
    return f"{seq}-0"


def seq_of(entry: bytes) -> int:
    """The seq of the message with that id."""
    return int(entry.partition(b"-")[0])
