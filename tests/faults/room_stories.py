"""What happens to rooms over machines: datagrams lost, servers restarted, partitions doubled."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from chappe.registry.url import open_registry
from chappe.rooms.options import RoomsOptions
from chappe.rooms.paths import paths_of
from chappe.store.url import open_store

from .figures import tell
from .room_traffic import Traffic, going_on, members_everywhere
from .rooms_layout import LEASE_S, RoomsLayout
from .rooms_up import RoomsUp
from .trio import until

# Of publisher, proxy, broker and gateway: what one sends comes over three hops to the next.
HOPS = 3
COPIES = 3
# So many messages a second, far enough from each other that each leaves in a datagram of its own.
LOSSY_RATE = 200.0


async def datagrams_are_lost(layout: RoomsLayout, share: float, n: int) -> None:
    """Of normal messages so many arrive as hops let through, of reliable ones nearly all."""
    normal_share = (1 - share) ** HOPS
    reliable_share = 1 - (1 - normal_share) ** COPIES
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(layout.client(f"l{at}", at)) for at in (0, 1)]
        hearers = [await stack.enter_async_context(layout.client(f"h{at}", at)) for at in (0, 1)]
        others = [f"room:{number}" for number in range(100, 108)]
        normal = Traffic(clients, hearers[:1], rate=LOSSY_RATE, steady=True)
        reliable = Traffic(
            clients, hearers[1:], rate=LOSSY_RATE, steady=True, reliable=True, rooms=others
        )
        async with going_on(normal), going_on(reliable):
            layout.segment.lose(share)
            try:
                began = time.monotonic()
                await asyncio.gather(normal.published(n), reliable.published(n))
                await asyncio.gather(normal.stop(), reliable.stop())
            finally:
                layout.segment.lose(0)
        found = {}
        for name, traffic, expected in (
            ("normal", normal, normal_share),
            ("reliable", reliable, reliable_share),
        ):
            sent = sum(one.at >= began for one in traffic.sent.values())
            lost = len(traffic.lost(0, began))
            assert not traffic.twice()
            found[name] = (sent, lost, expected)
        tell(
            f"rooms: {share:.0%} of datagrams lost on every hop",
            **{f"{name} messages": sent for name, (sent, _, _) in found.items()},
            **{
                f"{name} that arrived": round(1 - lost / sent, 5)
                for name, (sent, lost, _) in found.items()
            },
            **{f"{name} by chance": round(by, 5) for name, (_, _, by) in found.items()},
        )
        # What stays in order is what arrives at all.
        assert not list(normal.disordered())
        for name, (sent, lost, expected) in found.items():
            spread = 4 * math.sqrt(sent * expected * (1 - expected)) + 1
            assert lost <= sent * (1 - expected) + spread, (name, sent, lost)
        sent, lost, expected = found["normal"]
        # Or no datagram was lost at all, and nothing has been shown.
        assert lost >= sent * (1 - expected) / 2, (sent, lost)


async def the_registry_restarts(
    layout: RoomsLayout, restart: Callable[[], None], what: str, times: int
) -> None:
    """Messages go on; what it forgot it is told again."""
    number = layout.partitions()
    async with members_everywhere(layout) as traffic:
        for _ in range(times):
            await traffic.published(20)
            await asyncio.to_thread(restart)
            # Longer than those who do not come back are remembered.
            await asyncio.sleep(LEASE_S + 1)
            await until(lambda: _registered(layout, number), "all are in the registry again")
            await traffic.published(50)
        await traffic.stop()
        lost = [len(traffic.lost(at)) for at in (0, 1)]
        tell(f"rooms: {what}", times=times, messages=len(traffic.sent), lost=sum(lost))
        assert not any(lost)
        assert not traffic.refused
        assert not traffic.twice()
    await layout.whole()


async def _registered(layout: RoomsLayout, number: int) -> bool:
    """Whether the registry has everybody, and as many partitions as before."""
    registry = open_registry(layout.registry.url, name="looks")
    try:
        coordination = registry.coordinate("rooms")
        paths = paths_of(RoomsOptions())
        known = await coordination.get(paths.brokers.number)
        if known is None or int(known.value) != number:
            return False
        for path, role in (
            (paths.proxies, "proxy"),
            (paths.routers, "router"),
            *((paths.brokers.row(each), "broker") for each in range(number)),
        ):
            async for seats in coordination.watch_seats(path):
                if len(seats) != len(layout.those(role)):
                    return False
                break
        return True
    finally:
        await registry.close()


async def the_store_restarts(layout: RoomsLayout) -> None:
    """Joins go on while it is away, and brokers that start later learn of them from it."""
    room = "room:stored"
    async with members_everywhere(layout) as traffic:
        member = traffic.members[1]
        layout.store.kill()
        try:
            await member.join(room)
            await traffic.published(20)
        finally:
            await asyncio.to_thread(layout.store.start)
        await until(lambda: _stored(layout, room), "the room is in the store")
        await traffic.stop()
        assert not any(traffic.lost(at) for at in (0, 1))
        assert not traffic.twice()


async def _stored(layout: RoomsLayout, room: str) -> bool:
    """Whether the store knows that somebody is in a room."""
    store = open_store(layout.store.url, Path())
    try:
        async for page in store.scan("rooms"):
            if any(room.removeprefix("room:") in key for key, _ in page):
                return True
        return False
    finally:
        await store.close()


async def partitions_are_doubled(
    layout: RoomsLayout | RoomsUp, rate: float, upto: int, of: str = "many machines"
) -> None:
    """Twice as many while messages go on, and none is lost."""
    overrun = layout.overrun()
    async with members_everywhere(layout, rate) as traffic:
        began = number = layout.partitions()
        start = time.monotonic()
        while number < upto:
            await traffic.published(int(rate / 2))
            done = await asyncio.to_thread(layout.double)
            number *= 2
            assert done["ok"]
            assert done["partitions"] == number, done
            await layout.whole()
            await traffic.published(int(rate / 2))
        took = time.monotonic() - start
        await traffic.stop()
        lost = [len(traffic.lost(at)) for at in (0, 1)]
        tell(
            f"rooms: partitions of {of} doubled from {began} to {number}",
            messages=len(traffic.sent),
            **{"a second": round(len(traffic.sent) / took), "lost": sum(lost)},
            refused=traffic.refused,
            **{"datagrams that came too fast": layout.overrun() - overrun},
        )
        assert not any(lost), lost
        assert not traffic.refused
        assert not traffic.twice()
