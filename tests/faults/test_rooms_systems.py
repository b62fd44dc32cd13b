"""Two systems of rooms over many machines, which have independent routers in common."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from .figures import FULL
from .rooms_layout import OutsideRedis, RoomsLayout, told

pytestmark = pytest.mark.timeout(300)

ROLES = {
    "g1": "hub,gateway",
    "g2": "hub,gateway",
    "w1": "proxy,broker",
    "w2": "proxy,broker",
    "r1": "router",
    **({"r2": "router"} if FULL else {}),
}
ROOMS = [f"room:{number}" for number in range(4)]
INDEPENDENT = "independent_routers = true\n"
BLUE = INDEPENDENT + 'system = "blue"\n'


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoomsLayout]:
    rooms = dict.fromkeys(ROLES, INDEPENDENT) | {"g2": BLUE, "w2": BLUE}
    layout = RoomsLayout(tmp_path_factory.mktemp("systems"), OutsideRedis, ROLES, rooms)
    yield layout
    layout.stop()


def carried(layout: RoomsLayout) -> list[float]:
    """How many messages the brokers of each system have carried."""
    brokers = layout.those("broker")
    return [
        sum(node.metric("rooms_messages_total", role="broker", partition=p) for p in ("0", "1"))
        for node in brokers
    ]


async def each_hears_the_other(layout: RoomsLayout) -> None:
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(layout.client("plain", 0))
        blue = await stack.enter_async_context(layout.client("blue", 1))
        for client in (plain, blue):
            await asyncio.gather(*(client.join(room) for room in ROOMS))
        before = carried(layout)
        for speaker in (plain, blue):
            for room in ROOMS:
                await speaker.publish(room, [speaker.address, room])
        said = sorted([f"user:{name}", room] for name in ("plain", "blue") for room in ROOMS)
        for client in (plain, blue):
            heard = [(await client.receive()).data for _ in said]
            assert sorted(heard) == said
        # Each system has carried what was published on its nodes.
        after = carried(layout)
        assert [now - then for now, then in zip(after, before, strict=True)] == [len(ROOMS)] * 2


def test_members_are_known_to_all_systems_that_share_routers(layout: RoomsLayout) -> None:  # R12
    told(layout, each_hears_the_other)


def test_a_doubling_of_routers_and_of_one_system_is_noticed_by_nobody(
    layout: RoomsLayout,
) -> None:  # R9, R12
    where = ("--registry", layout.registry.url, "--yes", "--json")
    assert layout.rooms("double", "--routers", *where)["partitions"] == 2
    assert layout.rooms("double", "--system", "blue", *where)["partitions"] == 2
    told(layout, each_hears_the_other)
    assert layout.nodes["g1"].metric("rooms_partition_num") == 1
    assert layout.nodes["g2"].metric("rooms_partition_num") == 2
