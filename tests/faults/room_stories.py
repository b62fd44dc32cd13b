"""What happens to rooms over many machines: datagrams get lost, processes die, sleep, come back."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from chappe.client import Client
from chappe.registry.url import open_registry
from chappe.rooms.options import RoomsOptions
from chappe.rooms.paths import paths_of
from chappe.store.url import open_store

from .figures import percentiles, tell
from .room_traffic import SETTLE_S, Traffic, going_on
from .rooms_layout import BEAT_S, LEASE_S, TAKEOVER_S, RoleNode, RoomsLayout
from .rooms_up import RoomsUp
from .trio import until

# Of publisher, proxy, broker and gateway: what one sends comes over three hops to the next.
HOPS = 3
COPIES = 3
# So many messages a second where it does not matter how many.
RATE = 100.0
# And here: far enough from each other that each leaves in a datagram of its own.
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


@asynccontextmanager
async def members_everywhere(
    layout: RoomsLayout | RoomsUp, rate: float = RATE, *others: int
) -> AsyncIterator[Traffic]:
    """Publishers on the first gateway, and a member on each of both."""
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(layout.client(f"p{at}", 0)) for at in range(2)
        ]
        stays = await stack.enter_async_context(layout.client("stays", 0))
        wanders = await stack.enter_async_context(layout.client("wanders", 1, *others))
        yield await stack.enter_async_context(
            going_on(Traffic(publishers, [stays, wanders], rate=rate))
        )


async def a_role_is_killed(layout: RoomsLayout, role: str, times: int) -> None:
    """Others take over; nothing comes twice, and nothing is lost when they have."""
    lasts: list[float] = []
    counts: list[int] = []
    joins: list[float] = []
    async with members_everywhere(layout) as traffic:
        wanders = traffic.members[1]
        for turn in range(times):
            nodes = layout.those(role)
            node = nodes[turn % len(nodes)]
            await traffic.published(50)
            began = time.monotonic()
            node.kill()
            # Rooms are joined meanwhile: whoever is to know of them is told until it does.
            new = [f"room:{role}-{turn}-{each}" for each in range(8)]
            await asyncio.gather(*(wanders.join(room) for room in new))
            joins.append(time.monotonic() - began)
            await asyncio.sleep(max(0.0, began + 2 * BEAT_S - time.monotonic()))
            await asyncio.to_thread(node.start)
            await layout.whole()
            if role == "broker":
                await _works(node)
            await traffic.published(50)
            for each, room in enumerate(new):
                await traffic.publish(room, -1 - each)
            ended = time.monotonic()
            await asyncio.sleep(SETTLE_S)
            lost = [traffic.lost(at, began, ended) for at in (0, 1)]
            counts.append(sum(map(len, lost)))
            lasts.append(traffic.last_loss(began, ended))
            if role == "router":
                assert not counts[-1], "a router has nothing to do with messages"
            assert lasts[-1] <= TAKEOVER_S, (lasts, counts)
            await asyncio.gather(*(wanders.leave(room) for room in new))
            heard = traffic.got[1]
            assert [heard.pop(-1 - each, 0) for each in range(8)] == [1] * 8
    assert not traffic.twice()
    tell(
        f"rooms: a {role} is killed",
        kills=times,
        messages=len(traffic.sent),
        lost=sum(counts),
        **percentiles("last loss", lasts),
        **{"in beats, at most": round(max(lasts) / BEAT_S, 2)},
        **percentiles("joins", joins),
    )


async def a_gateway_is_killed(layout: RoomsLayout, times: int) -> None:
    """Members of others notice nothing; its own come back elsewhere, and miss nothing from then."""
    sent = lost = 0
    back: list[float] = []
    for _ in range(times):
        async with members_everywhere(layout, RATE, 0) as traffic:
            wanders = traffic.members[1]
            gateway = layout.those("gateway")[1]
            await traffic.published(30)
            began = time.monotonic()
            gateway.kill()

            def returned(wanders: Client = wanders) -> bool:
                return wanders.reconnects > 0 and wanders.connected

            await until(returned, "the member has joined again")
            joined = time.monotonic()
            await asyncio.to_thread(gateway.start)
            await traffic.published(30)
            await traffic.stop()
        assert not traffic.lost(0), "a member of another gateway misses some"
        assert not traffic.lost(1, joined), "a member that is back misses some"
        assert not traffic.twice()
        sent += len(traffic.sent)
        lost += len(traffic.lost(1))
        back.append(joined - began)
    tell(
        "rooms: a gateway is killed",
        kills=times,
        messages=sent,
        **{"lost to its own members": lost},
        **percentiles("until they are back", back),
    )


async def a_broker_sleeps(layout: RoomsLayout, times: int) -> None:
    """Whoever answers nothing is passed over within two beats, and comes back when it answers."""
    lasts: list[float] = []
    counts: list[int] = []
    async with members_everywhere(layout) as traffic:
        for turn in range(times):
            broker = layout.those("broker")[turn % 2]
            await traffic.published(50)
            began = time.monotonic()
            broker.hold()
            try:
                # In every other turn for so long that it loses its seat as well.
                await asyncio.sleep(TAKEOVER_S + (LEASE_S if turn % 2 else 0) + SETTLE_S)
                ended = time.monotonic() - SETTLE_S
                lasts.append(traffic.last_loss(began, ended))
                counts.append(len({n for at in (0, 1) for n in traffic.lost(at, began, ended)}))
            finally:
                broker.resume()
            assert counts[-1], "nothing went by a broker that slept"
            assert lasts[-1] <= TAKEOVER_S, (lasts, counts)
            woken = time.monotonic()
            await _works(broker)
            await traffic.published(50)
            ended = time.monotonic()
            await asyncio.sleep(SETTLE_S)
            assert not any(traffic.lost(at, woken, ended) for at in (0, 1))
    assert not traffic.twice()
    tell(
        "rooms: a broker sleeps",
        times=times,
        messages=len(traffic.sent),
        **{"late or lost": sum(counts)},
        **percentiles("last loss", lasts),
        **{"in beats, at most": round(max(lasts) / BEAT_S, 2)},
    )


async def _works(broker: RoleNode) -> None:
    """Wait until messages go by a broker again."""

    def taken() -> float:
        return broker.metric("rooms_messages_total", role="broker", partition="0")

    before = await asyncio.to_thread(taken)
    # What waited in its socket it takes at once.
    await asyncio.sleep(BEAT_S)
    before = max(before, await asyncio.to_thread(taken))

    async def more() -> bool:
        return await asyncio.to_thread(taken) > before

    await until(more, "messages go by the broker again")


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
