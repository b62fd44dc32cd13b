"""What every kind of coordination promises."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import ClusterError, Conflict, Held
from chappe.registry.coordination import Coordination, Lease, Versioned
from tests.registry.grounds import WAIT_S, Ground, Run, runner, seen


@pytest.fixture(params=["memory", "redis", "zookeeper", "keeper"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a story on a registry of each kind."""
    return runner(request)


def now() -> float:
    return asyncio.get_running_loop().time()


async def taken(coordination: Coordination, path: str) -> Lease:
    """Try until a lease can be had."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await coordination.acquire(path, b"next")
            except Held:
                await asyncio.sleep(0.01)


def test_a_sequence_counts_from_one_and_never_gives_a_number_twice(run: Run):
    async def story(ground: Ground) -> None:
        nodes = [ground.coordination(f"n{number}") for number in range(3)]
        assert await nodes[0].next_id("/ids") == 1
        numbers = await asyncio.gather(*(node.next_id("/ids") for node in nodes * 10))
        assert sorted(numbers) == list(range(2, 32))
        assert await nodes[1].next_id("/others") == 1

    run(story)


def test_a_value_is_what_was_put_last(run: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.coordination("n1"), ground.coordination("n2")
        assert await second.get("/a") is None
        made = await first.put("/a", b"", None)
        assert await second.get("/a") == made == Versioned(b"", made.version)
        value = bytes(range(256))
        changed = await second.put("/a", value, made.version)
        assert changed.version != made.version
        assert await first.get("/a") == Versioned(value, changed.version)
        assert await first.get("/a/b") is None
        await first.put("/a/b", b"below", None)
        assert await first.get("/a") == changed

    run(story)


def test_a_change_that_names_another_version_is_refused_with_what_is_there(run: Run):
    async def story(ground: Ground) -> None:
        node = ground.coordination("n1")
        with pytest.raises(Conflict) as absent:
            await node.put("/a", b"x", 7)
        assert absent.value.found is None
        with pytest.raises(Conflict):
            await node.delete("/a", 7)
        made = await node.put("/a", b"1", None)
        with pytest.raises(Conflict) as there:
            await node.put("/a", b"2", None)
        assert there.value.found == made
        changed = await node.put("/a", b"2", made.version)
        for late in (node.put("/a", b"3", made.version), node.delete("/a", made.version)):
            with pytest.raises(Conflict) as stale:
                await late
            assert stale.value.found == changed
        await node.delete("/a", changed.version)
        assert await node.get("/a") is None

    run(story)


def test_a_version_of_before_a_deletion_is_never_had_again(run: Run):
    async def story(ground: Ground) -> None:
        node = ground.coordination("n1")
        versions = []
        for turn in range(4):
            made = await node.put("/a", b"%d" % turn, None)
            changed = await node.put("/a", b"changed", made.version)
            versions += [made.version, changed.version]
            await node.delete("/a", changed.version)
            with pytest.raises(Conflict):
                await node.put("/a", b"late", changed.version)
        assert len(set(versions)) == len(versions)

    run(story)


def test_of_many_that_change_a_value_at_once_one_succeeds(run: Run):
    async def story(ground: Ground) -> None:
        nodes = [ground.coordination(f"n{number}") for number in range(5)]
        # All are connected: on a busy machine that takes longer than an answer may.
        for node in nodes:
            await node.get("/a")
        version = None
        for _ in range(5):
            tries = (node.put("/a", b"x", version) for node in nodes)
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [result for result in results if isinstance(result, Versioned)]
            assert len(won) == 1
            assert sum(isinstance(result, Conflict) for result in results) == 4, results
            version = won[0].version

    run(story)


def test_a_watch_gives_the_present_value_and_then_each_latest(run: Run):
    async def story(ground: Ground) -> None:
        writer, reader = ground.coordination("n1"), ground.coordination("n2")
        views = reader.watch("/a")
        async with asyncio.timeout(WAIT_S):
            assert await anext(views) is None
            made = await writer.put("/a", b"1", None)
            assert await anext(views) == made
            changed = await writer.put("/a", b"2", made.version)
            assert await anext(views) == changed
            await writer.delete("/a", changed.version)
            assert await anext(views) is None
            again = await writer.put("/a", b"3", None)
            await writer.put("/b", b"no matter", None)
            assert await anext(views) == again
            # The same bytes written again are news: their version is.
            same = await writer.put("/a", b"3", again.version)
            assert await anext(views) == same

    run(story)


def test_a_watch_of_many_changes_ends_with_the_last(run: Run):
    async def story(ground: Ground) -> None:
        writer, reader = ground.coordination("n1"), ground.coordination("n2")
        views = reader.watch("/a")
        await anext(views)

        async def write() -> None:
            version = None
            for number in range(50):
                version = (await writer.put("/a", b"%d" % number, version)).version

        writing = asyncio.create_task(write())
        last = await seen(views, lambda found: found is not None and found.value == b"49")
        await writing
        assert last == await writer.get("/a")

    run(story)


def test_a_lease_is_held_by_one(run: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.coordination("n1"), ground.coordination("n2")
        lease = await first.acquire("/a", b"first \x00\xff words")
        assert now() < lease.until <= now() + ground.options.lease_s
        for node in (first, second):
            with pytest.raises(Held) as held:
                await node.acquire("/a", b"other")
            assert held.value.holder == b"first \x00\xff words"
        other = await second.acquire("/b", b"second")
        await lease.release()
        assert lease.until <= now()
        async with asyncio.timeout(WAIT_S):
            await lease.lost()
        next_lease = await second.acquire("/a", b"second")
        assert next_lease.epoch > lease.epoch
        # Giving back what is another's by now changes nothing.
        await lease.release()
        with pytest.raises(Held):
            await first.acquire("/a", b"first")
        assert other.until > now()

    run(story)


def test_of_many_that_ask_for_a_lease_at_once_one_has_it(run: Run):
    async def story(ground: Ground) -> None:
        nodes = [ground.coordination(f"n{number}") for number in range(5)]
        epochs = []
        for _ in range(3):
            tries = (node.acquire("/a", b"x") for node in [*nodes, *nodes])
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [result for result in results if not isinstance(result, BaseException)]
            assert len(won) == 1
            assert sum(isinstance(result, Held) for result in results) == 9
            epochs.append(won[0].epoch)
            await won[0].release()
        assert epochs == sorted(set(epochs))

    run(story)


def test_a_lease_is_renewed_for_many_times_its_time(run: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.coordination("n1"), ground.coordination("n2")
        lease = await first.acquire("/a", b"first")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * ground.options.lease_s):
                await lease.lost()
        assert lease.until > now()
        with pytest.raises(Held):
            await second.acquire("/a", b"second")

    run(story)


def test_the_lease_of_a_holder_that_dies_can_be_had_after_its_time(run: Run):
    async def story(ground: Ground) -> None:
        holder = await ground.holder("n1")
        node = ground.coordination("n2")
        with pytest.raises(Held) as held:
            await node.acquire("/lease", b"next")
        assert held.value.holder == b"n1"
        holder.die()
        assert (await taken(node, "/lease")).until > now()

    run(story)


def test_a_paused_holder_and_the_next_never_both_trust_their_lease(run: Run):
    async def story(ground: Ground) -> None:
        holder = await ground.holder("n1")
        node = ground.coordination("n2")
        before, asked = await holder.until()
        assert before > asked
        holder.pause()
        await taken(node, "/lease")
        had = now()
        holder.resume()
        # The first thing it knows when it wakes: up to when it trusted, which must have been over.
        trusted, woken = await holder.until()
        assert before <= trusted <= had < woken

    run(story)


def test_seats_have_numbers_that_nobody_had_before(run: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.coordination("n1"), ground.coordination("n2")
        rows = second.watch_seats("/row")
        async with asyncio.timeout(WAIT_S):
            assert await anext(rows) == {}
        one = await first.sit("/row", b"one")
        two = await second.sit("/row", b"two \x00")
        three = await first.sit("/row", b"three")
        assert 0 < one.number < two.number < three.number
        everybody = {one.number: b"one", two.number: b"two \x00", three.number: b"three"}
        row = await seen(rows, lambda row: row == everybody)
        assert list(row) == sorted(row)
        await two.release()
        await seen(rows, lambda row: set(row) == {one.number, three.number})
        four = await second.sit("/row", b"four")
        assert four.number > three.number
        assert await anext(second.watch_seats("/other row")) == {}
        others = [await node.sit("/other row", b"") for node in (first, second)]
        assert not {seat.number for seat in others} & {*everybody, four.number}

    run(story)


def test_what_a_seat_says_changes_for_all_who_watch_it(run: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.coordination("n1"), ground.coordination("n2")
        rows = second.watch_seats("/row")
        seat = await first.sit("/row", b"init")
        other = await first.sit("/row", b"other")
        before = {seat.number: b"init", other.number: b"other"}
        await seen(rows, lambda row: row == before)
        for value in (b"running", b"", b"1 2:3 \x00\xff", b"running"):
            await seat.tell(value)
            told = before | {seat.number: value}
            row = await seen(rows, lambda row, told=told: row == told)
            assert list(row) == sorted(row)
        await seat.release()
        await seen(rows, lambda row: row == {other.number: b"other"})

    run(story)


def test_the_last_that_is_told_of_a_seat_stands(run: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.coordination("n1"), ground.coordination("n2")
        seat = await first.sit("/row", b"")
        await asyncio.gather(*(seat.tell(b"%d" % number) for number in range(20)))
        await seen(second.watch_seats("/row"), lambda row: row == {seat.number: b"19"})

    run(story)


def test_a_lost_seat_says_nothing_any_more(run: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.coordination("n1"), ground.coordination("n2")
        seat = await first.sit("/row", b"init")
        await seat.release()
        again = await first.sit("/row", b"init")
        with pytest.raises(ClusterError, match="lost"):
            await seat.tell(b"running")
        await again.tell(b"still init")
        row = await seen(second.watch_seats("/row"), lambda row: b"still init" in row.values())
        assert row == {again.number: b"still init"}

    run(story)


def test_the_seat_of_a_holder_that_dies_is_free_after_its_time(run: Run):
    async def story(ground: Ground) -> None:
        node = ground.coordination("n2")
        rows = node.watch_seats("/row")
        holder = await ground.holder("n1")
        row = await seen(rows, lambda row: list(row.values()) == [b"n1"])
        seat = await node.sit("/row", b"n2")
        assert seat.number > max(row)
        holder.die()
        await seen(rows, lambda row: list(row.values()) == [b"n2"])

    run(story)


def test_closing_releases_everything_at_once(run: Run):
    async def story(ground: Ground) -> None:
        registry, node = ground.open("n1"), ground.coordination("n2")
        assert registry.coordination is not None
        rows = node.watch_seats("/row")
        lease = await registry.coordination.acquire("/a", b"x")
        await registry.coordination.sit("/row", b"x")
        await seen(rows, lambda row: len(row) == 1)
        await registry.coordination.close()
        assert lease.until <= now()
        await node.acquire("/a", b"y")
        await seen(rows, lambda row: not row)
        # The same registry still has a membership; closed it is with both.
        await registry.membership.join(ground.member(1))
        await registry.close()
        with pytest.raises(ClusterError, match="closed"):
            await registry.coordination.get("/a")

    run(story)


def test_paths_do_not_touch_each_other(run: Run):
    async def story(ground: Ground) -> None:
        node = ground.coordination("n1")
        paths = ["/a", "/a/b", "/a%2Fb", "/ä €", "/a b", "/..", "/."]
        for number, path in enumerate(paths):
            await node.put(path, b"%d" % number, None)
            await node.acquire(path, b"%d" % number)
            await node.sit(path, b"%d" % number)
            assert await node.next_id(path) == 1
        for number, path in enumerate(paths):
            found = await node.get(path)
            assert found is not None
            assert found.value == b"%d" % number
            with pytest.raises(Held) as held:
                await node.acquire(path, b"")
            assert held.value.holder == b"%d" % number
            assert list((await anext(node.watch_seats(path))).values()) == [b"%d" % number]

    run(story)
