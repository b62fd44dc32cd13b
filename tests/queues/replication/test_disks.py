"""Q10: disks of masters and replicas: damaged, lost, failing."""

from __future__ import annotations

import asyncio

from tests.queues.replication.village import (
    ACKNOWLEDGED,
    LEASES,
    Village,
    fill,
    gather,
    village,
)


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
