"""An app is told who is gone, by one node and by several on one port; polls reach them all."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from typing import Any

import pytest

import chappe.blocking

from .appserver import AppServer
from .conftest import StartNode
from .process import Api, NodeProcess

# Enough to close a connection and open another on a busy machine.
GRACE_S = 1.5
CONFIG = """
drain_s = 1.0
workers = {workers}
[presence]
grace_s = {grace_s}
"""


@pytest.fixture(scope="module", params=[1, 2], ids=["node", "workers"])
def told_node(
    request: pytest.FixtureRequest, start_node: StartNode, app_server: AppServer
) -> NodeProcess:
    return start_node(CONFIG.format(workers=request.param, grace_s=GRACE_S) + app_server.config)


def test_an_app_is_told_once_who_came_and_who_is_really_gone(
    told_node: NodeProcess, app_server: AppServer
) -> None:
    url = told_node.addresses["websocket"]
    with chappe.blocking.connect(url, as_="user:bob"):
        assert app_server.next() == ("came", "user:bob")
        # A second device comes and goes, and nobody is told.
        chappe.blocking.connect(url, as_="user:bob").close()
    # Back within the grace time: the next notice is about somebody else.
    with chappe.blocking.connect(url, as_="user:bob"):
        with chappe.blocking.connect(url, as_="user:al"):
            assert app_server.next() == ("came", "user:al")
        assert app_server.next() == ("gone", "user:al")
    assert app_server.next() == ("gone", "user:bob")


def test_a_polled_session_is_reached_over_every_connection(
    told_node: NodeProcess, app_server: AppServer
) -> None:
    with ExitStack() as stack:
        # Several processes share the port: new connections come to one or the other.
        apis = [stack.enter_context(closing(Api(told_node))) for _ in range(20)]

        def post(number: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
            status, answer = apis[number].request("POST", path, json.dumps(body).encode())
            assert status == 200, answer
            return json.loads(answer)  # type: ignore[no-any-return]

        session = post(0, "/v1/poll", {"as": "user:eve"})["session"]
        assert app_server.next() == ("came", "user:eve")
        batch = None
        for number in range(len(apis)):
            op = {"op": "send", "to": "user:eve", "data": number}
            post(number, f"/v1/poll/{session}/ops", op)
            got = post(-number, "/v1/poll", {"session": session, "ack": batch, "wait_ms": 20_000})
            assert [item["data"] for item in got["messages"]] == [number]
            batch = got["batch"]
        assert apis[-1].request("DELETE", f"/v1/poll/{session}")[0] == 200
        assert app_server.next() == ("gone", "user:eve")
