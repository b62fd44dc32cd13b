"""Q10: copies in sync: what is acknowledged waits for them, and who is silent leaves them."""

from __future__ import annotations

import asyncio

from chappe.errors import Overload
from tests.queues.replication.village import (
    ACKNOWLEDGED,
    TIMEOUT_S,
    Village,
    fill,
    gather,
    now,
    village,
)


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
