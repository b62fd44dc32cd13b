"""What happens when processes of rooms die, stop, or sleep: others take over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from chappe.client import Client

from .figures import percentiles, tell
from .room_traffic import RATE, SETTLE_S, members_everywhere
from .rooms_layout import BEAT_S, LEASE_S, TAKEOVER_S, RoleNode, RoomsLayout
from .trio import until


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


async def roles_are_restarted(layout: RoomsLayout, roles: Sequence[str], times: int) -> None:
    """Whoever is told to stop lets others know first: nothing is lost."""
    moments: list[tuple[float, str]] = []

    def note(what: str) -> None:
        moments.append((time.monotonic(), what))

    async with members_everywhere(layout) as traffic:
        for turn in range(times):
            for role in roles:
                nodes = layout.those(role)
                node = nodes[turn % len(nodes)]
                await traffic.published(20)
                note(f"{role} stops")
                await asyncio.to_thread(node.stop)
                note(f"{role} has stopped")
                await traffic.published(20)
                note(f"{role} starts")
                await asyncio.to_thread(node.start)
                note(f"{role} is ready")
                await layout.whole()
                if role == "broker":
                    await _works(node)
        await traffic.published(20)
        await traffic.stop()
    when = [_since(moments, traffic.sent[n].at) for at in (0, 1) for n in traffic.lost(at)]
    tell(
        f"rooms: {', '.join(roles)} restarted in good order",
        times=times,
        messages=len(traffic.sent),
        lost=len(when),
    )
    assert not when
    assert not traffic.refused
    assert not traffic.twice()


def _since(moments: Sequence[tuple[float, str]], at: float) -> str:
    """What happened last before a moment, and how long before it."""
    before = [(then, what) for then, what in moments if then <= at]
    then, what = before[-1] if before else (at, "begun")
    return f"{what}, {at - then:.3f} s ago"


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
