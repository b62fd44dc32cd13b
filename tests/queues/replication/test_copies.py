"""Q10: copies of a log: the same bytes, sent in rounds, within bounds."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.queues.replication.village import (
    TIMEOUT_S,
    Village,
    fill,
    gather,
    now,
    village,
)


@pytest.mark.parametrize("mode", ["async", "acknowledged"])
def test_a_replica_has_the_same_bytes(mode: str):
    async def story(place: Village) -> None:
        master = await gather(place, 2)
        assert len(await fill(master, range(500))) == 500
        await place.agree("a", "b")
        assert len(master.files()) > 2
        assert master.files() == place.nodes["b"].files()

    village(1, story, replicas=1, mode=mode)


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
