"""`chappe cluster` against two real nodes on a real Redis, and the example of three."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chappe.blocking import connect
from tests.cli.process import Served, run, serving, started
from tests.servers import RedisServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.py"


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> Iterator[tuple[Served, Served]]:
    folder = tmp_path_factory.mktemp("pair")
    secret = folder / "secret"
    secret.write_text("a secret of more than thirty-two bytes, for tests")
    common = ("--dev", "--registry", f"{redis_server.url}?prefix=cli")
    common += ("--cluster-secret-file", str(secret), "--cluster-port", "0")
    with (
        serving(folder / "a", *common, "--name", "left") as left,
        serving(folder / "b", *common, "--name", "right") as right,
    ):
        yield left, right


def shown_by(node: Served) -> dict[str, Any]:
    """What `chappe cluster` finds when it asks that node."""
    shown = node.run("cluster", "--json", "--as", "user:admin", "--routes", "10")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)  # type: ignore[no-any-return]


def test_the_nodes_and_their_links_are_shown(pair: tuple[Served, Served]) -> None:
    shown = run("cluster", "--as", "user:admin", "--http", pair[0].addresses["http"])
    assert shown.returncode == 0, shown.stderr
    assert "2 nodes" in shown.stdout
    assert "left" in shown.stdout
    assert "right" in shown.stdout


def test_each_node_tells_of_its_own_link_and_sessions(pair: tuple[Served, Served]) -> None:
    left, right = pair
    with connect(right.addresses["websocket"], as_="user:bob"):
        found = shown_by(left)
        deadline = time.monotonic() + 30
        # The other node is told of a user a moment after it came.
        while not found["routes"] and time.monotonic() < deadline:
            found = shown_by(left)
    nodes = {node["name"]: node for node in found["nodes"]}
    assert {name: [link["peer"] for link in node["links"]] for name, node in nodes.items()} == {
        "left": ["right"],
        "right": ["left"],
    }
    assert nodes["right"]["endpoints"] == 1
    assert nodes["left"]["routes"] == 1
    assert found["routes"] == [{"address": "user:bob", "nodes": ["right"]}]


def test_the_example_of_three_nodes_does_what_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLE],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert [line.split()[0] for line in told[:3]] == ["node-1", "node-2", "node-3"]
    assert told[3:] == [
        "bob got: hello, wherever you are",
        "user:alice got: three nodes, one cluster",
        "user:bob got: three nodes, one cluster",
        "user:carol got: three nodes, one cluster",
        "carol's node ends without a warning",
        "user:alice got: and then there were two",
        "user:bob got: and then there were two",
        "user:carol got: and then there were two",
    ]
    # The README shows what is seen, but for the ports.
    ports = re.compile(r":\d+$", re.MULTILINE)
    shown = (EXAMPLE.parents[1] / "README.md").read_text()
    assert f"```\n{ports.sub('', done.stdout)}```" in ports.sub("", shown)


def test_a_name_that_a_living_node_has_is_left_to_it(
    pair: tuple[Served, Served], tmp_path: Path, redis_server: RedisServer
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("another secret of more than thirty-two bytes")
    refused = run(
        *("serve", "--dev", "--port", "0", "--http-port", "0", "--tcp-port", "0"),
        *("--cluster-port", "0", "--cluster-secret-file", str(secret), "--name", "left"),
        *("--registry", f"{redis_server.url}?prefix=cli", "--data", str(tmp_path / "data")),
    )
    assert refused.returncode == 2
    assert "name: left is the node at ws://127.0.0.1:" in refused.stderr
    shown = run("cluster", "--json", "--as", "user:a", "--http", pair[1].addresses["http"])
    assert [node["name"] for node in json.loads(shown.stdout)["nodes"]] == ["left", "right"]


def test_a_node_that_is_told_to_stop_while_it_starts_does_so_at_once(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of more than thirty-two bytes, for tests")
    redis_server.hold()
    try:
        with started(
            *("serve", "--dev", "--port", "0", "--http-port", "0", "--tcp-port", "0"),
            *("--cluster-port", "0", "--cluster-secret-file", str(secret)),
            *("--registry", redis_server.url, "--data", str(tmp_path / "data")),
        ) as process:
            floor = tmp_path / "data" / "ids.floor"
            deadline = time.monotonic() + 30
            while not floor.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.terminate()
            said, _ = process.communicate(timeout=60)
            assert process.returncode == 0
            assert "ready" not in said
    finally:
        redis_server.resume()
