"""Q10: whole stories of masters and replicas."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from chappe.errors import BadRequest, Forbidden, Overload, RequestError
from chappe.queues.replication.record import encode_broker, lease_path, record_path
from chappe.registry.coordination import Versioned
from tests.queues.replication.village import LEASES, Village, Villager, fill, village

TIMEOUT_S = 1.0
ACKNOWLEDGED: dict[str, Any] = {"mode": "acknowledged", "timeout_s": TIMEOUT_S}


async def gather(place: Village, count: int) -> Villager:
    """Start nodes, and wait until all copies of the broker a are in sync."""
    names = "abcde"[:count]
    for name in names:
        await place.add(name)
    master = await place.master()
    assert master.name == "a"
    await place.until(lambda: sorted(master.record().insync) == list(names))  # type: ignore[union-attr]
    return master


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("mode", ["async", "acknowledged"])
def test_a_replica_has_the_same_bytes(mode: str):
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        assert len(await fill(master, range(500))) == 500
        await place.agree("a", "b")
        assert len(master.files()) > 2
        assert master.files() == place.nodes["b"].files()

    village(1, story, replicas=1, mode=mode)


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


def test_an_acknowledged_send_fails_in_time_when_its_replica_is_gone_and_works_when_it_is_back():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        await fill(master, range(5))
        place.nodes["b"].kill()
        sent_at = now()
        error = await master.append("lost?")
        assert isinstance(error, Overload)
        assert error.outcome_unknown
        assert "insync_min" in error.reason
        assert TIMEOUT_S <= now() - sent_at < 2 * TIMEOUT_S
        # The set was not shrunk, and nothing is taken now.
        record = await place.record()
        assert record is not None
        assert set(record.insync) == {"a", "b"}
        await place.until(lambda: not master.serves())
        assert master.replication is not None
        await asyncio.sleep(1)
        assert "a, b" in master.replication.refusal("a")
        await place.nodes["b"].again()
        master = await place.master()
        assert await fill(master, ["after"]) == ["after"]
        # What failed with an unknown outcome was stored, once.
        assert master.state() == [0, 1, 2, 3, 4, "lost?", "after"]
        await place.agree("a", "b")

    village(4, story, replicas=1, **ACKNOWLEDGED)


def test_a_silent_replica_leaves_the_set_and_comes_back_into_it():
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        place.nodes["c"].kill()
        sent_at = now()
        # Not lost, only late: the two others are enough.
        assert await master.append("late") is None
        assert TIMEOUT_S <= now() - sent_at < 2 * TIMEOUT_S
        record = await place.record()
        assert record is not None
        assert set(record.insync) == {"a", "b"}
        assert set(record.replicas) == {"b", "c"}
        sent_at = now()
        assert await fill(master, range(20)) == list(range(20))
        assert now() - sent_at < TIMEOUT_S
        await place.nodes["c"].again()
        await place.until(lambda: len(master.record().insync) == 3)  # type: ignore[union-attr]
        await place.agree("a", "b", "c")

    village(5, story, replicas=2, **ACKNOWLEDGED)


def test_a_master_that_may_not_shrink_the_set_acknowledges_nothing():
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        assert place.registry is not None
        # Cut off from the registry and from a replica: nobody agrees to go on without it.
        place.registry.cut("a")
        place.cut("a", "c")
        sent_at = now()
        error = await master.append("unknown")
        assert error is not None
        assert error.outcome_unknown
        assert now() - sent_at <= 2 * TIMEOUT_S + 1
        await place.until(lambda: not master.serves())
        place.heal()
        master = await place.master()
        assert await master.append("known") is None
        await place.agree("a", "b", "c")

    village(6, story, replicas=2, **ACKNOWLEDGED)


def test_an_asynchronous_master_never_waits_for_a_replica():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        place.isolate("b")
        sent_at = now()
        assert len(await fill(master, range(50))) == 50
        assert now() - sent_at < 1.0
        await asyncio.sleep(3)
        assert len(await fill(master, range(50, 100))) == 50
        # It left the set, so it may not be promoted, and catches up when it can.
        record = await place.record()
        assert record is not None
        assert record.insync == ("a",)
        place.heal()
        await place.agree("a", "b")

    village(7, story, replicas=1, timeout_s=TIMEOUT_S)


def test_an_asynchronous_replica_is_written_to_in_rounds():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        rounds: list[float] = []
        send = master.send

        def noted(node: str, op: Any, size: int) -> bool:
            rounds.append(now())
            return send(node, op, size)

        master.send = noted  # type: ignore[method-assign]
        until = now() + 5
        while now() < until:
            await master.append("x")
            await asyncio.sleep(0.02)
        gaps = [later - earlier for earlier, later in pairwise(rounds)]
        starts = [gap for gap in gaps if gap > 0.1]
        assert 4 <= len(starts) <= 6
        assert all(0.9 < gap < 1.4 for gap in starts)
        await place.agree("a", "b")

    village(8, story, replicas=1, interval_s=1.0)


@pytest.mark.parametrize("mode", ["async", "acknowledged"])
def test_a_replica_is_promoted_by_command_and_the_old_master_follows(mode: str):
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        other = place.nodes["b"]
        await fill(master, range(20))
        await place.agree("a", "b")
        assert other.replication is not None
        await other.run(other.replication.promote("a"))
        await place.until(other.serves)
        assert not master.serves()
        assert ("a", "fenced: b is master in epoch 2") in master.told
        assert (await master.append("too late")) is not None
        assert await fill(other, ["new"]) == ["new"]
        await place.agree("a", "b")
        assert other.state() == [*range(20), "new"]
        await place.until(lambda: master.replication.masters["a"] == "b")  # type: ignore[union-attr]
        # Again is no change.
        epoch = other.record().epoch  # type: ignore[union-attr]
        await other.run(other.replication.promote("a"))
        assert other.record().epoch == epoch  # type: ignore[union-attr]

    village(9, story, replicas=1, mode=mode)


def test_a_replica_that_is_not_in_sync_is_promoted_only_by_force():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        other = place.nodes["b"]
        place.cut("a", "b")
        await fill(master, range(20))
        await place.until(lambda: master.record().insync == ("a",))  # type: ignore[union-attr]
        master.kill()
        assert other.replication is not None
        with pytest.raises(Forbidden, match="b is not in sync"):
            await other.run(other.replication.promote("a"))
        with pytest.raises(BadRequest, match="no copy"):
            await other.run(other.replication.promote("nobody"))
        await other.run(other.replication.promote("a", force=True))
        await place.until(other.serves)
        assert other.state() == []
        assert await other.append("new") is None
        place.heal()
        await master.again()
        await place.agree("a", "b")
        assert other.state() == ["new"]

    village(10, story, replicas=1, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("power", [False, True])
def test_when_the_master_dies_a_replica_takes_over_with_all_that_was_acknowledged(power: bool):
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        acked = await fill(master, range(50))
        pending = [master.append(value) for value in range(50, 60)]
        await asyncio.sleep(0.004)
        master.kill(power=power)
        acked += [value for value, one in enumerate(pending, 50) if one.done() and not one.result()]
        died_at = now()
        new = await place.master()
        assert new.name != "a"
        assert now() - died_at < LEASES.lease_s + 2
        assert acked == new.state()[: len(acked)]
        assert await new.append("new") is None
        old = await master.again()
        await place.agree("a", "b", "c")
        assert not old.serves()
        assert new.record().epoch == 2  # type: ignore[union-attr]
        await place.until(lambda: len(new.record().insync) == 3)  # type: ignore[union-attr]

    for seed in range(5):
        village(seed, story, replicas=2, promotion="auto", **ACKNOWLEDGED)


def test_a_master_that_slept_is_fenced_and_accepts_nothing():
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        await fill(master, range(5))
        loop: Any = asyncio.get_running_loop()
        loop.stop_process(master.process)
        waiting = master.append("asleep")
        for other in ("b", "c"):
            place.cut("a", other)
        await place.until(lambda: place.nodes["b"].serves() or place.nodes["c"].serves())
        new = next(node for node in place.nodes.values() if node.serves() and node is not master)
        assert await fill(new, ["new"]) == ["new"]
        loop.resume_process(master.process)
        refused = master.append("awake")
        place.heal()
        for outcome in (waiting, refused):
            assert isinstance(await outcome, RequestError)
        await place.until(lambda: not master.serves())
        await place.agree("a", "b", "c")
        assert new.state() == [0, 1, 2, 3, 4, "new"]

    village(12, story, replicas=2, promotion="auto", **ACKNOWLEDGED)


def test_no_replica_promotes_itself_unless_it_is_to():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        master.kill()
        await asyncio.sleep(5 * LEASES.lease_s)
        assert not place.nodes["b"].serves()
        await master.again()
        assert (await place.master()).name == "a"

    village(13, story, replicas=1, **ACKNOWLEDGED)


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


def test_a_damaged_replica_fetches_anew_and_does_not_lead():
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        await fill(master, range(300))
        await place.agree("a", "b", "c")
        other = place.nodes["b"]
        other.kill()
        last = max(other.files())
        # Not the last batch: that would be a torn tail.
        other.fs.flip(f"/a/{last}", 60)
        place.nodes["c"].kill()
        other = await other.again()
        master.kill()
        await asyncio.sleep(3 * LEASES.lease_s)
        assert not other.serves()
        await place.nodes["c"].again()
        new = await place.master()
        assert new.name == "c"
        assert new.state() == list(range(300))
        await master.again()
        await place.agree("a", "b", "c")

    village(18, story, replicas=2, promotion="auto", insync_min=1, **ACKNOWLEDGED)


def test_a_master_that_lost_its_disk_hands_over_to_who_has_the_log():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        await fill(master, range(20))
        other = place.nodes["b"]
        master.kill()
        other.kill()
        master.fs._folders.clear()
        back = await master.again()
        await asyncio.sleep(3 * LEASES.lease_s)
        assert not back.serves()
        assert back.replication is not None
        assert "b may have more" in back.replication.refusal("a")
        other = await other.again()
        await place.until(other.serves)
        assert other.state() == list(range(20))
        await place.agree("a", "b")

    village(19, story, replicas=1, **ACKNOWLEDGED)


def test_a_replica_that_was_away_for_too_long_begins_anew():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        await fill(master, range(10))
        await place.agree("a", "b")
        place.isolate("b")
        await place.until(lambda: master.record().insync == ("a",))  # type: ignore[union-attr]
        await fill(master, range(10, 1000))
        journal = master.brokers["a"].journal
        journal.trim(journal.bases[-2])
        await journal.settled()
        assert journal.start > 0
        place.heal()
        await place.agree("a", "b")
        assert place.nodes["b"].files() == master.files()

    village(20, story, replicas=1, timeout_s=TIMEOUT_S)


def test_a_disk_that_failed_is_not_written_to_again_and_another_node_leads():
    async def story(place: Village) -> None:
        master = await gather(place, 3)
        await fill(master, range(5))
        master.fs.fail_sync()
        error = await master.append("unknown")
        assert error is not None
        assert error.outcome_unknown
        new = await place.master()
        await place.until(lambda: not master.serves())
        new = await place.master()
        assert new.name != "a"
        assert new.state() == [0, 1, 2, 3, 4]
        assert await new.append("new") is None
        await asyncio.sleep(10)
        assert not master.serves()
        assert "disk failed" in master.replication.refusal("a")  # type: ignore[union-attr]

    village(21, story, replicas=2, promotion="auto", **ACKNOWLEDGED)


def test_another_node_is_chosen_for_one_that_is_gone_for_long():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        await place.add("c")
        await asyncio.sleep(2)
        assert master.record().replicas == ("b",)  # type: ignore[union-attr]
        place.nodes["b"].kill()
        await asyncio.sleep(300)
        assert master.record().replicas == ("b",)  # type: ignore[union-attr]
        await place.until(lambda: master.record().replicas == ("c",), 400)  # type: ignore[union-attr]
        assert await master.append("x") is None
        await place.agree("a", "c")

    village(23, story, replicas=1, timeout_s=TIMEOUT_S)


def test_what_is_under_way_to_a_replica_is_bounded():
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        other = place.nodes["b"]
        loop: Any = asyncio.get_running_loop()
        loop.stop_process(other.process)
        sent = master.bulk_bytes
        for number in range(300):
            assert await master.append(f"{number} {'x' * 8000}") is None
        await asyncio.sleep(1)
        assert 1_000_000 < master.bulk_bytes - sent < 1_400_000
        loop.resume_process(other.process)
        await place.agree("a", "b")

    village(24, story, replicas=1, timeout_s=30.0, interval_s=0.01)


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
