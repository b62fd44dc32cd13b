"""Probes over real sockets: what they find of processes that work, and of one that does not."""

from __future__ import annotations

import msgspec
import pytest
import uvloop

from chappe.rooms.linkstats import LinkRow
from chappe.rooms.metrics import metrics_of
from chappe.rooms.options import ProbeOptions
from chappe.rooms.weighing import NamedWeights
from chappe.wire.rooms import RoleKind
from tests.rooms.test_process import node, play, until
from tests.rooms.world import ALL, BROKER, HUB, OPTIONS, PROXY, ROUTER, Node, World

PROBING = msgspec.structs.replace(
    OPTIONS, probe=ProbeOptions(every_s=0.1, timeout_s=0.2, alarm_failures=3)
)


async def layout(world: World) -> None:
    """Two proxies, two brokers of one partition, two gateways, a router: each on its own."""
    for name, roles in (
        ("b0", {BROKER}),
        ("b1", {BROKER}),
        ("r", {ROUTER}),
        ("p0", {PROXY}),
        ("p1", {PROXY}),
        ("g0", HUB),
        ("g1", HUB),
    ):
        await world.start(name, frozenset(roles))
    await world.settled()


def rows(gateway: Node) -> dict[tuple[str, str], LinkRow]:
    """The links as a gateway's probes found them, by the names at their ends."""
    return {(row.link.tail.name, row.link.head.name): row for row in gateway.process.links()}


def alarms(gateway: Node) -> set[tuple[str, str]]:
    return {ends for ends, row in rows(gateway).items() if row.alarms}


def deafen(one: Node) -> None:
    """Let it be in the registry, and take nothing any more."""
    one.process.dispatch.hand = lambda op, source, now: None  # type: ignore[method-assign]


def play_probing(story) -> None:
    play(story, world=lambda: World(PROBING), runner=uvloop.run)


def test_every_gateway_finds_all_links_and_none_of_them_fails():  # R15
    async def story(world: World) -> None:
        await layout(world)
        for name in ("g0", "g1"):
            gateway = node(world, name)
            await until(lambda gateway=gateway: len(rows(gateway)) == 8)
            await until(lambda gateway=gateway: min(r.arrived for r in rows(gateway).values()) > 5)
            assert rows(gateway).keys() == {
                *((name, proxy) for proxy in ("p0", "p1")),
                *((proxy, broker) for proxy in ("p0", "p1") for broker in ("b0", "b1")),
                *((broker, name) for broker in ("b0", "b1")),
            }
            for row in rows(gateway).values():
                assert row.share > 0.9
                assert row.p50_us is not None
                assert row.p50_us < 100_000

    play_probing(story)


def test_a_node_alone_probes_itself():
    async def story(world: World) -> None:
        alone = await world.start("n1", ALL, alone=True)
        await until(lambda: len(rows(alone)) == 1 and len(alone.process.links()) == 3)
        assert {(row.link.tail.role, row.link.head.role) for row in alone.process.links()} == {
            (RoleKind.PUBLISHER, RoleKind.PROXY),
            (RoleKind.PROXY, RoleKind.BROKER),
            (RoleKind.BROKER, RoleKind.GATEWAY),
        }
        assert not alone.hall.got

    play_probing(story)


@pytest.mark.parametrize(("name", "link"), [("p1", ("g0", "p1")), ("b1", ("b1", "g0"))])
def test_a_process_that_takes_nothing_raises_an_alarm_of_its_link(name, link):  # R15
    async def story(world: World) -> None:
        await layout(world)
        gateway = node(world, "g0")
        await until(lambda: len(rows(gateway)) == 8)
        deafen(node(world, name))
        await until(lambda: bool(alarms(gateway)))
        assert alarms(gateway) == {link}

    play_probing(story)


def test_what_is_told_of_rooms_is_what_is_there():
    async def story(world: World) -> None:
        await layout(world)
        gateway = node(world, "g0")
        await gateway.join("lounge")
        await until(lambda: len(rows(gateway)) == 8)
        status = gateway.process.status()
        assert [(each.node, each.alive) for each in status.proxies] == [("p0", True), ("p1", True)]
        assert [each.node for each in status.brokers] == ["b0", "b1"]
        assert [(each.node, each.alive) for each in status.routers] == [("r", True)]
        router = node(world, "r").process.status()
        assert [(each.node, each.alive) for each in router.brokers] == [("b0", True), ("b1", True)]
        assert router.roles[0].load["rows"] >= 2  # the room, and a pseudo room
        broker = node(world, "b0").process.status().roles[0]
        assert (broker.role, broker.partition, broker.state) == ("broker", 0, "running")
        assert broker.load["members"] >= 1
        assert any(
            sample.value for family in metrics_of(gateway.process) for sample in family.samples
        )
        await gateway.process.weigh(NamedWeights(proxies={status.proxies[0].node: 0.0}))
        other = node(world, "g1").process
        await until(lambda: [each.weight for each in other.status().proxies] == [0.0, None])

    play_probing(story)
