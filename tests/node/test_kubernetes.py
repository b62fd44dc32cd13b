"""Nodes that find each other by the DNS of a headless service, as Kubernetes serves it (H7)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chappe.client import connect
from chappe.cluster.options import ClusterOptions
from chappe.errors import ConfigError
from chappe.node.node import Node
from chappe.node.options import EventsOptions, NodeOptions
from chappe.registry.options import RegistryOptions
from tests.servers import DnsServer, free_port

SERVICE = "chappe-nodes.test.svc"


def options(folder: Path, address: str, port: int, dns: DnsServer, number: int | None):
    secret = folder / "secret"
    secret.write_text("a secret of more than thirty-two bytes, for tests")
    return NodeOptions(
        dev=True,
        port=0,
        http_port=0,
        tcp_port=0,
        data=str(folder / address),
        number=number,
        registry=f"kubernetes://{SERVICE}:{port}?dns=127.0.0.1:{dns.port}",
        leases=RegistryOptions(poll_s=0.1),
        events=EventsOptions(enabled=False),
        cluster=ClusterOptions(host=address, port=port, secret=str(secret), allow_plaintext=True),
    )


def test_nodes_meet_by_the_addresses_of_their_service(tmp_path: Path, dns_server: DnsServer):
    async def test() -> None:
        addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
        dns_server.tell(SERVICE, addresses)
        port = free_port()
        nodes = []
        for number, address in enumerate(addresses):
            node = Node(options(tmp_path, address, port, dns_server, number))
            await node.start()
            nodes.append(node)
        assert [node.name for node in nodes] == ["127-0-0-2", "127-0-0-3", "127-0-0-4"]
        for node in nodes:
            others = {one.name for one in nodes if one is not node}
            await node.neighbourhood.cluster.wait_for(others)
        alice = await connect(nodes[0].addresses()["tcp"], as_="user:alice")
        bob = await connect(nodes[2].addresses()["tcp"], as_="user:bob")
        await alice.send("user:bob", "found")
        assert (await bob.receive()).data == "found"
        await alice.close()
        await bob.close()
        for node in nodes:
            await node.drain()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_node_whose_number_nobody_can_give_says_what_to_do(
    tmp_path: Path, dns_server: DnsServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("socket.gethostname", lambda: "nothing")

    async def test() -> None:
        dns_server.tell(SERVICE, ["127.0.0.2"])
        node = Node(options(tmp_path, "127.0.0.2", free_port(), dns_server, None))
        with pytest.raises(ConfigError, match="number: kubernetes:// cannot give nodes"):
            await node.start()

    asyncio.run(asyncio.wait_for(test(), 30))
