"""Members by DNS, from a real DNS server."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import ClusterError, ConfigError
from chappe.registry.kubernetes import node_name
from chappe.registry.membership import Member
from chappe.registry.options import RegistryOptions
from chappe.registry.url import open_registry
from tests.registry.grounds import seen
from tests.servers import DnsServer

OPTIONS = RegistryOptions(poll_s=0.05, timeout_s=0.5)


def url(server: DnsServer, service: str) -> str:
    return f"kubernetes://{service}?dns=127.0.0.1:{server.port}"


def test_every_address_is_a_node_of_either_family(dns_server: DnsServer):
    async def story() -> None:
        dns_server.tell("both.svc", ["10.0.0.7", "fd00::7"])
        membership = open_registry(url(dns_server, "both.svc") + "&tls=true", OPTIONS).membership
        view = await seen(membership.watch(), lambda view: len(view) == 2)
        assert view == {
            "10-0-0-7": Member(name="10-0-0-7", incarnation=0, url="wss://10.0.0.7:7403"),
            "fd00--7": Member(name="fd00--7", incarnation=0, url="wss://[fd00::7]:7403"),
        }
        assert node_name("10.0.0.7") == "10-0-0-7"

    asyncio.run(story())


def test_the_node_itself_is_seen_before_dns_knows_it_and_with_its_run(dns_server: DnsServer):
    async def story() -> None:
        dns_server.tell("early.svc", ["10.0.0.8"])
        membership = open_registry(url(dns_server, "early.svc"), OPTIONS).membership
        me = Member(name="10-0-0-7", incarnation=42, url="ws://10.0.0.7:7403")
        await membership.join(me)
        view = await seen(membership.watch(), lambda view: len(view) == 2)
        assert view["10-0-0-7"] == me
        await membership.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("name", "address", "reason"),
    [("n1", "ws://10.0.0.7:7403", "is 10-0-0-7, not n1"), ("n1", "ws://pod:7403", "IP address")],
)
def test_a_name_that_others_would_not_derive_is_refused(
    dns_server: DnsServer, name: str, address: str, reason: str
):
    membership = open_registry(url(dns_server, "x.svc"), OPTIONS).membership
    with pytest.raises(ConfigError, match=reason):
        asyncio.run(membership.join(Member(name=name, incarnation=1, url=address)))


def test_while_dns_is_away_the_last_view_stands(
    dns_server: DnsServer, tmp_path_factory: pytest.TempPathFactory
):
    async def story() -> None:
        server = DnsServer(tmp_path_factory.mktemp("dns"))
        server.tell("away.svc", ["10.0.0.7", "10.0.0.8"])
        membership = open_registry(url(server, "away.svc"), OPTIONS).membership
        views = membership.watch()
        await seen(views, lambda view: len(view) == 2)
        server.kill()
        coming = asyncio.create_task(anext(views))
        with pytest.raises(ClusterError, match=r"away\.svc"):
            await membership.join(Member(name="10-0-0-9", incarnation=1, url="ws://10.0.0.9:7403"))
        assert not coming.done()
        await asyncio.to_thread(server.start)
        server.tell("away.svc", ["10.0.0.7"])
        assert set(await coming) == {"10-0-0-7"}
        server.kill()

    asyncio.run(story())


def test_what_needs_more_than_members_is_refused_with_a_reason(dns_server: DnsServer):
    registry = open_registry(url(dns_server, "x.svc"), OPTIONS)
    assert registry.coordination is None
    with pytest.raises(ConfigError, match="kubernetes knows members only, and promotion needs"):
        registry.coordinate("promotion")
