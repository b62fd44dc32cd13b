"""Q10: promotion, by command and when a master dies or sleeps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.errors import BadRequest, Forbidden, RequestError
from tests.queues.replication.village import (
    ACKNOWLEDGED,
    LEASES,
    TIMEOUT_S,
    Village,
    fill,
    gather,
    now,
    village,
)


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
