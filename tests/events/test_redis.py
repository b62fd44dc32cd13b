"""What is told of queues in Redis: whoever goes on with one says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import chappe.blocking
from chappe.errors import Overload
from chappe.node.sealing import seal
from tests.events.tables import check_serials, chunks_of, of, rows, until, until_told
from tests.faults.process import NodeProcess
from tests.faults.trio import CONFIG, ClusterNode, start_together
from tests.servers import RedisServer

EVENTS = "[events]\nenabled = true\nshare = 0.0\nseal_s = 3600\n"
QUEUE = "queue:jobs"


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the environment does not switch it off."""
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")


@pytest.fixture
def pair(tmp_path: Path, redis_server: RedisServer) -> Iterator[list[ClusterNode]]:
    secret = tmp_path / "secret"
    secret.write_text("a secret that only these two nodes know\n")
    queues = f'queues = "{redis_server.url}?prefix=told"\n'

    def start(name: str) -> ClusterNode:
        registry = f"{redis_server.url}?prefix=told-nodes"
        options = CONFIG.format(registry=registry, name=name, secret=secret)
        return ClusterNode(tmp_path / name, queues + options + EVENTS)

    nodes = start_together(start, ("n0", "n1"))
    yield nodes
    for node in nodes:
        node.kill()


def send(node: NodeProcess, count: int) -> list[int]:
    with chappe.blocking.connect(node.addresses["websocket"], as_="user:ann") as ann:
        ann.create(QUEUE)
        return [int(ann.send(QUEUE, n)) for n in range(count)]


def take(node: NodeProcess, count: int) -> list[int]:
    taken: list[int] = []

    def is_taken() -> bool:
        # While it is being opened nobody can be served.
        with suppress(Overload):
            for item in bob.fetch(QUEUE, n=count - len(taken)):
                item.ack()
                taken.append(int(item.id))
        return len(taken) == count

    with chappe.blocking.connect(node.addresses["websocket"], as_="user:bob") as bob:
        until(is_taken, "all is taken")
    return taken


def kinds_told(node: NodeProcess) -> set[str]:
    (log,) = (node.data / "events/_log").iterdir()
    until_told(log)
    return {run[0] for chunk in chunks_of(log) for run in chunk.runs}


def test_the_node_that_takes_a_queue_over_says_that_its_messages_still_wait(
    pair: list[ClusterNode],
) -> None:
    sent = send(pair[0], 5)
    (home,) = [node for node in pair if "stored" in kinds_told(node)]
    (other,) = [node for node in pair if node is not home]
    home.kill()
    assert take(other, 5) == sent
    other.stop()
    seal(home.data / "events")
    table = rows(*(node.data / "events" for node in pair))
    check_serials(table)
    assert [row["message"] for row in of(table, "stored")] == sent
    (recovered,) = of(table, "recovered")
    assert (recovered["target"], recovered["n"], recovered["app"]) == (QUEUE, 5, "default")
    (first, *_) = stored = of(table, "stored")
    assert {row["node"] for row in stored} == {first["node"]} != {recovered["node"]}
    lent = of(table, "lent")
    assert {(row["node"], row["boot"]) for row in lent} == {(recovered["node"], recovered["boot"])}
    assert recovered["serial"] < min(row["serial"] for row in lent)


def test_a_node_that_comes_back_says_that_it_goes_on(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    node = NodeProcess(tmp_path, f'queues = "{redis_server.url}?prefix=back"\n{EVENTS}')
    try:
        sent = send(node, 3)
        assert take(node, 1) == sent[:1]
        node.kill()
        node.start()
        assert take(node, 2) == sent[1:]
    finally:
        node.stop()
    table = rows(node.data / "events")
    check_serials(table)
    (recovered,) = of(table, "recovered")
    assert (recovered["target"], recovered["n"]) == (QUEUE, 2)
    assert recovered["boot"] == max(row["boot"] for row in table)
    # What was told is not told again.
    assert [row["message"] for row in of(table, "stored")] == sent
    assert [row["message"] for row in of(table, "acked")] == sent
