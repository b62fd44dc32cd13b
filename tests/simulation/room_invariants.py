"""What must hold of every run of rooms, whatever its seed."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from chappe.ids import NODE_MAX, SEQUENCE_BITS
from chappe.rooms.partition import keeps, room_number
from chappe.rooms.row import ROWS, read_row
from chappe.wire.rooms import PSEUDO_APP, State
from tests.simulation.room_truth import Crowd, Key, Receipt
from tests.simulation.room_world import RoomWorld


def check(world: RoomWorld) -> None:
    """Check a whole run."""
    for crowd in world.truth.crowds:
        check_nothing_came_twice(crowd)
        check_nothing_was_sent_twice(crowd)
        check_only_what_was_said_came(world, crowd)
        check_only_members_were_given_anything(crowd)
        check_order(world, crowd)


def check_nothing_came_twice(crowd: Crowd) -> None:
    """R2: no message is delivered twice to one client."""
    given: set[tuple[int, int]] = set()
    for receipt in crowd.receipts:
        for client in receipt.clients:
            assert (client, receipt.id) not in given, f"{crowd.name}/{client} got {receipt} twice"
            given.add((client, receipt.id))


def check_nothing_was_sent_twice(crowd: Crowd) -> None:
    """Of a normal message there is one copy: no datagram is taken twice, however often it comes."""
    twice = [id_ for id_, times in crowd.copies.items() if times > 1]
    assert not twice, f"{crowd.name} was sent {twice} more than once"


def check_only_what_was_said_came(world: RoomWorld, crowd: Crowd) -> None:
    """What comes was said, before, in that room of that app."""
    for receipt in crowd.receipts:
        said = world.truth.published.get(receipt.id)
        assert said is not None, f"{crowd.name} got {receipt}, which nobody said"
        where = (said.app, f"room:{said.room}")
        assert where == (receipt.app, receipt.to), f"{crowd.name} got {receipt} for {said}"
        assert said.at <= receipt.at, f"{crowd.name} got {receipt} before it was said"


def check_only_members_were_given_anything(crowd: Crowd) -> None:
    """R11: messages for rooms with no member here are dropped."""
    assert not crowd.strays, f"{crowd.name} got {crowd.strays[0]} for nobody"


def check_order(world: RoomWorld, crowd: Crowd) -> None:
    """R14: one publisher's normal messages for a room are delivered in order.

    While they come one way, none is delivered after a later one. When they begin to come another
    way, the set of running replicas, or of proxies, has changed for whoever chose it: then those
    of the old way may come after those of the new one. With all processes there and nothing lost,
    ways do not change, and then there is no exception.
    """
    begin, end = world.mixed_up
    for flow, receipts in _flows(world, crowd).items():
        last: Receipt | None = None
        for receipt in receipts:
            if last is not None and receipt.id < last.id:
                assert receipt.way != last.way, f"{crowd.name} got {receipt} after {last} in {flow}"
            else:
                last = receipt
        calm = [one for one in receipts if begin <= one.at < end]
        for before, after in pairwise(calm):
            assert before.id < after.id, f"{crowd.name} got {after} after {before}: all was well"
            assert before.way == after.way, f"{crowd.name} got {after} another way than {before}"


def _flows(world: RoomWorld, crowd: Crowd) -> dict[tuple[Key, int], list[Receipt]]:
    """Normal messages by room and publisher, as they came."""
    flows: dict[tuple[Key, int], list[Receipt]] = defaultdict(list)
    for receipt in crowd.receipts:
        if not world.truth.published[receipt.id].reliable:
            node = (receipt.id >> SEQUENCE_BITS) & NODE_MAX
            flows[(receipt.app, receipt.to), node].append(receipt)
    return flows


def differences(world: RoomWorld) -> list[str]:
    """What is wrong with the tables of a world that has come to rest."""

    return [*_broker_differences(world), *_store_differences(world), *_leftovers(world)]


def _members(world: RoomWorld) -> dict[Key, dict[str, int]]:
    """The truth: how many are in each room on each gateway."""
    found: dict[Key, dict[str, int]] = defaultdict(dict)
    for hub in world.hubs:
        for key, clients in hub.crowd.rooms.items():
            found[key][hub.name] = len(clients)
    return found


def _broker_differences(world: RoomWorld) -> list[str]:
    """Each broker has the rooms of its partition, all gateways of them, and nothing else."""
    found = []
    members = _members(world)
    for node in world.nodes.values():
        for partition, broker in node.rooms.dispatch.brokers.items():
            assert hasattr(broker, "table")
            modulus = broker.modulus
            if partition >= node.rooms.roll.wanted:
                # It was started before anybody wanted it: nobody knows of it.
                continue
            if broker.state is not State.RUNNING:
                found.append(f"{node.life}: broker of {partition} does not run")
            if broker.cleaning:
                found.append(f"{node.life}: broker of {partition} goes by {modulus} still")
            wanted = {
                key: gateways
                for key, gateways in members.items()
                if keeps(room_number(key[1]), partition, modulus)
            }
            has = _table(broker)
            found += [
                f"{node.life}: broker of {partition} by {modulus} has {key} on "
                f"{has.get(key)} instead of {wanted.get(key)}"
                for key in sorted(wanted.keys() | has.keys())
                if wanted.get(key) != has.get(key)
            ]
    return found


def _table(broker: object) -> dict[Key, dict[str, int]]:
    found: dict[Key, dict[str, int]] = {}
    table = broker.table  # type: ignore[attr-defined]
    for bucket in table._buckets:
        for name in bucket:
            app, _, room = name.partition("\0")
            gateways = {gateway.name: count for gateway, count in table.find_key(name)}
            if gateways and app != PSEUDO_APP:
                found[app, room] = gateways
    return found


def _store_differences(world: RoomWorld) -> list[str]:
    """The store has a row for each room on each gateway's present life, and no other."""
    wanted = {(*key, hub.name, hub.epoch) for hub in world.hubs for key in hub.crowd.rooms}
    rows = world.store._tables.get(ROWS, {})
    read = [read_row(key, value) for key, value in rows.items()]
    has = {(entry.app, entry.room, card.name, card.epoch) for card, entry in read}
    has = {row for row in has if row[0] != PSEUDO_APP}
    return [
        *(f"the store lacks {row}" for row in sorted(wanted - has)),
        *(f"the store still has {row}" for row in sorted(has - wanted)),
    ]


def _leftovers(world: RoomWorld) -> list[str]:
    """Nothing waits any more where nothing is to be done."""
    found = []
    for node in world.nodes.values():
        rooms = node.rooms
        sizes = {"rows to write": rooms.writer.waiting}
        gateway = rooms.gateway
        if gateway is not None:
            sizes["rooms not confirmed"] = gateway._announcer.waiting
        for router in rooms.dispatch.routers.values():
            sizes["entries not noted"] = len(router._confirming)  # type: ignore[attr-defined]
        found += [f"{node.life}: {size} {what}" for what, size in sizes.items() if size]
    return found
