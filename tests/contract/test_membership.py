"""What every kind of membership promises (H7)."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import ClusterError
from tests.registry.grounds import WAIT_S, Ground, Run, runner, seen

LEDGERS = ["memory", "redis", "zookeeper", "keeper"]
KINDS = [*LEDGERS, "kubernetes"]


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a story on a registry of each kind."""
    return runner(request)


@pytest.fixture(params=LEDGERS)
def run_leased(request: pytest.FixtureRequest) -> Run:
    """Run a story on each kind that knows runs and leases, which DNS does not."""
    return runner(request)


def test_a_watch_begins_with_the_present_view(run: Run):
    async def story(ground: Ground) -> None:
        one, two = ground.member(1), ground.member(2)
        first = ground.open("n1").membership
        await ground.tell(one)
        await first.join(one)
        view = await seen(first.watch(), lambda view: set(view) == {one.name})
        assert view[one.name] == one
        second = ground.open("n2").membership
        await ground.tell(one, two)
        await second.join(two)
        await seen(second.watch(), lambda view: set(view) == {one.name, two.name})

    run(story)


def test_others_learn_where_a_new_node_takes_links(run: Run):
    async def story(ground: Ground) -> None:
        one, two = ground.member(1), ground.member(2)
        first, second = ground.open("n1").membership, ground.open("n2").membership
        await ground.tell(one)
        await first.join(one)
        views = first.watch()
        await seen(views, lambda view: set(view) == {one.name})
        await ground.tell(one, two)
        await second.join(two)
        view = await seen(views, lambda view: two.name in view)
        assert view[two.name].url == two.url
        assert list(view) == sorted(view)

    run(story)


def test_others_learn_of_a_node_that_leaves(run: Run):
    async def story(ground: Ground) -> None:
        one, two = ground.member(1), ground.member(2)
        first, second = ground.open("n1").membership, ground.open("n2").membership
        await ground.tell(one, two)
        await first.join(one)
        await second.join(two)
        views = first.watch()
        await seen(views, lambda view: len(view) == 2)
        await ground.tell(one)
        await second.leave()
        await seen(views, lambda view: set(view) == {one.name})
        # A node that left may come again.
        await ground.tell(one, two)
        await second.join(two)
        await seen(views, lambda view: len(view) == 2)

    run(story)


def test_closing_is_leaving(run: Run):
    async def story(ground: Ground) -> None:
        one, two = ground.member(1), ground.member(2)
        first, registry = ground.open("n1").membership, ground.open("n2")
        await ground.tell(one, two)
        await first.join(one)
        await registry.membership.join(two)
        views = first.watch()
        await seen(views, lambda view: len(view) == 2)
        await ground.tell(one)
        await registry.close()
        await seen(views, lambda view: set(view) == {one.name})
        await registry.close()

    run(story)


def test_a_slow_reader_gets_the_latest_view(run_leased: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.open("n1").membership, ground.open("n2").membership
        views = aiter(first.watch())
        assert not await anext(views)
        for number in range(5):
            await second.join(ground.member(number))
            await second.leave()
        await second.join(ground.member(7))
        async with asyncio.timeout(WAIT_S):
            assert set(await anext(views)) == {"n7"}

    run_leased(story)


def test_a_node_that_dies_is_gone_after_its_lease(run_leased: Run):
    async def story(ground: Ground) -> None:
        first = ground.open("n1").membership
        await first.join(ground.member(1))
        views = first.watch()
        await seen(views, lambda view: set(view) == {"n1"})
        holder = await ground.holder("n2")
        await seen(views, lambda view: set(view) == {"n1", "n2"})
        holder.die()
        await seen(views, lambda view: set(view) == {"n1"})

    run_leased(story)


def test_a_node_stays_a_member_for_many_times_its_lease(run_leased: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.open("n1").membership, ground.open("n2").membership
        await first.join(ground.member(1))
        views = aiter(second.watch())
        await anext(views)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * ground.options.lease_s):
                await anext(views)

    run_leased(story)


def test_a_node_that_was_paused_joins_again_by_itself(run_leased: Run):
    async def story(ground: Ground) -> None:
        first = ground.open("n1").membership
        await first.join(ground.member(1))
        views = first.watch()
        holder = await ground.holder("n2")
        await seen(views, lambda view: "n2" in view)
        holder.pause()
        await seen(views, lambda view: "n2" not in view)
        holder.resume()
        await seen(views, lambda view: "n2" in view)

    run_leased(story)


def test_a_name_is_refused_while_a_node_has_it_that_is_no_older_run(run_leased: Run):
    async def story(ground: Ground) -> None:
        first, second = ground.open("n1").membership, ground.open("n2").membership
        await first.join(ground.member(1, run=5))
        for run in (5, 4):
            impostor = ground.member(2, run=run)
            with pytest.raises(ClusterError, match=r"the name n1 is held by ws://127\.0\.0\.1"):
                await second.join(type(impostor)(name="n1", incarnation=run, url=impostor.url))
        view = await seen(second.watch(), bool)
        assert view == {"n1": ground.member(1, run=5)}
        # Refused is not joined: it may take another name.
        await second.join(ground.member(2))
        await seen(first.watch(), lambda view: len(view) == 2)

    run_leased(story)


def test_a_newer_run_takes_its_name_at_once_and_the_older_notices(run_leased: Run):
    async def story(ground: Ground) -> None:
        old, new, third = (ground.open(name).membership for name in ("n1", "n1-again", "n3"))
        await third.join(ground.member(3))
        views = third.watch()
        await old.join(ground.member(1, run=7))
        await seen(views, lambda view: view.get("n1") == ground.member(1, run=7))
        noticing = asyncio.create_task(old.replaced())
        # Larger than what fits a float: runs may be counted in nanoseconds.
        newer = ground.member(1, run=1_763_000_000_000_000_001)
        await new.join(newer)
        await seen(views, lambda view: view.get("n1") == newer)
        async with asyncio.timeout(WAIT_S):
            assert await noticing == newer
        # The older is no member any more: its end takes nothing from the newer.
        await old.close()
        await new.leave()
        await seen(views, lambda view: set(view) == {"n3"})

    run_leased(story)


def test_runs_are_compared_exactly(run_leased: Run):
    async def story(ground: Ground) -> None:
        old, new = ground.open("n1").membership, ground.open("n1-again").membership
        await old.join(ground.member(1, run=2**60))
        await new.join(ground.member(1, run=2**60 + 1))
        async with asyncio.timeout(WAIT_S):
            assert (await old.replaced()).incarnation == 2**60 + 1

    run_leased(story)


def test_nobody_joins_twice(run_leased: Run):
    async def story(ground: Ground) -> None:
        first = ground.open("n1").membership
        await first.join(ground.member(1))
        with pytest.raises(ClusterError, match="joined already"):
            await first.join(ground.member(1))

    run_leased(story)
