"""Rooms: how much is said in each, to how many; and how much each broker of them has to do.

Of rooms it is counted what of their messages is recorded, and what their brokers say of those that
are the hottest. Of brokers, what they say of themselves.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.clocks import Clocks
from chappe.pipeline.columns import longs, whole
from chappe.pipeline.hours import MINUTE_US
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.told import HEAT, LOAD

_MINUTE_S: Final = MINUTE_US / 1_000_000
# A room is a hot spot with a tenth of what its broker has to do, and a message a second.
HOT_SHARE: Final = 0.1
HOT_MESSAGES: Final = 60
_ROOM: Final = ["app", "room", "window"]
_BROKER: Final = ["node", "partition", "window"]
_ROOMS: Final = arrow_schema(TABLES["rooms"]).remove(0)
_LOAD: Final = arrow_schema(TABLES["room_load"]).remove(0)
_COUNTS: Final = ("messages", "scaled", "deliveries")


def loads(told: pa.Table, clocks: Clocks) -> pa.Table:
    """What each broker did in each minute, and which share of all that was; 1 is as much as a
    broker has on average."""
    rows = _windowed(told.filter(pc.equal(told["kind"], LOAD)), clocks)
    parts = {"messages": ("n", "sum"), "copies": ("copies", "sum")}
    parts |= {"rooms": ("rooms", "max"), "members": ("members", "max")}
    made = _grouped(rows, _BROKER, parts)
    work = _work(made["messages"], made["copies"])
    every = _grouped(
        made.append_column("work", work),
        ["window"],
        {"all": ("work", "sum"), "brokers": ("node", "count")},
    )
    place = pc.index_in(made["window"], value_set=whole(every["window"]))
    share = _ratio(work, every["all"].take(place))
    made = made.append_column("share", share)
    made = made.append_column("imbalance", pc.multiply(share, every["brokers"].take(place)))
    return made.select(_LOAD.names).cast(_LOAD)


def rooms(told: pa.Table, load: pa.Table, clocks: Clocks, travelled: pa.Table | None) -> pa.Table:
    """Rooms of which a message is recorded, or that are among the hottest of their broker."""
    parts = [_ROOMS.empty_table(), _hottest(told, load, clocks)]
    if travelled is not None:
        parts.append(travelled)
    names = [name for name in _ROOMS.names if name not in _ROOM]
    every = pa.concat_tables(parts, promote_options="default")
    made = _grouped(every, _ROOM, {name: (name, "max") for name in names})
    for name in _COUNTS:
        made = _put(made, name, made[name].fill_null(0))
    most = pc.max_element_wise(made["scaled"], made["counted"].cast(pa.float64()))
    made = _put(made, "rate", pc.divide(most, _MINUTE_S))
    large = pc.greater_equal(made["share"], HOT_SHARE)
    made = _put(made, "hot", pc.and_(large, pc.greater_equal(made["counted"], HOT_MESSAGES)))
    return _put(made, "hot", made["hot"].fill_null(False)).select(_ROOMS.names).cast(_ROOMS)


def said(messages: pa.Table) -> pa.Table:
    """What the pieces of an hour say of rooms, put together."""
    parts = {name: (name, "sum") for name in _COUNTS}
    return _grouped(messages, _ROOM, parts | {n: (n, "max") for n in ("members", "gateways")})


def _hottest(told: pa.Table, load: pa.Table, clocks: Clocks) -> pa.Table:
    """What brokers say of rooms; of several that a room has, the share of the one it is most to."""
    rows = _windowed(told.filter(pc.equal(told["kind"], HEAT)), clocks)
    parts = {"counted": ("n", "sum"), "copies": ("copies", "sum")}
    parts |= {name: (name, "max") for name in ("members", "gateways")}
    made = _grouped(rows, [*_ROOM, "node", "partition"], parts)
    of_brokers = load.select([*_BROKER, "messages"]).append_column(
        "all", _work(load["messages"], load["copies"])
    )
    made = made.join(of_brokers.drop_columns("messages"), _BROKER, use_threads=False)
    share = _ratio(_work(made["counted"], made["copies"]), made["all"])
    parts = {"counted": ("counted", "sum")}
    parts |= {n: (n, "max") for n in ("members", "gateways", "partition", "share")}
    return _grouped(made.append_column("share", share), _ROOM, parts)


def _windowed(rows: pa.Table, clocks: Clocks) -> pa.Table:
    """By the clock of all, as messages are."""
    at = longs(whole(rows["at"]))
    at = at + clocks.shifts(whole(rows["node"]), at)
    rows = rows.append_column("window", pa.array(at - at % MINUTE_US))
    return rows.append_column("room", rows["target"])


def _grouped(rows: pa.Table, keys: list[str], parts: dict[str, tuple[str, str]]) -> pa.Table:
    made = rows.group_by(keys, use_threads=False).aggregate([*parts.values()])
    return made.rename_columns([*keys, *parts])


def _work(messages: pa.ChunkedArray, copies: pa.ChunkedArray) -> pa.ChunkedArray:
    """What comes to a broker, and what leaves it."""
    return pc.add(messages, copies.fill_null(0)).cast(pa.float64())


def _ratio(part: pa.ChunkedArray, of: pa.ChunkedArray) -> pa.ChunkedArray:
    some = pc.if_else(pc.greater(of, 0), of, pa.scalar(None, pa.float64()))
    return pc.divide(part, some)


def _put(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)
