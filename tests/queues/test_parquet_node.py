"""Real nodes that copy their queues to Parquet, and are killed while they do."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import chappe.blocking
from chappe.errors import ConfigError
from chappe.node.copying import Copying
from chappe.node.options import NodeOptions, ParquetOptions
from tests.faults.process import Api, NodeProcess
from tests.queues.parquet_segment import files, rows

CONFIG = """
[journal]
segment_bytes = 32768
[parquet]
enabled = true
"""
PAYLOAD = "x" * 2_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path, CONFIG)
    yield node
    node.stop()


def until(true: Callable[[], object], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def send(node: NodeProcess, n: int, *, consumed: bool = False) -> None:
    with chappe.blocking.connect(node.addresses["websocket"], as_="user:ann") as client:
        client.create("queue:jobs")
        for number in range(n):
            client.send("queue:jobs", [number, PAYLOAD])
            if consumed:
                for item in client.fetch("queue:jobs"):
                    item.ack()


def sealed(node: NodeProcess) -> list[int]:
    """Where the sealed segments begin, and then the one that is written."""
    return sorted(int(path.stem, 16) for path in (node.data / "journals/node").glob("*.log"))


def copied(node: NodeProcess) -> list[int]:
    notes = (node.data / "parquet/copied/node").glob("*.json")
    return sorted(int(path.name.partition("-")[0], 16) for path in notes)


def copying_processes(node: NodeProcess) -> list[int]:
    """The processes that copy for a node, living or forgotten."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b"chappe.node.copier" in command and bytes(node.data) in command:
                found.append(int(entry.name))
    return found


def all_copied(node: NodeProcess) -> bool:
    return set(sealed(node)[:-1]) <= set(copied(node))


def test_a_node_copies_what_it_seals_and_lets_it_go_only_then(node: NodeProcess):
    """Retention waits for the copy: what is gone from the journal is in the tables."""
    send(node, 120, consumed=True)
    until(lambda: all_copied(node) and sealed(node)[0] > 0)
    table = rows(node.data / "parquet")
    assert [row["seq"] for row in table] == list(range(1, len(table) + 1))
    assert max(row["lsn"] for row in table) < sealed(node)[-1]
    assert {row["queue"] for row in table} == {"queue:jobs"}
    done = [row for row in rows(node.data / "parquet", "queue_records") if row["event"] == "done"]
    assert {row["group_name"] for row in done} == {""}
    api = Api(node)
    assert api.metric("parquet_segments_total") == len(copied(node))
    assert api.metric("parquet_missed_total") == 0
    api.close()
    (child,) = copying_processes(node)
    # It gives way to the node.
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, child) == min(19, mine + 10)
    node.stop()
    assert copying_processes(node) == []


def test_a_node_that_is_killed_copies_the_rest_when_it_is_back(node: NodeProcess):
    """kill -9 at some moment of copying: no half file, and each message once."""
    parquet = node.data / "parquet"
    send(node, 150)
    until(lambda: len(copied(node)) >= 2)
    node.kill()
    for name in files(parquet) + files(parquet, "queue_records"):
        assert Path(name).name.startswith(".") or name.endswith(".parquet")
    rows(parquet)
    node.start()
    send(node, 20)
    until(lambda: all_copied(node) and len(copied(node)) >= 8)
    seqs = [row["seq"] for row in rows(parquet)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert not [name for name in files(parquet) if name.endswith(".tmp")]
    # The one of the first life saw the end of its input.
    until(lambda: len(copying_processes(node)) <= 1)


def test_a_copying_process_that_dies_is_replaced(node: NodeProcess):
    send(node, 40)
    until(lambda: all_copied(node))
    (child,) = copying_processes(node)
    os.kill(child, signal.SIGKILL)
    send(node, 40)
    until(lambda: len(copied(node)) >= 3 and all_copied(node))
    assert copying_processes(node) != [child]
    seqs = [row["seq"] for row in rows(node.data / "parquet")]
    assert seqs == list(range(1, len(seqs) + 1))


def test_it_is_off_unless_asked_for(tmp_path: Path):
    node = NodeProcess(tmp_path, CONFIG.replace("true", "false"))
    send(node, 40)
    until(lambda: len(sealed(node)) > 1)
    node.stop()
    assert not (node.data / "parquet").exists()


def test_options_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    on = ParquetOptions(enabled=True)
    with pytest.raises(ConfigError, match=r"parquet\.enabled"):
        NodeOptions(dev=True, queues="redis://127.0.0.1", parquet=on)
    with pytest.raises(ConfigError, match=r"parquet\.waiting_bytes_max"):
        ParquetOptions(waiting_bytes_max=-1)

    async def start(options: ParquetOptions) -> None:
        copying = Copying(options, tmp_path)
        copying.start()
        await copying.stop()

    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"parquet\.folder"):
        asyncio.run(start(ParquetOptions(enabled=True, folder=str(tmp_path / "file"))))
    monkeypatch.setattr("chappe.node.copying.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"chappe\[parquet\]"):
        asyncio.run(start(on))
