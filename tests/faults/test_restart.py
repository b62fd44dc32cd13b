"""Death and return: ids only grow, a folder has one owner, options are checked before anything."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

import chappe.blocking
from chappe.ids import EPOCH_MS, RESERVE_MS, snowflake_ms

from .conftest import StartNode
from .process import COMMAND, NodeProcess

HOUR_MS = 3_600_000


def publish(node: NodeProcess, count: int = 100) -> list[int]:
    """Publish a few messages; return their ids."""
    with chappe.blocking.connect(node.addresses["websocket"], as_="user:a") as client:
        return [int(client.publish("topic:a", n).message) for n in range(count)]


def floor_ms(node: NodeProcess) -> int:
    """The time up to which ids were reserved, since 1970."""
    return int((node.data / "ids.floor").read_text()) + EPOCH_MS


def refused(tmp_path: Path, *arguments: str) -> str:
    """Start a node that must not start; return what it said."""
    ports = ["--port", "0", "--http-port", "0", "--tcp-port", "0"]
    done = subprocess.run(
        [COMMAND, "serve", *ports, "--data", str(tmp_path / "data"), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    # One line, after the warning that development mode may print.
    return done.stderr.strip().splitlines()[-1]


def test_ids_go_on_growing_after_kill_9(start_node: StartNode) -> None:
    node = start_node()
    given: list[int] = []
    for _ in range(3):
        given += publish(node)
        # Whatever was given lies below what is on disk, so whoever comes next starts above.
        assert snowflake_ms(given[-1]) < floor_ms(node)
        node.kill()
        node.start()
    given += publish(node)
    assert given == sorted(set(given))


def test_ids_go_on_growing_when_the_clock_has_stepped_back(start_node: StartNode) -> None:
    node = start_node()
    before = publish(node)
    node.kill()
    # As it would lie there had the node lived an hour ahead of the clock it finds now.
    ahead_ms = int(time.time() * 1000) + HOUR_MS
    (node.data / "ids.floor").write_text(f"{ahead_ms - EPOCH_MS}\n")
    node.start()
    after = publish(node)
    assert [*before, *after] == sorted({*before, *after})
    assert all(snowflake_ms(message) > ahead_ms for message in after)
    assert floor_ms(node) >= ahead_ms + RESERVE_MS


def test_torn_write_beside_the_floor_does_no_harm(start_node: StartNode) -> None:
    node = start_node()
    before = publish(node)
    node.kill()
    (node.data / "ids.new").write_text("99")
    (node.data / "ids.floor.new").write_text("99")
    node.start()
    assert publish(node)[0] > before[-1]


@pytest.mark.parametrize("text", ["", "1.5"])
def test_floor_that_cannot_be_read_is_not_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ids.floor").write_text(text)
    assert "ids.floor cannot be read" in refused(tmp_path, "--dev")


def test_second_node_on_the_same_folder_is_refused(start_node: StartNode) -> None:
    node = start_node()
    assert "is in use by another node" in refused(node.data.parent, "--dev")
    assert publish(node)
    node.kill()
    node.start()  # a dead owner holds nothing


def test_port_in_use_is_named(start_node: StartNode, tmp_path: Path) -> None:
    port = start_node().addresses["tcp"].rpartition(":")[2]
    said = refused(tmp_path, "--dev", "--tcp-port", port)
    assert f"cannot listen on 127.0.0.1:{port}" in said


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("prot = 1", "prot"),
        ("[hub]\nheartbeat = 1", "heartbeat"),
        ("[hub.quotas.shop]\nmessages = 1", "messages"),
        ("[hub]\noutbox_bytes_max = 1", "hub.outbox_bytes_max"),
        ('host = "0.0.0.0"', "host"),
        ('[tls]\ncert = "/nowhere"\nkey = "/nowhere"', "tls"),
        ("not toml", "--config"),
    ],
)
def test_option_that_makes_no_sense_is_named(tmp_path: Path, config: str, named: str) -> None:
    (tmp_path / "node.toml").write_text(config)
    assert named in refused(tmp_path, "--dev", "--config", str(tmp_path / "node.toml"))


def test_node_that_would_let_nobody_in_does_not_start(tmp_path: Path) -> None:
    assert "access.keys" in refused(tmp_path)
