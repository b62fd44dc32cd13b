"""Tales: whatever nodes could tell of messages, in any order, some of it twice. For Hypothesis.

Of few nodes, groups, addresses and times, so that much is equal that could be confused. A tale
follows from a number: to draw each word of so many by itself takes a hundred times as long.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

import pyarrow as pa
from hypothesis import Phase, settings
from hypothesis import strategies as st

from chappe.events.schema import KINDS
from chappe.ids import EPOCH_MS
from chappe.pipeline.clocks import Clocks
from chappe.pipeline.kinds import MESSAGE_KINDS, QUEUE_KINDS
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT, MESSAGE_NAMES, TABLES, arrow_schema
from tests.pipeline.traffic import DAY, MINUTE, Row

MS = 1000
# So little is promised that some messages are late, and some just not.
OPTIONS = Options(sla_ms=2, queue_sla_ms=4)
# Of a number that fails there is no smaller one. Each is of many messages, so fewer will do.
UNSHRUNK = settings(
    max_examples=min(1000, settings.default.max_examples),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
NODES = ("n1", "n2", "n3")
_MESSAGES_MAX = 30
_HOPS_MAX = 7
# What may be told of a message. Most often such kinds that belong together.
_POOLS: Final = (
    (*QUEUE_KINDS, "dropped", "sent"),
    ("stored", "lent", "lent", "acked", "acked", "replayed", "died", "dropped"),
    ("sent", "sent", "dropped"),
    ("published", "published", "dropped"),
    ("published", "published", "published", "copied", "dropped"),
    MESSAGE_KINDS,
)
_OF_REQUESTS = ("asked", "answered", "answered")
PUSH_KINDS: Final = tuple(name for name, kind in KINDS.items() if kind.part == "push")
_OF_NOTES = ("push_sent", "push_handed", "push_handed", "push_acked", "push_acked", *PUSH_KINDS)
_WORDS: Final = {
    "node": NODES,
    "boot": (1, 2),
    "came_from": (None, None, *NODES),
    "went_to": (None, None, [], ["n1"], ["n2"], ["n2", "n3"], ["n1", "n1"]),
    "n": (None, 0, 1, 2),
    "group_name": (None, "g", "h"),
    "attempt": (None, 1, 2),
    "reason": (None, None, "nobody", "slow_consumer"),
    "target": (None, "x/1", "x/2"),
    "role": (None,),
    "taken_as": (None,),
    "app": (None, "a", "b"),
    "sender": (None, "user/s"),
    "share": (1.0, 0.5, 0.25),
    "job": (None,),
    "client": (None,),
    "offline": (None,),
}
# What differs when it is pushed.
_TO_DEVICES: Final = {
    "n": (None, 0, 1, 2, 5),
    "reason": (None, "live", "live", "login", "again", "cancelled", "expired"),
    "target": ("topic:1", "client:1", None),
    "job": (None, "j1", "j2"),
    "client": (None, "c1", "c2", "c3"),
    "offline": (None, 0, 1, 2),
}
# What differs when it is to a room.
_TO_ROOMS: Final = {
    "target": ("room:1", "room:2", None, "x/1"),
    "role": (None, "publisher", "proxy", "broker", "gateway", "juggler"),
    "taken_as": (None, None, None, "proxy", "broker", "gateway", "juggler"),
}
_TOOK = (None, 0, -MS, MS, 3 * MS)


class Tale(NamedTuple):
    """Rows, and what to add to the times of a node in a minute."""

    number: int
    rows: list[Row]
    shifts: dict[tuple[str, int], int]

    def __repr__(self) -> str:
        return f"tale({self.number})"

    def table(self) -> pa.Table:
        return table(self.rows)

    def clocks(self) -> Clocks:
        return clocks(self.shifts)


def table(rows: list[Row]) -> pa.Table:
    """Rows as paths are made of them; what they do not have is null."""
    schema = arrow_schema(EVENT)
    return pa.Table.from_pylist(rows, pa.schema([schema.field(name) for name in MESSAGE_NAMES]))


def clocks(shifts: dict[tuple[str, int], int]) -> Clocks:
    rows = [{"node": n, "window": w, "shift": shift} for (n, w), shift in shifts.items()]
    return Clocks(pa.Table.from_pylist(rows, arrow_schema(TABLES["clocks"])))


def tale(number: int) -> Tale:
    """Several messages and requests of an hour."""
    chance = random.Random(number)
    rows: list[Row] = []
    for n in range(chance.randint(1, _MESSAGES_MAX)):
        rows += _message(chance, n)
    for serial, row in enumerate(rows):
        row["serial"] = serial
    rows += chance.choices(rows, k=chance.randint(0, len(rows) // 2))
    chance.shuffle(rows)
    return Tale(number, rows, _shifts(chance))


def _message(chance: random.Random, n: int) -> list[Row]:
    """What is told of one message, or of a request: all of it in a few milliseconds, or anywhere in
    some minutes."""
    near = chance.random() < 0.75

    def time() -> int:
        return DAY + (chance.randint(0, 5) * MS if near else chance.randint(0, 12 * MINUTE))

    kind, wanted = chance.random(), _WORDS
    if kind < 0.2:
        about: Row = {"label": f"n1.{n}"}
        kinds: tuple[str, ...] = _OF_REQUESTS
    elif kind < 0.4:
        about = {"label": f"{chance.choice('pm')}0a{n:05x}{time() // (1000 * MS):08x}"}
        kinds, wanted = _OF_NOTES, wanted | _TO_DEVICES
    else:
        about = {"message": ((time() // MS - EPOCH_MS) << 22) | n}
        kinds = chance.choice(_POOLS)
        wanted = wanted | (_TO_ROOMS if chance.random() < 0.4 else {})
    rows = []
    for _ in range(chance.randint(1, _HOPS_MAX)):
        at, took, delay = time(), chance.choice(_TOOK), chance.choice(_TOOK)
        times = {
            "at": at,
            "came": None if took is None else at - took,
            "due": None if delay is None else at + delay,
            "expires": None if delay is None else at + delay,
        }
        words = {name: chance.choice(words) for name, words in wanted.items()}
        rows.append({**about, "kind": chance.choice(kinds), **times, **words})
    return rows


def _shifts(chance: random.Random) -> dict[tuple[str, int], int]:
    """Of one node nothing is known; of the others, most often of the first minute."""
    known = [(node, DAY) for node in NODES[:2] if chance.random() < 0.7]
    known += [
        (chance.choice(NODES[:2]), DAY + chance.randint(0, 12) * MINUTE)
        for _ in range(chance.randint(0, 8))
    ]
    return {one: chance.randint(-3, 3) * MS for one in known}


TALES = st.integers(0, 2**32 - 1).map(tale)
