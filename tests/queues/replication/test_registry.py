"""Q10: masters and the registry: without one, cut off from it, and when it forgets."""

from __future__ import annotations

import asyncio

import msgspec

from chappe.errors import Overload
from chappe.queues.replication.record import encode_broker, lease_path, record_path
from chappe.registry.coordination import Versioned
from tests.queues.replication.village import (
    ACKNOWLEDGED,
    LEASES,
    Village,
    Villager,
    fill,
    gather,
    now,
    village,
)


def test_a_node_without_a_registry_or_replicas_leads_its_own_broker_and_keeps_it():
    async def story(place: Village) -> None:
        node = await place.add("a")
        await place.master()
        assert await fill(node, range(10)) == list(range(10))
        node.kill(power=True)
        node = await node.again()
        await place.master()
        assert node.state() == list(range(10))
        # There is nothing to be promoted over.
        assert node.replication is not None
        await node.run(node.replication.promote("a"))
        assert node.told == [("a", "master")]

    village(2, story, registry=False)

    async def with_registry(place: Village) -> None:
        node = await place.add("a")
        await place.master()
        assert await fill(node, range(10)) == list(range(10))
        # Nothing was agreed on, so nothing is needed of the registry.
        assert await place.record() is None
        place.isolate("a")
        await asyncio.sleep(3 * LEASES.lease_s)
        assert await node.append(10) is None

    village(3, with_registry)


def test_a_registry_that_restarts_empty_is_told_again_by_the_master_that_runs():
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        await fill(master, range(5))
        assert place.registry is not None
        place.registry.forget()
        assert await place.record() is None
        await asyncio.sleep(2 * LEASES.lease_s)
        master = await place.master()
        assert master.name == "a"
        record = await place.record()
        assert record is not None
        assert record.owner == "a"
        assert record.epoch > 1
        assert set(record.insync) == {"a", "b", "c"}
        assert await fill(master, [5]) == [5]
        assert master.state() == [0, 1, 2, 3, 4, 5]

    village(14, story, replicas=2, promotion="auto", **ACKNOWLEDGED)


def test_nobody_leads_a_forgotten_broker_without_having_heard_of_all_who_may_have():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        await fill(master, range(5))
        other = place.nodes["b"]
        master.kill()
        new = await place.master()
        assert new is other
        assert await fill(new, [5]) == [5]
        new.kill()
        # Both are gone, the registry has forgotten, and the old master comes back alone.
        assert place.registry is not None
        place.registry.forget()
        old = await master.again()
        await asyncio.sleep(3 * LEASES.lease_s)
        assert not old.serves()
        new = await other.again()
        await place.until(new.serves)
        assert new.state() == [0, 1, 2, 3, 4, 5]
        await place.agree("a", "b")

    village(15, story, replicas=1, promotion="auto", insync_min=1, **ACKNOWLEDGED)


def test_a_node_that_has_not_read_its_copy_yet_does_not_say_that_it_has_none():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        await fill(master, range(5))
        other = place.nodes["b"]
        master.kill()
        other.kill()
        master.fs._folders.clear()
        # It is linked, and takes its time to start.
        late = place.nodes["b"] = Villager(place, "b", other.fs, other.options)
        late.replication = late.make()
        back = await master.again()
        await asyncio.sleep(3 * LEASES.lease_s)
        assert not back.serves()
        await late.start()
        await place.until(late.serves)
        assert late.state() == list(range(5))

    village(26, story, replicas=1, **ACKNOWLEDGED)


def test_a_registry_that_steps_back_in_time_is_not_believed():
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        assert place.registry is not None
        state = place.registry._state
        old = state.values[record_path("a")]
        await fill(master, [0])
        master.kill()
        new = await place.master()
        assert await fill(new, [1, 2]) == [1, 2]
        stood = new.record()
        assert stood is not None
        # A replica of the registry that had not heard of the new master takes its place.
        state.values[record_path("a")] = Versioned(old.value, state.number())
        back = await master.again()
        await place.until(lambda: _epoch(place) > stood.epoch)
        master = await place.master()
        assert master is new
        assert not back.serves()
        assert await fill(new, [3]) == [3]
        assert new.state() == [0, 1, 2, 3]
        await place.agree("a", "b", "c")

    village(16, story, replicas=2, promotion="auto", **ACKNOWLEDGED)


def _epoch(place: Village) -> int:
    assert place.registry is not None
    found = place.registry._state.values[record_path("a")]
    return int(msgspec.json.decode(found.value)["epoch"])


def test_a_master_without_a_registry_stops_before_its_lease_is_somebody_else_s():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        assert place.registry is not None
        place.registry.cut("a")
        cut_at = now()
        await place.until(lambda: not master.serves())
        assert now() - cut_at <= LEASES.lease_s + 0.1
        assert isinstance(await master.append("x"), Overload)
        place.heal()
        assert (await place.master()).name == "a"

    village(17, story, replicas=1, **ACKNOWLEDGED)


def test_records_in_the_registry_can_be_read_by_a_person():
    async def story(place: Village) -> None:
        await gather(place, 2)
        assert place.registry is not None
        found = place.registry._state.values["/queues/a"]
        assert msgspec.json.decode(found.value) == {
            "owner": "a",
            "epoch": 1,
            "insync": ["a", "b"],
            "replicas": ["b"],
            "mode": "async",
        }
        assert lease_path("a") in place.registry._state.leases
        record = await place.record()
        assert record is not None
        assert encode_broker(record) == found.value

    village(25, story, replicas=1)
