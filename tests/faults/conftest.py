"""Nodes to ill-treat, and a witness who must not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import chappe.blocking

from .appserver import AppServer
from .process import Api, NodeProcess

StartNode = Callable[..., NodeProcess]


class Witness:
    """A well-behaved client on the node, whose messages come back to it."""

    def __init__(self, node: NodeProcess, edge: str = "websocket") -> None:
        self.client = chappe.blocking.connect(node.addresses[edge], as_="user:witness")
        self.client.subscribe("topic:witness")
        self._count = 0

    def notices_nothing(self) -> None:
        """Send and publish, receive both, and see that the connection never broke."""
        self._count += 1
        self.client.send("user:witness", self._count)
        self.client.publish("topic:witness", self._count)
        assert [self.client.receive(30).data for _ in range(2)] == [self._count] * 2
        assert self.client.reconnects == 0


@pytest.fixture(scope="module")
def start_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartNode]:
    """Starts nodes; those that still run at the end must end well."""
    with ExitStack() as nodes:

        def start(config: str = "", **options: object) -> NodeProcess:
            folder: Path = tmp_path_factory.mktemp("node")
            node = NodeProcess(folder, config, **options)
            nodes.callback(node.stop)
            return node

        yield start


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, start_node: StartNode) -> NodeProcess:
    """A node for development, with the module's own `CONFIG`."""
    return start_node(getattr(request.module, "CONFIG", ""))


@pytest.fixture(scope="module")
def witness(node: NodeProcess) -> Iterator[Witness]:
    """A client that is there all the time."""
    witness = Witness(node)
    with witness.client:
        yield witness


@pytest.fixture
def api(node: NodeProcess) -> Iterator[Api]:
    """The node's HTTP API."""
    api = Api(node)
    yield api
    api.close()


@pytest.fixture(scope="module")
def app_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    """The server of an app that has a hook."""
    server = AppServer(tmp_path_factory.mktemp("app"))
    yield server
    server.close()
