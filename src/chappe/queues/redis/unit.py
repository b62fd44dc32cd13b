"""What Redis is to do for one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from chappe.queues.redis.keys import Keys, entry_id

# Lua passes so many arguments to a command and not many more.
ARGUMENTS_MAX = 1_000

Argument = str | msgspec.Raw


def raw(body: bytes) -> msgspec.Raw:
    """Bytes in the way of an older msgpack: Redis's does not know their newer kind."""
    return msgspec.Raw(b"\xdb" + len(body).to_bytes(4, "big") + body)


class Unit:
    """Commands that are carried out together, or not at all."""

    __slots__ = (
        "_home",
        "_keys",
        "_marked",
        "_opened",
        "_producers",
        "commands",
        "heads",
        "names",
        "removes",
        "size",
    )

    def __init__(self, keys: Keys, home: str) -> None:
        self._keys = keys
        self._home = home
        self.commands: list[tuple[Argument, ...]] = []
        # The streams that grow, and the last id they have before.
        self.heads: dict[str, str] = {}
        # All keys that are written.
        self.names: set[str] = set()
        self.size = 0
        # Whether the queue is no more after it.
        self.removes = False
        # What groups have begun with or passed and is not yet said: one command tells many.
        self._opened: dict[tuple[int, str, int], list[int]] = {}
        self._marked: dict[tuple[int, str], int] = {}
        # Likewise what producers have sent: scores and members.
        self._producers: dict[str, list[str]] = {}

    def add(self, *command: Argument, key: int = 1) -> None:
        """Let there be a command more; `key` is where the name stands that it is about."""
        self.commands.append(command)
        self.names.add(command[key])  # type: ignore[arg-type]
        self.size += 64

    def grows(self, lane: int, head: int) -> None:
        """A lane gets messages after its last."""
        self.heads.setdefault(self._keys.lane(lane), entry_id(head))

    def open(self, lane: int, group: str, seqs: Iterable[int], *, attempts: int = 1) -> None:
        """A group has begun with messages, and with all up to the last of them."""
        self._marked.pop((lane, group), None)
        self._opened.setdefault((lane, group, attempts), []).extend(seqs)

    def mark(self, lane: int, group: str, seq: int) -> None:
        """A group has passed all up to a message."""
        self._marked[lane, group] = seq

    def settle(self) -> None:
        """Say what groups have begun with or passed."""
        opened, self._opened = self._opened, {}
        for (lane, group, attempts), seqs in opened.items():
            key = self._keys.lane(lane)
            for part in _parts(seqs):
                self.add(
                    *("XCLAIM", key, group, self._home, "0", *map(entry_id, part)),
                    *("RETRYCOUNT", str(attempts), "FORCE", "JUSTID", "LASTID", entry_id(part[-1])),
                )
        marked, self._marked = self._marked, {}
        for (lane, group), seq in marked.items():
            self.add("XGROUP", "SETID", self._keys.lane(lane), group, entry_id(seq), key=2)

    def count(self, lane: int, group: str, seq: int, attempts: int) -> None:
        """A group has been given a message that is open so often."""
        self.settle()
        key = self._keys.lane(lane)
        again = ("RETRYCOUNT", str(attempts), "JUSTID")
        self.add("XCLAIM", key, group, self._home, "0", entry_id(seq), *again)

    def finish(self, lane: int, group: str, seqs: Iterable[int]) -> None:
        """A group is done with messages."""
        self.settle()
        for part in _parts(seqs):
            self.add("XACK", self._keys.lane(lane), group, *map(entry_id, part))

    def delete(self, lane: int, seqs: Iterable[int]) -> None:
        """Messages are gone."""
        self.settle()
        for part in _parts(seqs):
            self.add("XDEL", self._keys.lane(lane), *map(entry_id, part))

    def trim(self, lane: int, seq: int) -> None:
        """All messages up to one are gone."""
        self.add("XTRIM", self._keys.lane(lane), "MINID", entry_id(seq + 1))

    def remember(self, producer: str, seq: int, id: int) -> None:
        """A producer's message has an id."""
        self._producers.setdefault(producer, []).extend((str(seq), f"{seq} {id}"))

    def settle_producers(self, orders: Mapping[str, int], window: int) -> None:
        """Say what producers have sent, and forget what is older than the window."""
        producers, self._producers = self._producers, {}
        for name, members in producers.items():
            key = self._keys.producer(name)
            for part in _parts(members):
                self.add("ZADD", key, *part)
            self.add("ZREMRANGEBYRANK", key, "0", str(-window - 1))
            self.add("HSET", self._keys.producers, name, str(orders[name]))

    def forget(self, producer: str) -> None:
        """A producer is forgotten."""
        self._producers.pop(producer, None)
        self.add("UNLINK", self._keys.producer(producer))
        self.add("HDEL", self._keys.producers, producer)

    def make_group(self, lane: int, group: str, seq: int) -> None:
        """A group begins after a message."""
        self.settle()
        name = self._keys.lane(lane)
        self.add("XGROUP", "CREATE", name, group, entry_id(seq), "MKSTREAM", key=2)

    def drop_group(self, lane: int, group: str) -> None:
        """A group is no more."""
        self.settle()
        self.add("XGROUP", "DESTROY", self._keys.lane(lane), group, key=2)


T = TypeVar("T")


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, ARGUMENTS_MAX)):
        yield part
